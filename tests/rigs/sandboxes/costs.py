"""Costs and reactions in the guest: freezing at the brake, a tool call's cgroup, the controller at rest."""

import mmap
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any

from isolation.cgroupfs import CgroupFs
from isolation.ledger import MIB, Sandbox
from isolation.settings import Settings
from isolation.state import CallDemand
from isolation.tree import CONTROLLERS
from nodeagent.sandboxes.enforcer import Enforcer
from tests.rigs.launcher import fork_into

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
        select.select([], [], [], 0.002)


def freezes(repetitions: int, rate_mib_s: float, lease_mib: int) -> dict[str, Any]:
    """Times from a braking event to a frozen call, and what the call then holds beyond its lease, MiB.

    A process allocates at the rate (0: as fast as it can) and meets a lease that may not grow: another call holds the
    rest of the node, and ends some time. So the call is frozen, and not killed.

    As for a real call, another process forks: a parent pays after each fork for copies of the pages that it writes.
    """
    files = _files()
    channel = _client()
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    settings = Settings(agent_slack_bytes=0)
    budget_bytes = 3 * lease_mib * MIB
    enforcer = Enforcer(files, budget_bytes, settings, time.monotonic)
    enforcer.tree.prepare()
    beside = CgroupFs(ROOT / FOLDER)  # a read of its own files would take events from the enforcer
    holder = _started(enforcer, beside, channel, "holder", 2 * lease_mib, f"hold {2 * lease_mib - SPARE_MIB}")
    while enforcer.tree.used_bytes(holder) < (2 * lease_mib - SPARE_MIB) * MIB:
        enforcer.wait(0.05)
    milliseconds, over_mib = [], []
    for number in range(repetitions):
        name = f"s{number}"
        group = _started(enforcer, beside, channel, name, lease_mib, f"allocate {rate_mib_s}")
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
        enforcer.forget(name)
        enforcer.take_ends()
        beside.forget(name)
    channel.close()
    return {"milliseconds": milliseconds, "over_mib": over_mib}


def _started(
    enforcer: Enforcer, beside: CgroupFs, channel: socket.socket, name: str, claim_mib: int, program: str
) -> str:
    """Group of an admitted call, in a sandbox of its own, in which the client runs the program."""
    enforcer.add_sandbox(Sandbox(name, enforcer.state.ledger.budget_bytes))
    enforcer.ask(CallDemand(name, name, time.monotonic(), claim_mib * MIB))
    while name not in enforcer.state.calls:
        enforcer.wait(0.05)
    group = enforcer.tree.call_group(name, name)
    socket.send_fds(channel, [program.encode()], [beside.folder(group)])
    channel.recv(1)
    return group


def _hold(mib: float) -> None:
    blocks = [mmap.mmap(-1, MIB, flags=FLAGS) for _ in range(int(mib))]
    while blocks:
        time.sleep(60)


def _allocate(rate_mib_s: float) -> None:
    blocks = []
    began_s = time.monotonic()
    while True:
        blocks.append(mmap.mmap(-1, MIB, flags=FLAGS))
        if rate_mib_s:
            time.sleep(max(0.0, began_s + len(blocks) / rate_mib_s - time.monotonic()))


def calls(repetitions: int) -> dict[str, list[float]]:
    """Milliseconds of a process in a leaf of its own and in a shared one, and of the leaf alone (make, limits, events,
    peak, remove).

    Another process forks, as in `freezes`.
    """
    files = _files()
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    enforcer = Enforcer(files, 1024 * MIB, Settings(), time.monotonic)
    enforcer.tree.prepare()
    enforcer.tree.add_sandbox("s")
    ours = _client()
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
    return {"own": own, "shared": shared, "leaf": leaf}


def _process_s(channel: socket.socket, folder: int) -> float:
    """Seconds until a process that the client starts in the open folder's group has ended."""
    began_s = time.perf_counter()
    socket.send_fds(channel, [b"call"], [folder])
    channel.recv(1)
    return time.perf_counter() - began_s


def _client() -> socket.socket:
    """The near end of a channel to a process that runs programs in the groups that it is given, until it is closed."""
    ours, clients = socket.socketpair()
    if os.fork():
        clients.close()
        return ours
    ours.close()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    while True:
        told, folders, _, _ = socket.recv_fds(clients, 64, 1)
        if not folders:
            os._exit(0)
        pid, pidfd = fork_into(folders[0])
        program, _, number = told.decode().partition(" ")
        if not pid:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
            if number:
                {"hold": _hold, "allocate": _allocate}[program](float(number))
            os._exit(0)
        if program == "call":
            select.select([pidfd], [], [])  # it has ended
        os.close(pidfd)
        os.close(folders[0])
        clients.send(b".")


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
