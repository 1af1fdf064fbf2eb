"""Calls of agents that do not ask, on a real kernel: found when they start, moved into a leaf, ended with their last
process."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.kernel.node import FOLDER, Node, begin_in_pod, hog, in_pod, result_of, running_node, uid_of
from tests.kernel.test_sandbox_client import run
from tests.rigs.kernel.guest import Guest

PYTHON = f"{sys.executable} -S -c"
HERE = "sed 's/.*scope//' /proc/self/cgroup"


def called(guest: Guest, function: str, *arguments: Any) -> Any:
    return guest.call(f"{__name__}:{function}", *arguments)


def output(command: str) -> str:
    """What a shell's command says, of an agent that knows nothing of isolation."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    return done.stdout.strip()


def test_each_program_that_an_agent_starts_is_a_call_with_all_that_it_starts(guest: Guest) -> None:
    light, own, child, left, agents = called(guest, "plain")

    assert light == "/light"
    assert own.startswith("/call-found-")
    assert child == own
    assert left == 0
    assert agents == 1


def plain() -> tuple[str, str, str, int, int]:
    nap = f'{PYTHON} "import time; time.sleep(0.05)"'
    with running_node("a") as made:

        def agent() -> list[str]:
            light = output(f"ls / > /dev/null; {HERE}")
            return [light, *output(f"{nap}; {HERE}; sh -c '{nap}; {HERE.replace(chr(39), '')}'").splitlines()]

        light, own, child = in_pod(made, "a", agent)
        made.until(lambda report: report.sandboxes[uid_of("a")].running == 0)
        return (
            light,
            own,
            child,
            len(made.calls("a")),
            len(made.files.read(made.agent_leaf("a"), "cgroup.procs").split()),
        )


def test_what_only_forks_and_a_shell_that_waits_for_commands_are_the_agents(guest: Guest) -> None:
    worker, shell, command = called(guest, "fronts")

    assert worker == "/agent"
    assert shell == "/agent"
    assert command.startswith("/call-found-")


def fronts() -> tuple[str, str, str]:
    with running_node("a") as made:

        def agent() -> list[str]:
            reader, writer = os.pipe()
            if not os.fork():
                time.sleep(1.5)
                os.write(writer, Path("/proc/self/cgroup").read_bytes())
                os._exit(0)
            worker = os.read(reader, 4096).decode().strip().rpartition(".scope")[2]
            where = "print(open('/proc/self/cgroup').read())"
            command = f'{PYTHON} "import time; time.sleep(0.05); {where}"'
            script = f"read x < /proc/$$/cgroup; echo $x\n{command}\n"
            shell = subprocess.Popen(["/bin/bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            time.sleep(0.3)
            said = shell.communicate(script)[0].split()
            return [worker, *(line.rpartition(".scope")[2] for line in said)]

        worker, shell, command = in_pod(made, "a", agent)
        return worker, shell, command


def test_a_call_that_outgrows_its_claim_is_killed_and_its_agent_lives(guest: Guest) -> None:
    codes, happened = called(guest, "outgrows")

    assert codes == [-9, 0]
    assert happened == {"ToolCallKilled/OUTGREW_CLAIM": 1}


def outgrows() -> tuple[list[int], dict[str, int]]:
    with running_node("a") as made:
        codes = in_pod(made, "a", lambda: [subprocess.run(hog(mib, 0.2), check=False).returncode for mib in (480, 8)])  # noqa: S603
        report = made.until(lambda report: report.sandboxes[uid_of("a")].running == 0)
    happened = report.sandboxes[uid_of("a")].happened
    return codes, {name: count for name, count in happened.items() if "Killed" in name}


def test_a_call_for_which_there_is_no_room_waits_frozen_and_then_runs(guest: Guest) -> None:
    queued, frozen, said, calls = called(guest, "waits")

    assert queued == 1
    assert frozen == ["1"]
    assert said == "ran"
    assert calls == 0


def waits() -> tuple[int, list[str], str, int]:
    """192 MiB are python's share, and the node has 410 for both pods."""
    with running_node("a", "b") as made:
        first = begin_in_pod(
            made, "b", lambda: run(["/bin/sh", "-c", f"until [ -e {FOLDER / 'go'} ]; do sleep 0.1; done"], "300Mi")
        )
        made.until(lambda report: report.sandboxes[uid_of("b")].running == 1)
        begun = begin_in_pod(made, "a", lambda: output(f"{PYTHON} \"import time; time.sleep(0.3); print('ran')\""))
        report = made.until(lambda report: report.sandboxes[uid_of("a")].queued == 1)
        frozen = [made.files.read(call, "cgroup.freeze").strip() for call in made.calls("a")]
        (FOLDER / "go").touch()
        result_of(first)
        said = result_of(begun)
        made.until(lambda report: report.sandboxes[uid_of("a")].running == 0)
        return report.sandboxes[uid_of("a")].queued, frozen, said, len(made.calls("a"))


def test_an_agent_that_asks_decides_what_is_a_call(guest: Guest) -> None:
    asked, plainly = called(guest, "asks")

    assert asked.startswith("/call-")
    assert not asked.startswith("/call-found-")
    assert plainly == "/agent"


def asks() -> tuple[str, str]:
    with running_node("a") as made:

        def agent() -> tuple[str, str]:
            asked = run(["/bin/sh", "-c", HERE], "64Mi")["out"]
            return asked, output(f'{PYTHON} "import time; time.sleep(0.3)"; {HERE}')

        asked, plainly = in_pod(made, "a", agent)
        return asked, plainly


def test_an_agent_that_starts_programs_without_end_costs_its_node_a_bounded_share(guest: Guest) -> None:
    share, rest_share, neighbour = called(guest, "flood")

    assert share < 0.25
    assert rest_share < 0.01
    assert neighbour == "exited"


def flood() -> tuple[float, float, str]:
    with running_node("a", "b") as made:
        begun = begin_in_pod(made, "a", start_on)
        began, cpu = time.monotonic(), cpu_s(made)
        result_of(begun)
        share = (cpu_s(made) - cpu) / (time.monotonic() - began)
        found = in_pod(made, "b", lambda: run(["/bin/sh", "-c", "exit 0"], "64Mi", 20.0))
        return share, min(_share_of(made, 5.0) for _ in range(3)), found["outcome"]


def start_on() -> int:
    return sum(subprocess.run(["/bin/true"], check=False).returncode for _ in range(200))


def _share_of(made: Node, for_s: float) -> float:
    before_s = cpu_s(made)
    time.sleep(for_s)
    return (cpu_s(made) - before_s) / for_s


def cpu_s(made: Node) -> float:
    """Processor time of the isolation process."""
    fields = Path(f"/proc/{made.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
