"""The cgroup tree of a node's sandboxes: where pods are, what the node can enforce, and a leaf for each tool call.

    <home>/agent      the agent's own processes
    <home>/light      calls that take too little to be told apart
    <home>/call-<id>  one tool call

The home of a sandbox is its container's group, or a group of its name below the root. The kubelet names groups
by one of two drivers, which the layout itself tells apart:

    systemd:   kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope
    cgroupfs:  kubepods/burstable/pod<uid>/<id>

Guaranteed pods have no folder of a quality-of-service class. A kubelet with a `--cgroup-root` of its own, such as the
ones of kind, puts all of this below another group. Source: k8s.io/kubernetes pkg/kubelet/cm, containerd and CRI-O.
Pure over `CgroupFiles`: the kernel's files, or a fake of them.
"""

import errno
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

CONTROLLERS = ("cpu", "io", "memory", "pids")
PASSES, MOST_MOVED = 8, 1000
"""Bounds of what an adoption moves: passes before the container is frozen, and processes in one pass. One takes 20 µs,
so that nothing is frozen for more than some tens of milliseconds."""
AGENT, LIGHT, CALL_PREFIX = "agent", "light", "call-"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""Names of sandboxes and calls: nothing that could lead to another folder."""


class CgroupFiles(Protocol):
    """Files of cgroups below one folder. Groups are named by their path below it; every failure is an OSError."""

    def make(self, group: str) -> None: ...

    def remove(self, group: str) -> None: ...

    def children(self, group: str) -> tuple[str, ...]: ...

    def read(self, group: str, file: str) -> str: ...

    def write(self, group: str, file: str, value: str) -> None: ...


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """Counts of memory.events: how often a group was braked, stopped at its limit, and had a process killed."""

    high: int = 0
    max: int = 0
    oom: int = 0
    oom_kill: int = 0
    oom_group_kill: int = 0


@dataclass(frozen=True, slots=True)
class SandboxTree:
    """Cgroups of a node's sandboxes."""

    files: CgroupFiles
    homes: dict[str, str] = field(default_factory=dict)
    """Sandbox → its container's group, of those that were adopted."""

    def prepare(self) -> None:
        """Lets sandboxes below the root have limits of their own."""
        self._delegate("")

    def add_sandbox(self, sandbox: str) -> None:
        """Groups of a sandbox. The agent's leaf has no limit of its own below the sandbox's."""
        group = _checked(sandbox)
        self.files.make(group)
        self._delegate(group)
        for leaf in (AGENT, LIGHT):
            self.files.make(f"{group}/{leaf}")

    def adopt(self, sandbox: str, home: str) -> None:
        """Takes over a container's group: its processes move into the agent's leaf, so that its leaves have limits.

        For the rest of them, which fork faster than they are moved, the container is frozen: milliseconds. Adopting
        again changes nothing. Raises OSError where the container is gone, has cgroups of its own, or processes that
        cannot be moved.
        """
        self.homes[_checked(sandbox)] = home
        for leaf in (AGENT, LIGHT):
            try:
                self.files.make(f"{home}/{leaf}")
            except OSError as error:
                if error.errno != errno.EEXIST:
                    raise
        self._move_all(home, PASSES)
        self.files.write(home, "cgroup.freeze", "1")
        try:
            left = self._move_all(home, 2)
            if left:
                raise OSError(errno.EBUSY, f"{left} of its processes cannot be moved")
            self._delegate(home)
        finally:
            self.files.write(home, "cgroup.freeze", "0")
        ours = {home, *self._leaves(sandbox)}
        for child in self.files.children(home):
            if f"{home}/{child}" not in ours and self.is_populated(f"{home}/{child}"):
                raise OSError(errno.EBUSY, f"it has cgroups of its own, such as {child}: their processes are not moved")

    def _move_all(self, home: str, passes: int) -> int:
        """Moves the container's processes into the agent's leaf. Returns how many are left, however they behave."""
        for _ in range(passes):
            pids = self.files.read(home, "cgroup.procs").split()
            for pid in pids[:MOST_MOVED]:
                if pid != "0":  # of a pid namespace that is not ours: to write it would move this process
                    self._move(pid, f"{home}/{AGENT}")
        return len(self.files.read(home, "cgroup.procs").split())

    def loosen(self, sandbox: str) -> None:
        """Thaws the calls of an adopted sandbox and lifts the brakes; the walls behind them stay."""
        for group in self._leaves(sandbox):
            self.files.write(group, "cgroup.freeze", "0")
            self._limit(group, "memory.high", None)

    def release(self, sandbox: str) -> None:
        """Lifts every limit of an adopted sandbox; its calls go on, and new ones have no leaf of their own."""
        self.loosen(sandbox)
        for group in self._leaves(sandbox):
            self._limit(group, "memory.max", None)

    def attach(self, group: str, pid: int) -> None:
        """Moves a process into a leaf. Memory that it was charged for before stays where it was."""
        self.files.write(group, "cgroup.procs", str(pid))

    def pids(self, group: str) -> tuple[int, ...]:
        """Processes of a leaf."""
        return tuple(int(pid) for pid in self.files.read(group, "cgroup.procs").split())

    def add_call(
        self, sandbox: str, call: str, lease_bytes: int, *, max_bytes: int | None = None, pids: int | None = None
    ) -> str:
        """Leaf of a call, with its limits set before any process is in it. Returns the group.

        max_bytes: memory.max, behind the brake of memory.high.
        """
        group = self.call_group(sandbox, call)
        self.files.make(group)
        self._limit(group, "memory.high", lease_bytes)
        self._limit(group, "memory.max", max_bytes)
        # One victim of the kernel's own is half a call: all of it ends, and nothing of it stays behind.
        self.files.write(group, "memory.oom.group", "1")
        self._limit(group, "pids.max", pids)
        return group

    def set_lease(self, sandbox: str, call: str, lease_bytes: int) -> None:
        self._limit(self.call_group(sandbox, call), "memory.high", lease_bytes)

    def set_max(self, sandbox: str, call: str, max_bytes: int | None) -> None:
        self._limit(self.call_group(sandbox, call), "memory.max", max_bytes)

    def set_agent_lease(self, sandbox: str, lease_bytes: int | None) -> None:
        self._limit(self.agent_group(sandbox), "memory.high", lease_bytes)

    def limit_bytes(self, group: str, file: str) -> int | None:
        """Limit in this file of a group; None: without limit."""
        text = self.files.read(group, file).strip()
        return None if text == "max" else int(text)

    def set_light_max(self, sandbox: str, max_bytes: int) -> None:
        """Limit of the leaf of light calls: behind it the kernel kills the largest of them."""
        self._limit(self.light_group(sandbox), "memory.max", max_bytes)

    def freeze(self, sandbox: str, call: str) -> None:
        self.files.write(self.call_group(sandbox, call), "cgroup.freeze", "1")

    def thaw(self, sandbox: str, call: str) -> None:
        self.files.write(self.call_group(sandbox, call), "cgroup.freeze", "0")

    def kill(self, sandbox: str, call: str) -> None:
        """Kills every process of the call, frozen or not, whatever it forked. Its memory comes back a little later."""
        self.files.write(self.call_group(sandbox, call), "cgroup.kill", "1")

    def kill_agent(self, sandbox: str) -> None:
        self.files.write(self.agent_group(sandbox), "cgroup.kill", "1")

    def remove_call(self, sandbox: str, call: str) -> None:
        """Removes the leaf; what it still holds counts to the home. Raises OSError (EBUSY) until the last process is
        reaped."""
        self.files.remove(self.call_group(sandbox, call))

    def used_bytes(self, group: str) -> int:
        return self._number(group, "memory.current")

    def peak_bytes(self, group: str) -> int:
        return self._number(group, "memory.peak")

    def events(self, group: str) -> MemoryEvents:
        counts = dict(line.split() for line in self.files.read(group, "memory.events").splitlines())
        fields = ("high", "max", "oom", "oom_kill", "oom_group_kill")
        return MemoryEvents(*(int(counts.get(field, 0)) for field in fields))

    def working_set_bytes(self, group: str) -> int:
        """Memory in use without file pages that the kernel drops when it needs room; as the kubelet counts."""
        stat = self.files.read(group, "memory.stat")
        idle = next((line.split()[1] for line in stat.splitlines() if line.startswith("inactive_file ")), "0")
        return max(0, self.used_bytes(group) - int(idle))

    def firm_bytes(self, group: str) -> int:
        """Memory in use that the kernel cannot drop: without file pages; files in memory are no such pages."""
        stat = dict(line.split() for line in self.files.read(group, "memory.stat").splitlines())
        return max(
            0, self.used_bytes(group) - sum(int(stat.get(f"{kind}_file", "0")) for kind in ("active", "inactive"))
        )

    def calls_of(self, sandbox: str) -> list[str]:
        """Calls of one sandbox in the tree: what a restarted node agent knows of them."""
        leaves = self.files.children(self.home(sandbox))
        return [leaf.removeprefix(CALL_PREFIX) for leaf in leaves if leaf.startswith(CALL_PREFIX)]

    def home(self, sandbox: str) -> str:
        """Group of a sandbox."""
        return self.homes.get(sandbox) or _checked(sandbox)

    def call_group(self, sandbox: str, call: str) -> str:
        return f"{self.home(sandbox)}/{CALL_PREFIX}{_checked(call)}"

    def agent_group(self, sandbox: str) -> str:
        return f"{self.home(sandbox)}/{AGENT}"

    def light_group(self, sandbox: str) -> str:
        return f"{self.home(sandbox)}/{LIGHT}"

    def _leaves(self, sandbox: str) -> Iterator[str]:
        home = self.home(sandbox)
        for leaf in self.files.children(home):
            if leaf in (AGENT, LIGHT) or leaf.startswith(CALL_PREFIX):
                yield f"{home}/{leaf}"

    def _move(self, pid: str, group: str) -> None:
        try:
            self.files.write(group, "cgroup.procs", pid)
        except OSError as error:
            if error.errno != errno.ESRCH:  # it ended meanwhile
                raise

    def _delegate(self, group: str) -> None:
        there = self.files.read(group, "cgroup.controllers").split()  # a user's manager may have no io
        words = " ".join(f"+{controller}" for controller in CONTROLLERS if controller in there)
        self.files.write(group, "cgroup.subtree_control", words)

    def _limit(self, group: str, file: str, value: int | None) -> None:
        self.files.write(group, file, "max" if value is None else str(value))

    def _number(self, group: str, file: str) -> int:
        return int(self.files.read(group, file))

    def is_populated(self, group: str) -> bool:
        """Whether a process is in the group."""
        return "populated 1" in self.files.read(group, "cgroup.events")


def _checked(name: str) -> str:
    """The name, if it is one. Raises ValueError: a name with a slash or dots would lead to another group."""
    if not NAME.fullmatch(name):
        raise ValueError(f"naming a cgroup {name!r}: names are {NAME.pattern}")
    return name


Level = Literal["full", "observe", "none"]


@dataclass(frozen=True, slots=True)
class Capability:
    """Level with its reason, for status and logs."""

    level: Level
    reason: str


_ID = re.compile(r"(?:[a-z0-9+.-]+://)?([a-z0-9]{12,128})")
_UID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
CLASSES = ("", "burstable", "besteffort")
RUNTIMES = ("cri-containerd", "crio", "docker")


def is_uid(text: str) -> bool:
    """Whether this can be a pod's UID; a static pod's is a hash without hyphens."""
    return _UID.fullmatch(text) is not None


def pod_groups(uid: str, below: str = "") -> Iterator[str]:
    """Groups where the pod may be, below the group of the kubelet's root; at most one of them exists."""
    root = f"{below}/" if below else ""
    escaped = uid.replace("-", "_")
    for name in CLASSES:
        part = f"-{name}" if name else ""
        slices = "kubepods.slice/" + (f"kubepods{part}.slice/" if name else "")
        yield f"{root}{slices}kubepods{part}-pod{escaped}.slice"
        yield f"{root}kubepods/" + (f"{name}/" if name else "") + f"pod{uid}"


def container_group(container_id: str, children: Iterable[str]) -> str | None:
    """Child of a pod's group that is the container, by the id in its status (`containerd://…`); None: not there."""
    found = _ID.fullmatch(container_id)
    if found is None:
        return None
    names = {found[1], *(f"{runtime}-{found[1]}.scope" for runtime in RUNTIMES)}
    return next((child for child in sorted(children) if child in names), None)


def is_below(group: str, home: str) -> bool:
    """Whether a group is this one or lies below it."""
    return group == home or group.startswith(f"{home}/")
