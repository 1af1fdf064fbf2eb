"""The enforcer on a real kernel: agents survive where memory is short, and only tool calls go."""

import contextlib
import ctypes
import functools
import itertools
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolation.cgroupfs import CgroupFs
from isolation.ledger import MIB, Sandbox
from isolation.settings import Settings
from isolation.state import CallDemand
from nodeagent.sandboxes.enforcer import Enforcer
from tests.rigs.kernel.guest import Guest
from tests.rigs.launcher import run_in
from tests.rigs.sandboxes.runs import SandboxPolicyName, SandboxRun, as_json
from tests.rigs.sandboxes.traces import AgentPhase, AgentTrace, CallTrace


def agent(name: str, *peaks_mib: float, base_mib: float = 40.0) -> AgentTrace:
    """Agent whose calls rise to a peak within a second and hold it for three."""
    calls = [CallTrace("test", ((0.0, 1.0), (1.0, peak), (4.0, peak))) for peak in peaks_mib]
    return AgentTrace(name, (*(AgentPhase(1.0, base_mib, call) for call in calls), AgentPhase(0.5, base_mib, None)))


def run_of(policy: SandboxPolicyName, *agents: AgentTrace, budget_mib: float, hint: float = 1.0) -> SandboxRun:
    """The first agent is of high priority; memory as it is, time ten times faster."""
    return SandboxRun(
        policy,
        agents,
        tuple(int(index == 0) for index in range(len(agents))),
        tuple(0.0 for _ in agents),
        budget_mib,
        tuple(tuple(hint for _ in one.phases) for one in agents),
        1.0,
        0.1,
    )


def replayed(guest: Guest, run: SandboxRun) -> dict[str, Any]:
    result: dict[str, Any] = guest.call("tests.rigs.sandboxes.replay:run_in_guest", as_json(run))
    return result


TIGHT = (agent("high", 120.0), agent("low-1", 120.0), agent("low-2", 120.0))


def test_without_isolation_an_agent_dies(guest: Guest) -> None:
    # Bases take 120 of 250 MiB, and each call 120: two at once do not fit.
    result = replayed(guest, run_of("none", *TIGHT, budget_mib=250))

    assert result["kernel_kills"] > 0
    assert not all(agent["survived"] for agent in result["agents"])


def test_all_agents_survive_where_their_peaks_do_not_fit_at_once(guest: Guest) -> None:
    result = replayed(guest, run_of("whole-claims", *TIGHT, budget_mib=400))

    assert [agent["survived"] for agent in result["agents"]] == [True] * 3
    assert result["kernel_kills"] == 0
    assert sum(agent["killed_calls"] for agent in result["agents"]) == 0


def test_where_nothing_fits_only_tool_calls_go(guest: Guest) -> None:
    # Bases take 120 of 180 MiB, and every call needs 150.
    hopeless = tuple(replace(one, phases=agent(one.name, 150.0).phases) for one in TIGHT)

    result = replayed(guest, run_of("whole-claims", *hopeless, budget_mib=180, hint=0.5))

    assert [agent["survived"] for agent in result["agents"]] == [True] * 3
    assert result["kernel_kills"] == 0
    assert sum(agent["killed_calls"] + agent["refused_calls"] for agent in result["agents"]) > 0


@pytest.mark.parametrize("adopted", [False, True])
def test_the_end_of_a_frozen_call_is_not_taken_for_the_end_of_its_sandbox(guest: Guest, adopted: bool) -> None:
    assert guest.call(f"{__name__}:end_a_frozen_call", adopted) == [True, ["c"]]


def end_a_frozen_call(adopted: bool) -> tuple[bool, list[str]]:
    """Runs in the guest, by a clock on which readings are always due: also when the leaf was just removed."""
    files = CgroupFs(Path("/sys/fs/cgroup"))
    root = f"ends-{adopted}"
    files.make(root)
    files.write(root, "cgroup.subtree_control", "+cpu +io +memory +pids")
    below = CgroupFs(Path(f"/sys/fs/cgroup/{root}"))
    ticks = itertools.count()
    enforcer = Enforcer(below, 512 * MIB, Settings(frozen_s=1e9), lambda: float(next(ticks)))
    enforcer.tree.prepare()
    if adopted:  # as the node agent does it; then a call's memory is part of what is read of its agent
        below.make("pod")
        enforcer.adopt(Sandbox("s", 512 * MIB), "pod")
    else:
        enforcer.add_sandbox(Sandbox("s", 512 * MIB))
    enforcer.ask(CallDemand("c", "s", 0.0, 32 * MIB))
    group = enforcer.tree.call_group("s", "c")
    pid, _ = run_in(below.folder(group), functools.partial(_sleep, set()))
    frozen = replace(enforcer.state.calls["c"], frozen="WAITS_FOR_MEMORY", wants_more=True)
    enforcer.state = enforcer.state.with_call(frozen)
    below.write(group, "cgroup.kill", "1")
    os.waitpid(pid, 0)
    while "c" in enforcer.state.calls:
        enforcer.wait(0.001)
    return "s" in enforcer.state.ledger.sandboxes, [end.call for end in enforcer.take_ends()]


def test_a_call_for_which_the_kernel_has_no_cgroup_is_over_and_nothing_else(guest: Guest) -> None:
    assert guest.call(f"{__name__}:admit_without_room") == [["s"], [], ["second"]]


def admit_without_room() -> tuple[list[str], list[str], list[str]]:
    """Runs in the guest: sandboxes, calls, then calls once there is room again."""
    files = CgroupFs(Path("/sys/fs/cgroup"))
    files.make("full")
    files.write("full", "cgroup.subtree_control", "+cpu +io +memory +pids")
    below = CgroupFs(Path("/sys/fs/cgroup/full"))
    enforcer = Enforcer(below, 512 * MIB, Settings(), time.monotonic)
    enforcer.tree.prepare()
    enforcer.add_sandbox(Sandbox("s", 512 * MIB))
    below.write("s", "cgroup.max.descendants", "2")  # as where the kernel's 65,535 memory cgroups are used up
    enforcer.ask(CallDemand("first", "s", time.monotonic(), 32 * MIB))
    enforcer.end_if_empty("s", "first")  # no process came to it
    enforcer.wait(0.01)
    sandboxes, calls = list(enforcer.state.ledger.sandboxes), list(enforcer.state.calls)
    below.write("s", "cgroup.max.descendants", "max")
    enforcer.ask(CallDemand("second", "s", time.monotonic(), 32 * MIB))
    return sandboxes, calls, list(enforcer.state.calls)


def test_a_call_without_processes_is_over_and_what_it_leaves_is_its_agents(guest: Guest) -> None:
    ended, agent_mib = guest.call(f"{__name__}:leave_a_file_in_memory")

    assert ended == ["c"]
    assert agent_mib >= 64


def leave_a_file_in_memory() -> tuple[list[str], int]:
    """Runs in the guest: calls that ended, and what their agent counts then."""
    enforcer, below = _with_a_call("leaves", 128 * MIB)
    folder = Path("/run/leaves")
    folder.mkdir(exist_ok=True)
    if ctypes.CDLL(None).mount(b"leaves", str(folder).encode(), b"tmpfs", 0, None):
        raise OSError("no tmpfs can be mounted")

    def write() -> int:
        (folder / "file").write_bytes(b"x" * (64 * MIB))
        return 0

    _until_over(enforcer, run_in(below.folder(enforcer.tree.call_group("s", "c")), write)[0])
    ended = [end.call for end in enforcer.take_ends()]
    return ended, enforcer.state.ledger.sandboxes["s"].agent_bytes // MIB


def test_what_a_call_reads_from_files_is_no_need_for_memory(guest: Guest) -> None:
    assert guest.call(f"{__name__}:read_many_files") == [["c"], 32]


def read_many_files() -> tuple[list[str], int]:
    """Runs in the guest: calls that ended, and the lease at the end in MiB."""
    enforcer, below = _with_a_call("reads", 32 * MIB)

    def read() -> int:
        left_bytes = 64 * MIB
        for path in Path("/usr/lib").rglob("*.so*"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                while left_bytes > 0 and (chunk := file.read(MIB)):
                    left_bytes -= len(chunk)
        return 0

    _until_over(enforcer, run_in(below.folder(enforcer.tree.call_group("s", "c")), read)[0])
    ends = enforcer.take_ends()
    return [end.call for end in ends], (ends[0].limit_bytes or 0) // MIB


def _with_a_call(root: str, claim_bytes: int) -> tuple[Enforcer, CgroupFs]:
    """An adopted sandbox with an admitted call."""
    files = CgroupFs(Path("/sys/fs/cgroup"))
    files.make(root)
    files.write(root, "cgroup.subtree_control", "+cpu +io +memory +pids")
    below = CgroupFs(Path(f"/sys/fs/cgroup/{root}"))
    enforcer = Enforcer(below, 512 * MIB, Settings(), time.monotonic)
    enforcer.tree.prepare()
    below.make("pod")
    enforcer.adopt(Sandbox("s", 512 * MIB), "pod")
    enforcer.ask(CallDemand("c", "s", time.monotonic(), claim_bytes))
    return enforcer, below


def _until_over(enforcer: Enforcer, pid: int) -> None:
    until_s = time.monotonic() + 60.0
    while "c" in enforcer.state.calls and time.monotonic() < until_s:
        enforcer.wait(0.05)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    enforcer.wait(0.05)


def _sleep(not_kept: set[int]) -> int:
    for descriptor in not_kept:
        os.close(descriptor)
    time.sleep(60)
    return 0
