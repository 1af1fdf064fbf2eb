"""The client and the node agent on a real kernel: admission, leaves, verdicts, and restarts."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from isolation.ledger import MIB
from tests.kernel.node import FOLDER, begin_in_pod, hog, in_pod, result_of, running_node, uid_of, waiting_for
from tests.rigs.kernel.guest import Guest
from tonnage import sandbox


def called(guest: Guest, function: str, *arguments: Any) -> Any:
    return guest.call(f"{__name__}:{function}", *arguments)


def run(
    command: list[str],
    mem: str | int | None = None,
    wait_s: float | None = None,
    on_state: Callable[[sandbox.State], None] = lambda _: None,
) -> dict[str, Any]:
    with sandbox.tool(mem, wait_s, on_state) as tool:
        done = tool.run(command, capture_output=True, text=True)
    verdict = done.verdict
    return {
        "code": done.returncode,
        "out": done.stdout.strip(),
        "err": done.stderr.strip(),
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "limit_mib": (verdict.limit_bytes or 0) // MIB,
        "peak_mib": verdict.peak_bytes // MIB,
        "isolated": verdict.isolated,
        "advice": verdict.advice,
    }


def test_a_tool_call_runs_in_a_leaf_of_its_own_and_its_exit_code_is_kept(guest: Guest) -> None:
    found = called(guest, "plain_call")

    assert found["out"].endswith("/call-")
    assert (found["code"], found["outcome"], found["limit_mib"], found["isolated"]) == (7, "exited", 64, True)


def plain_call() -> dict[str, Any]:
    with running_node("a") as made:
        found: dict[str, Any] = in_pod(
            made, "a", lambda: run(["/bin/sh", "-c", "sed 's/call-.*/call-/' /proc/self/cgroup; exit 7"], "64Mi")
        )
    return found


def test_a_light_call_shares_a_leaf_and_a_nested_one_its_callers(guest: Guest) -> None:
    light, nested = called(guest, "light_and_nested")

    assert light.endswith("/light")
    assert "/call-" in nested[0]
    assert nested[0] == nested[1]


def light_and_nested() -> tuple[str, list[str]]:
    inner = "from tonnage import sandbox; sandbox.Tool('8Mi').run(['cat', '/proc/self/cgroup'])"
    script = f'cat /proc/self/cgroup; {sys.executable} -c "{inner}"'
    with running_node("a") as made:
        light = in_pod(made, "a", lambda: run(["cat", "/proc/self/cgroup"]))["out"]
        nested = in_pod(made, "a", lambda: run(["/bin/sh", "-c", script], "128Mi"))["out"].splitlines()
    return light, nested


def test_a_call_beyond_its_claim_is_killed_and_its_agent_lives(guest: Guest) -> None:
    found, agent_lives, events = called(guest, "too_large")

    assert (found["code"], found["outcome"], found["reason"]) == (-9, "killed", "OUTGREW_CLAIM")
    assert found["advice"]
    assert agent_lives
    assert events == {"ToolCallKilled/OUTGREW_CLAIM": 1}


def too_large() -> tuple[dict[str, Any], bool, dict[str, int]]:
    with running_node("a") as made:
        found = in_pod(made, "a", lambda: run(hog(480, 5), "64Mi"))
        agents = len(made.files.read(made.agent_leaf("a"), "cgroup.procs").split())
        report = made.until(lambda report: report.sandboxes[uid_of("a")].running == 0)
    happened = report.sandboxes[uid_of("a")].happened
    return found, agents == 1, {name: count for name, count in happened.items() if "Killed" in name}


def test_a_kill_by_the_user_is_not_called_out_of_memory(guest: Guest) -> None:
    found = called(guest, "killed_by_the_user")

    assert (found["code"], found["outcome"], found["reason"]) == (-9, "signalled", None)


def killed_by_the_user() -> dict[str, Any]:
    with running_node("a") as made:
        found: dict[str, Any] = in_pod(made, "a", lambda: run(["/bin/sh", "-c", "kill -9 $$"], "64Mi"))
    return found


def test_a_claim_that_does_not_fit_now_waits_and_is_refused_when_its_time_is_up(guest: Guest) -> None:
    bounded, later, states = called(guest, "refusals")

    # A hint of 1 TiB is bounded by the sandbox's budget: it waits until nothing else runs, and then goes.
    assert (bounded["code"], bounded["outcome"]) == (0, "exited")
    assert (later["outcome"], later["reason"], later["code"]) == ("refused", "WAITED_TOO_LONG", sandbox.REFUSED)
    assert states == ["queued"]


def refusals() -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    with running_node("a", "b") as made:
        first = begin_in_pod(made, "a", lambda: run(waiting_for(FOLDER / "go"), "300Mi"))
        made.until(lambda report: report.sandboxes[uid_of("a")].running == 1)
        later = in_pod(made, "b", lambda: run(["/bin/true"], "300Mi", 0.5))
        waited = in_pod(made, "b", _states_of_a_wait)
        (FOLDER / "go").touch()
        result_of(first)
        bounded = in_pod(made, "b", lambda: run(["sh", "-c", "true"], "1Ti", 5.0))
    return bounded, later, waited


def _states_of_a_wait() -> list[str]:
    seen: list[str] = []
    with sandbox.tool("300Mi", 0.2, lambda state: seen.append(state["state"])) as tool:
        tool.run(["sh", "-c", "true"])
    return seen


def test_without_an_agent_the_command_runs_plainly_and_says_so(guest: Guest) -> None:
    found = called(guest, "no_agent")

    assert (found["code"], found["out"], found["isolated"]) == (3, "ran", False)


def no_agent() -> dict[str, Any]:
    return run(["/bin/sh", "-c", "echo ran; exit 3"], "64Mi")


def test_a_restarted_agent_thaws_and_takes_up_what_the_last_one_left(guest: Guest) -> None:
    frozen, running, ended = called(guest, "restart")

    assert frozen == "0"
    assert running == 1
    assert (ended["code"], ended["out"]) == (0, "done")
    # Its client connected again: the verdict has what the kernel counted of the leaf.
    assert (ended["outcome"], ended["limit_mib"]) == ("exited", 64)
    assert ended["isolated"]


def restart() -> tuple[str, int, dict[str, Any]]:
    with running_node("a") as made:
        begun = begin_in_pod(made, "a", _until_taken_up)
        made.until(lambda report: report.sandboxes[uid_of("a")].running == 1)
        (call,) = made.calls("a")
        made.files.write(call, "cgroup.freeze", "1")  # as between a freeze and its record
        made.kill_agent()
        made.start()
        # No controller is there to repeat its orders: the record has them. Thawed before its first word.
        running = made.report().sandboxes[uid_of("a")].running
        frozen = made.files.read(call, "cgroup.freeze").strip()
        ended = result_of(begun)
    return frozen, running, ended


def _until_taken_up() -> dict[str, Any]:
    """A call that ends when the next agent took it up."""

    def heard(state: sandbox.State) -> None:
        if state["state"] == "resumed":
            (FOLDER / "go").touch()

    return run(waiting_for(FOLDER / "go"), "64Mi", on_state=heard)


def test_a_pod_that_ends_takes_nothing_with_it(guest: Guest) -> None:
    assert called(guest, "pod_ends") == [0, "exited"]


def pod_ends() -> tuple[int, str]:
    with running_node("a", "b") as made:
        made.files.write(made.homes["a"], "cgroup.kill", "1")
        while "populated 1" in made.files.read(made.homes["a"], "cgroup.events"):
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.01)
        for leaf in made.files.children(made.homes["a"]):
            made.files.remove(f"{made.homes['a']}/{leaf}")
        made.files.remove(made.homes["a"])
        found = in_pod(made, "b", lambda: run(["sh", "-c", "true"], "64Mi"))
    return found["code"], found["outcome"]


def test_a_pod_that_no_policy_selects_any_more_is_without_limits(guest: Guest) -> None:
    assert called(guest, "released") == ["max", False]


def released() -> tuple[str, bool]:
    with running_node("a") as made:
        made.orders.clear()
        made.send_orders()
        made.until(lambda report: not report.sandboxes)
        limit = made.files.read(f"{made.homes['a']}/agent", "memory.high").strip()
        there = os.path.exists(made.socket("a"))
    return limit, there
