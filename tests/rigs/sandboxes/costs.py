"""Costs and reactions in the guest: freezing at the brake, a tool call's cgroup, the controller at rest."""

import mmap
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isolation.cgroupfs import CgroupFs
from isolation.ledger import MIB, Sandbox
from isolation.settings import Settings
from isolation.state import CallDemand
from isolation.tree import CONTROLLERS
from nodeagent.sandboxes.enforcer import Enforcer
from tests.rigs.launcher import fork_into, run_in

ROOT = Path("/sys/fs/cgroup")
FOLDER = "costs"
SPARE_MIB = 8
"""Left of the other call's lease, so that it meets no brake itself."""
FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE


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
    """Times from a braking event to a frozen call, and what the call then holds beyond its lease, MiB.

    A process allocates at the rate (0: as fast as it can) and meets a lease that may not grow: another call holds the
    rest of the node, and ends some time. So the call is frozen, and not killed.
    """
    files = _files()
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    settings = Settings(agent_slack_bytes=0)
    budget_bytes = 3 * lease_mib * MIB
    enforcer = Enforcer(files, budget_bytes, settings, time.monotonic)
    enforcer.tree.prepare()
    beside = CgroupFs(ROOT / FOLDER)  # a read of its own files would take events from the enforcer
    holder = _started(enforcer, beside, "holder", 2 * lease_mib, lambda: _hold(2 * lease_mib - SPARE_MIB))
    while enforcer.tree.used_bytes(holder) < (2 * lease_mib - SPARE_MIB) * MIB:
        enforcer.wait(0.05)
    milliseconds, over_mib = [], []
    for number in range(repetitions):
        name = f"s{number}"
        group = _started(enforcer, beside, name, lease_mib, lambda: _allocate(rate_mib_s))
        while enforcer.state.calls[name].frozen is None:
            enforcer.wait(1.0)
        milliseconds.append(enforcer.reactions_s[-1] * 1e3)
        while "frozen 1" not in beside.read(group, "cgroup.events"):
            select.select([], [], [], 0.001)
        lease_bytes = enforcer.state.ledger.reservations[name].lease_bytes
        over_mib.append((enforcer.tree.used_bytes(group) - lease_bytes) / MIB)
        _emptied(beside, group)
        while name in enforcer.state.calls:
            enforcer.wait(0.05)
            _reap()
        enforcer.forget(name)
        enforcer.take_ends()
        beside.forget(name)
    return {"milliseconds": milliseconds, "over_mib": over_mib}


def _started(enforcer: Enforcer, beside: CgroupFs, name: str, claim_mib: int, program: Callable[[], int]) -> str:
    """Group of an admitted call, in a sandbox of its own, that runs the program."""
    enforcer.add_sandbox(Sandbox(name, enforcer.state.ledger.budget_bytes))
    enforcer.ask(CallDemand(name, name, time.monotonic(), claim_mib * MIB))
    while name not in enforcer.state.calls:
        enforcer.wait(0.05)
    group = enforcer.tree.call_group(name, name)
    run_in(beside.folder(group), program)
    return group


def _hold(mib: int) -> int:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    blocks = [mmap.mmap(-1, MIB, flags=FLAGS) for _ in range(mib)]
    while blocks:
        time.sleep(60)
    return 0


def _allocate(rate_mib_s: float) -> int:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    blocks = []
    began_s = time.monotonic()
    while True:
        blocks.append(mmap.mmap(-1, MIB, flags=FLAGS))
        if rate_mib_s:
            time.sleep(max(0.0, began_s + len(blocks) / rate_mib_s - time.monotonic()))


def calls(repetitions: int) -> dict[str, list[float]]:
    """Milliseconds of a process in a leaf of its own and in a shared one, and of the leaf alone (make, limits, events,
    peak, remove).

    As for a real call, another process forks: a parent pays after each fork for copies of the pages that it writes.
    """
    files = _files()
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    enforcer = Enforcer(files, 1024 * MIB, Settings(), time.monotonic)
    enforcer.tree.prepare()
    enforcer.tree.add_sandbox("s")
    ours, clients = socket.socketpair()
    client = os.fork()
    if not client:
        ours.close()
        os._exit(_run_calls(clients))
    clients.close()
    own: list[float] = []
    shared: list[float] = []
    leaf: list[float] = []
    for number in range(repetitions):
        began_s = time.perf_counter()
        group = enforcer.tree.add_call("s", f"c{number}", 64 * MIB, max_bytes=128 * MIB)
        folder = files.folder(group)
        leaf_s = time.perf_counter() - began_s
        process_s = _process_s(ours, folder)
        began_s = time.perf_counter()
        enforcer.tree.events(group)
        enforcer.tree.peak_bytes(group)
        enforcer.tree.remove_call("s", f"c{number}")
        leaf_s += time.perf_counter() - began_s
        leaf.append(leaf_s * 1e3)
        own.append((leaf_s + process_s) * 1e3)
        shared.append(_process_s(ours, files.folder("s/light")) * 1e3)
    ours.close()
    os.waitpid(client, 0)
    return {"own": own, "shared": shared, "leaf": leaf}


def _process_s(channel: socket.socket, folder: int) -> float:
    """Seconds until a process that the client starts in the open folder's group has ended."""
    began_s = time.perf_counter()
    socket.send_fds(channel, [b"call"], [folder])
    channel.recv(1)
    return time.perf_counter() - began_s


def _run_calls(channel: socket.socket) -> int:
    """The client: starts a process, which ends at once, in each group that it is given."""
    while True:
        _, folders, _, _ = socket.recv_fds(channel, 4, 1)
        if not folders:
            return 0
        pid, pidfd = fork_into(folders[0])
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(pidfd)
        os.close(folders[0])
        channel.send(b".")


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
