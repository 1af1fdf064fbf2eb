"""Calls of agents that do not ask: found when the agent starts a program, and moved into a leaf.

What is in the container when it is taken over is the agent. A process that one of these starts, or that comes from
outside as `kubectl exec` does, is a call with all that it starts, and ends with its last process. Where its class needs
little, it shares the light leaf; otherwise it asks for a leaf of its own, as a client does, and is frozen while it
waits. A call that is refused runs among the light ones. What only forked, or is a shell that waits for commands, is the
agent's. Touches the kernel.

The kernel tells when something starts; what it does not tell is found by looking. A look costs a reading of the
agent's leaf, and of at most MOST_LOOKED processes that are new in it; beyond BURST_S all looks together take at most a
SHARE of a core, whatever the pods do.
"""

import ctypes
import os
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cluster.clock import Clock
from isolation.admission import claim_bytes
from isolation.state import CallDemand
from isolation.tree import CALL_PREFIX
from nodeagent.process_files import visible_group_in
from nodeagent.sandboxes.enforcer import Enforcer
from nodeagent.sandboxes.sockets import proc_text

FOUND = "found-"
"""Beginning of the names of calls that were found."""
GATE = "tonnage/gate.py"
"""Program of a client that is about to ask; one that is named like it stays with its agent, and its brake."""
MOST_LOOKED = 64
SHARE, BURST_S = 0.2, 1.0
LOOK_EVERY_S = 1.0
"""Interval of looks where the kernel tells what starts."""
LOOK_UNTOLD_S = 0.1
"""Where it does not."""
SOON_S = 0.001
"""Time to the next look at a process that has just forked, or what a call that was moved forked meanwhile."""
WORKER_S = 1.0
"""Time after which a process that only forked is the agent's."""
FORKED_ONLY = 0x40
"""PF_FORKNOEXEC of linux/sched.h."""
FAN_CLOEXEC, FAN_NONBLOCK = 0x1, 0x2
FAN_MARK_ADD, FAN_MARK_FILESYSTEM = 0x1, 0x100
FAN_OPEN_EXEC = 0x1000
"""Linux 5.0. All of sys/fanotify.h."""
_EVENT = struct.Struct("=IBBHQii")
"""struct fanotify_event_metadata: length, version, a byte to spare, its own length, mask, descriptor, pid."""
AT_ONCE = 64
"""Events in one reading: each opens the program's file here."""
_libc = ctypes.CDLL(None, use_errno=True)


class ExecEvents:
    """Events of the file system that a process has as its root: all that its container starts from its own image.

    What is missed, such as a program in a volume, is found by the next look at the container's processes.
    """

    def __init__(self, pid: int) -> None:
        """Raises OSError where the process is gone, or this one may not: it takes SYS_ADMIN."""
        root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.descriptor: int = _libc.fanotify_init(FAN_CLOEXEC | FAN_NONBLOCK, os.O_RDONLY | os.O_CLOEXEC)
            flags, mask = FAN_MARK_ADD | FAN_MARK_FILESYSTEM, ctypes.c_uint64(FAN_OPEN_EXEC)
            if self.descriptor < 0 or _libc.fanotify_mark(self.descriptor, flags, mask, root, None):
                error = ctypes.get_errno()
                if self.descriptor >= 0:
                    self.close()
                raise OSError(error, f"watching what a container starts: {os.strerror(error)}")
        finally:
            os.close(root)

    def drain(self) -> None:
        """Takes the oldest events, each of which holds an open file here: that something starts is all that counts."""
        with suppress(OSError):  # nothing there, or a file that cannot be opened any more
            for *_, descriptor, _ in _EVENT.iter_unpack(os.read(self.descriptor, AT_ONCE * _EVENT.size)):
                if descriptor >= 0:
                    os.close(descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


def stat_of(pid: int) -> tuple[set[int], bool] | None:
    """Parent, process group and session of a process, and whether it runs its parent's program; None: it has ended."""
    fields = proc_text(pid, "stat").rpartition(")")[2].split()
    return ({int(field) for field in fields[1:4]}, bool(int(fields[6]) & FORKED_ONLY)) if len(fields) > 6 else None


@dataclass(slots=True)
class SweptPod:
    """Pod whose agent does not ask."""

    kind_of: Callable[[Sequence[str]], str]
    """Class of a command, as it is learned of this pod."""
    execs: ExecEvents | None
    own: set[int]
    """Processes of the agent."""
    young: dict[int, float] = field(default_factory=dict)
    """Processes that only forked so far → since when."""
    has_moved: bool = False
    """Whether the last look moved something."""
    due_s: float = 0.0
    rests_until_s: float = 0.0
    credit_s: float = BURST_S
    """Processor time that it may cost now; below 0 it rests."""
    looked_s: float = 0.0


class FoundCalls:
    """Finds the calls of the pods that it was given. Not for several threads."""

    def __init__(
        self, enforcer: Enforcer, clock: Clock, new_name: Callable[[], str], spent_s: Clock = time.process_time
    ) -> None:
        """spent_s: processor time of this process."""
        self._enforcer, self._clock, self._new_name, self._spent_s = enforcer, clock, new_name, spent_s
        self._pods: dict[str, SweptPod] = {}
        self._telling: dict[int, str] = {}
        """Watched descriptor of a pod's events → pod."""

    def open(self, uid: str, kind_of: Callable[[Sequence[str]], str]) -> None:
        """Begins with a pod that was taken over: whatever runs in it is its agent's."""
        tree, execs = self._enforcer.tree, None
        own: set[int] = set()
        with suppress(OSError):
            own = set(tree.pids(tree.agent_group(uid)))
        with suppress(OSError):  # it is gone, or the kernel tells only those with SYS_ADMIN
            execs = ExecEvents(min(own, default=0))
        self._pods[uid] = SweptPod(kind_of, execs, own, due_s=self._clock())

    def close(self, uid: str) -> None:
        """Ends with a pod."""
        if (pod := self._pods.pop(uid, None)) is not None and pod.execs is not None:
            if self._telling.pop(pod.execs.descriptor, None):
                self._enforcer.unwatch(pod.execs.descriptor)
            pod.execs.close()

    def dissolve(self, uid: str) -> None:
        """Ends with a pod whose agent asks by itself: it decides what is a call, and those that were found are none."""
        if uid not in self._pods:
            return
        self.close(uid)
        tree = self._enforcer.tree
        for group in [tree.call_group(uid, call) for call in tree.calls_of(uid) if call.startswith(FOUND)]:
            for pid in tree.pids(group):
                with suppress(OSError):
                    tree.attach(tree.agent_group(uid), pid)

    def next_s(self) -> float:
        """When the next look is due."""
        return min((pod.due_s for pod in self._pods.values()), default=float("inf"))

    def take(self, descriptor: int) -> bool:
        """Whether the readable descriptor was one of the events' of a pod, which is looked at next."""
        if (uid := self._telling.pop(descriptor, None)) is None:
            return False
        self._enforcer.unwatch(descriptor)
        self._pods[uid].due_s = self._pods[uid].rests_until_s
        return True

    def look(self) -> None:
        """Looks at every pod that is due."""
        for uid, pod in self._pods.items():
            if self._clock() < pod.due_s:
                continue
            spent_s = self._spent_s()
            with suppress(OSError):  # the container ended, which the enforcer notices
                self._sweep(uid, pod)
            took_s, now_s = self._spent_s() - spent_s, self._clock()
            waits_s = LOOK_UNTOLD_S if pod.execs is None else LOOK_EVERY_S
            if pod.young:  # the longer they take, the less often
                waits_s = min(waits_s, max(SOON_S, now_s - max(pod.young.values())))
            earned_s = (now_s - pod.looked_s) * SHARE / len(self._pods)
            pod.credit_s, pod.looked_s = min(BURST_S, pod.credit_s + earned_s) - took_s, now_s
            pod.rests_until_s = now_s + max(0.0, -pod.credit_s) * len(self._pods) / SHARE
            pod.due_s = max(pod.rests_until_s, now_s + (SOON_S if pod.has_moved else waits_s))
            if pod.execs is not None and pod.execs.descriptor not in self._telling:
                self._telling[pod.execs.descriptor] = uid
                self._enforcer.watch(pod.execs.descriptor)

    def _sweep(self, uid: str, pod: SweptPod) -> None:
        """Moves what is new in the agent's leaf, parents first."""
        tree, now_s = self._enforcer.tree, self._clock()
        agent = tree.agent_group(uid)
        if pod.execs is not None:
            pod.execs.drain()
        there = set(tree.pids(agent)) - {0}
        pod.own &= there
        pod.young = {pid: since_s for pid, since_s in pod.young.items() if pid in there - pod.own}
        pod.has_moved = False
        for pid in sorted(there - pod.own)[:MOST_LOOKED]:
            if (stat := stat_of(pid)) is None:
                continue
            relatives, is_fork = stat
            group = self._group_of_relative(uid, relatives - there)
            words = proc_text(pid, "cmdline").rstrip("\0").split("\0")
            if group is None and (is_fork or not words[0]):  # without words for as long as it begins
                if now_s - pod.young.setdefault(pid, now_s) > WORKER_S:
                    pod.own.add(pid)
                continue
            group = group or self._group_of_new(uid, pod, words)
            with suppress(OSError):
                tree.attach(group or agent, pid)
            if group is None:
                pod.own.add(pid)
            else:
                there.discard(pid)
                pod.has_moved = True
                self._enforcer.end_if_empty(uid, group.rpartition(CALL_PREFIX)[2])

    def _group_of_relative(self, uid: str, relatives: set[int]) -> str | None:
        """Leaf of the call to which a process belongs by its parent, process group or session; None: to none."""
        tree = self._enforcer.tree
        for relative in relatives:
            group = visible_group_in(proc_text(relative, "cgroup")) or ""
            if group == tree.light_group(uid) or group.startswith(tree.call_group(uid, FOUND)):
                return group
        return None

    def _group_of_new(self, uid: str, pod: SweptPod, words: Sequence[str]) -> str | None:
        """Leaf of a call that begins with this command; None where that is the agent's own."""
        enforcer, kind = self._enforcer, pod.kind_of(words)
        sandbox = enforcer.state.ledger.sandboxes.get(uid)
        if kind.endswith("/other:") or sandbox is None or any(word.endswith(GATE) for word in words[:8]):
            return None
        light = enforcer.tree.light_group(uid)
        if kind.endswith("/light"):
            return light
        settings, name = enforcer.settings, FOUND + self._new_name()
        claim = claim_bytes(None, kind, sandbox, enforcer.state.learned, settings.learned_fraction)
        wait_s = settings.frozen_s
        enforcer.ask(CallDemand(name, uid, self._clock(), claim, kind, declared=False, wait_s=wait_s))
        return enforcer.held_leaf(uid, name) or light
