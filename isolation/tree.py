"""Tree of cgroups below a container's own: one leaf for the agent, one per tool call, one for all light calls.

    <home>/agent      the agent's own processes
    <home>/light      calls that take too little to be told apart
    <home>/call-<id>  one tool call

The home of a sandbox is its container's group, or a group of the sandbox's name below the root.

Pure over `CgroupFiles`: the kernel's files, or a fake of them.
"""

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

CONTROLLERS = ("cpu", "io", "memory", "pids")
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
class FoundCall:
    """Call's leaf that was found in the tree, as after a restart."""

    sandbox: str
    call: str
    lease_bytes: int | None
    """None: without limit."""
    used_bytes: int
    frozen: bool
    populated: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one leaf besides its lease."""

    max_bytes: int | None = None
    """memory.max, behind the brake of memory.high."""
    pids: int | None = 1024
    cpu_weight: int = 100
    io_weight: int | None = None


@dataclass(frozen=True, slots=True)
class SandboxTree:
    """Cgroups of a node's sandboxes."""

    files: CgroupFiles
    controllers: tuple[str, ...] = CONTROLLERS
    homes: dict[str, str] = field(default_factory=dict)
    """Sandbox → its container's group, of those that were adopted."""

    def prepare(self) -> None:
        """Lets sandboxes below the root have limits of their own."""
        self._delegate("")

    def add_sandbox(self, sandbox: str, budget_bytes: int | None = None, pids: int | None = None) -> None:
        """Groups of a sandbox. The agent's leaf has no limit of its own below the sandbox's."""
        group = _checked(sandbox)
        self.files.make(group)
        self._delegate(group)
        self._limit(group, "memory.max", budget_bytes)
        self._limit(group, "pids.max", pids)
        for leaf in (AGENT, LIGHT):
            self.files.make(f"{group}/{leaf}")

    def adopt(self, sandbox: str, home: str) -> None:
        """Takes over a container's group: its processes move into the agent's leaf, so that its leaves have limits.

        The container is frozen meanwhile, so that nothing forks away; that takes milliseconds. Adopting again changes
        nothing. Raises OSError where the container is gone.
        """
        self.homes[_checked(sandbox)] = home
        for leaf in (AGENT, LIGHT):
            self._make_once(f"{home}/{leaf}")
        self.files.write(home, "cgroup.freeze", "1")
        try:
            while pids := self.files.read(home, "cgroup.procs").split():
                for pid in pids:
                    self._move(pid, f"{home}/{AGENT}")
            self._delegate(home)
        finally:
            self.files.write(home, "cgroup.freeze", "0")

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

    def add_call(self, sandbox: str, call: str, lease_bytes: int, limits: Limits | None = None) -> str:
        """Leaf of a call, with its limits set before any process is in it. Returns the group."""
        limits = limits or Limits()
        group = self.call_group(sandbox, call)
        self.files.make(group)
        self._limit(group, "memory.high", lease_bytes)
        self._limit(group, "memory.max", limits.max_bytes)
        # One victim of the kernel's own is half a call: all of it ends, and nothing of it stays behind.
        self.files.write(group, "memory.oom.group", "1")
        self._limit(group, "pids.max", limits.pids)
        self.files.write(group, "cpu.weight", str(limits.cpu_weight))
        if limits.io_weight is not None:
            self.files.write(group, "io.weight", str(limits.io_weight))
        return group

    def set_lease(self, sandbox: str, call: str, lease_bytes: int) -> None:
        self._limit(self.call_group(sandbox, call), "memory.high", lease_bytes)

    def set_max(self, sandbox: str, call: str, max_bytes: int | None) -> None:
        self._limit(self.call_group(sandbox, call), "memory.max", max_bytes)

    def set_agent_lease(self, sandbox: str, lease_bytes: int | None) -> None:
        self._limit(self.agent_group(sandbox), "memory.high", lease_bytes)

    def max_bytes(self, sandbox: str, call: str) -> int | None:
        """memory.max of a call; None: without limit."""
        return _limit_from(self.files.read(self.call_group(sandbox, call), "memory.max"))

    def set_light_max(self, sandbox: str, max_bytes: int) -> None:
        """Limit of the leaf of light calls: behind it the kernel kills the largest of them."""
        self._limit(self.light_group(sandbox), "memory.max", max_bytes)

    def set_cpu_weight(self, sandbox: str, call: str, weight: int) -> None:
        self.files.write(self.call_group(sandbox, call), "cpu.weight", str(weight))

    def freeze(self, sandbox: str, call: str) -> None:
        self.files.write(self.call_group(sandbox, call), "cgroup.freeze", "1")

    def thaw(self, sandbox: str, call: str) -> None:
        self.files.write(self.call_group(sandbox, call), "cgroup.freeze", "0")

    def reclaim(self, sandbox: str, call: str, reclaim_bytes: int) -> None:
        """Asks the kernel to move memory out. Raises OSError (EAGAIN) where it found less, as without swap."""
        self.files.write(self.call_group(sandbox, call), "memory.reclaim", str(reclaim_bytes))

    def kill(self, sandbox: str, call: str) -> None:
        """Kills every process of the call, frozen or not, whatever it forked. Its memory comes back a little later."""
        self.files.write(self.call_group(sandbox, call), "cgroup.kill", "1")

    def kill_agent(self, sandbox: str) -> None:
        self.files.write(self.agent_group(sandbox), "cgroup.kill", "1")

    def is_gone(self, sandbox: str, call: str, left_bytes: int = 1 << 20) -> bool:
        """Whether no process is left in the call and its memory came back, but for what the kernel keeps."""
        group = self.call_group(sandbox, call)
        return not self._populated(group) and self._number(group, "memory.current") <= left_bytes

    def remove_call(self, sandbox: str, call: str) -> None:
        """Removes the leaf. Raises OSError (EBUSY) until the last process is reaped."""
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

    def found_calls(self) -> Iterator[FoundCall]:
        """Calls in the tree: what a restarted node agent knows of them."""
        for sandbox in self.homes or self.files.children(""):
            yield from self.calls_of(sandbox)

    def calls_of(self, sandbox: str) -> Iterator[FoundCall]:
        """Calls of one sandbox in the tree."""
        for leaf in self.files.children(self.home(sandbox)):
            if leaf.startswith(CALL_PREFIX):
                call = leaf.removeprefix(CALL_PREFIX)
                group = self.call_group(sandbox, call)
                yield FoundCall(
                    sandbox,
                    call,
                    _limit_from(self.files.read(group, "memory.high")),
                    self.used_bytes(group),
                    self.files.read(group, "cgroup.freeze").strip() == "1",
                    self._populated(group),
                )

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

    def _make_once(self, group: str) -> None:
        try:
            self.files.make(group)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise

    def _move(self, pid: str, group: str) -> None:
        try:
            self.files.write(group, "cgroup.procs", pid)
        except OSError as error:
            if error.errno != errno.ESRCH:  # it ended meanwhile
                raise

    def _delegate(self, group: str) -> None:
        words = " ".join(f"+{controller}" for controller in self.controllers)
        self.files.write(group, "cgroup.subtree_control", words)

    def _limit(self, group: str, file: str, value: int | None) -> None:
        self.files.write(group, file, "max" if value is None else str(value))

    def _number(self, group: str, file: str) -> int:
        return int(self.files.read(group, file))

    def _populated(self, group: str) -> bool:
        return "populated 1" in self.files.read(group, "cgroup.events")


def _checked(name: str) -> str:
    """The name, if it is one. Raises ValueError: a name with a slash or dots would lead to another group."""
    if not NAME.fullmatch(name):
        raise ValueError(f"naming a cgroup {name!r}: names are {NAME.pattern}")
    return name


def _limit_from(text: str) -> int | None:
    return None if text.strip() == "max" else int(text)
