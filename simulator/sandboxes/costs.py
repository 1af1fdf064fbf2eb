"""Costs and reactions in the guest: freezing at the brake, a tool call's cgroup, the controller at rest."""

import mmap
import os
import select
import time
from pathlib import Path
from typing import Any

from isolation.cgroupfs import CgroupFs
from isolation.launcher import fork_into, run_in
from isolation.ledger import MIB, Sandbox
from isolation.settings import Settings
from isolation.state import Request
from isolation.tree import CONTROLLERS, Limits
from nodeagent.sandboxes.enforcer import Enforcer

ROOT = Path("/sys/fs/cgroup")
FOLDER = "costs"


def _files() -> CgroupFs:
    """An empty tree of this measurement's own."""
    clear_if_there()
    CgroupFs(ROOT).make(FOLDER)
    CgroupFs(ROOT).write(FOLDER, "cgroup.subtree_control", " ".join(f"+{one}" for one in CONTROLLERS))
    return CgroupFs(ROOT / FOLDER)


def clear_if_there() -> None:
    """Removes the tree of an earlier measurement."""
    if FOLDER not in CgroupFs(ROOT).children(""):
        return
    below = CgroupFs(ROOT / FOLDER)
    _emptied(CgroupFs(ROOT), FOLDER)
    for sandbox in below.children(""):
        for leaf in below.children(sandbox):
            below.remove(f"{sandbox}/{leaf}")
        below.remove(sandbox)
    CgroupFs(ROOT).remove(FOLDER)


def _emptied(files: CgroupFs, group: str) -> None:
    files.write(group, "cgroup.kill", "1")
    while "populated 1" in files.read(group, "cgroup.events"):
        _reap()
        select.select([], [], [], 0.002)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def freezes(repetitions: int, rate_mib_s: float, lease_mib: int) -> dict[str, Any]:
    """Times from a braking event to a frozen call, and what the call then holds beyond its lease.

    A process allocates at the rate (0: as fast as it can) and meets a lease that nothing may enlarge.
    """
    files = _files()
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    settings = Settings(lease_step_bytes=MIB, start_lease_bytes=lease_mib * MIB, agent_slack_bytes=0)
    milliseconds, over_mib = [], []
    for number in range(repetitions):
        enforcer = Enforcer(files, (lease_mib + 1) * MIB, settings, time.monotonic)
        if number == 0:
            enforcer.tree.prepare()
        sandbox, call = f"s{number}", "c"
        enforcer.add_sandbox(Sandbox(sandbox, (lease_mib + 1) * MIB))
        enforcer.ask(_request(call, sandbox, lease_mib))
        enforcer.wait(0.0)
        group = enforcer.tree.call_group(sandbox, call)
        run_in(files.folder(group), lambda: _allocate(rate_mib_s))
        while enforcer.state.calls[call].frozen is None:
            enforcer.wait(1.0)
        milliseconds.append(enforcer.reactions_s[-1] * 1e3)
        while "frozen 1" not in files.read(group, "cgroup.events"):
            select.select([], [], [], 0.001)
        over_mib.append((enforcer.tree.used_bytes(group) - enforcer.state.ledger.reservations[call].lease_bytes) / MIB)
        _emptied(files, group)
    return {"milliseconds": milliseconds, "over_mib": over_mib}


def _request(call: str, sandbox: str, claim_mib: int) -> Request:
    return Request(call, sandbox, time.monotonic(), claim_mib * MIB)


def _allocate(rate_mib_s: float) -> int:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    blocks = []
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    began_s = time.monotonic()
    while True:
        blocks.append(mmap.mmap(-1, MIB, flags=flags))
        if rate_mib_s:
            time.sleep(max(0.0, began_s + len(blocks) / rate_mib_s - time.monotonic()))


def calls(repetitions: int) -> dict[str, list[float]]:
    """Milliseconds of a process in a leaf of its own (make, limits, clone3, events, remove), and in a shared one."""
    files = _files()
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    enforcer = Enforcer(files, 1024 * MIB, Settings(), time.monotonic)
    enforcer.tree.prepare()
    enforcer.tree.add_sandbox("s")
    own: list[float] = []
    shared: list[float] = []
    for number in range(repetitions):
        for times, is_own in ((own, True), (shared, False)):
            began_s = time.perf_counter()
            group = f"s/call-c{number}" if is_own else "s/light"
            if is_own:
                enforcer.tree.add_call("s", f"c{number}", 64 * MIB, Limits(max_bytes=128 * MIB))
            pid, pidfd = fork_into(files.folder(group))
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
            os.close(pidfd)
            if is_own:
                enforcer.tree.events(group)
                enforcer.tree.peak_bytes(group)
                enforcer.tree.remove_call("s", f"c{number}")
            times.append((time.perf_counter() - began_s) * 1e3)
    return {"own": own, "shared": shared}


class CountedReads(CgroupFs):
    """Counts reads: work at rest, whatever the speed of the machine."""

    reads = 0

    def read(self, group: str, file: str) -> str:
        self.reads += 1
        return super().read(group, file)


def at_rest(agents: int, for_s: float, tick_s: float = 1.0) -> dict[str, float]:
    """Work of the controller while so many agents do nothing: `share` of a core, `wake_ups`, `reads` of files."""
    _files().close()
    files = CountedReads(ROOT / FOLDER)
    enforcer = Enforcer(files, 1024 * MIB, Settings(), time.monotonic, tick_s=tick_s)
    enforcer.tree.prepare()
    for number in range(agents):
        enforcer.add_sandbox(Sandbox(f"s{number}", 1024 * MIB, agent_bytes=MIB))
    files.reads = wake_ups = 0
    end_s = time.monotonic() + for_s
    began_cpu_s = time.process_time()
    while time.monotonic() < end_s:
        enforcer.wait(end_s - time.monotonic())
        wake_ups += 1
    share = (time.process_time() - began_cpu_s) / for_s
    return {"share": share, "wake_ups": wake_ups, "reads": files.reads}
