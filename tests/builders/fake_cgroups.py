"""Fake of the kernel's cgroup v2 files and of processes in them; tests/contracts/cgroups compares it with the kernel.

Processes allocate at once as far as memory.high lets them and go on when it rises; nothing takes time.
"""

import errno
import os
from dataclasses import dataclass, field

PAGE = 4096
NEEDS = {"memory": "memory.", "cpu": "cpu.", "io": "io.", "pids": "pids."}
READ_ONLY = {"memory.current", "memory.peak", "memory.events", "cgroup.events", "pids.current", "cgroup.controllers"}


@dataclass
class FakeProcess:
    group: str
    held_bytes: int = 0
    wanted_bytes: int = 0


@dataclass
class Group:
    limits: dict[str, int | None] = field(
        default_factory=lambda: {
            "memory.high": None,
            "memory.max": None,
            "pids.max": None,
            "memory.low": 0,
            "memory.min": 0,
        }
    )
    delegated: set[str] = field(default_factory=set)
    weights: dict[str, int] = field(default_factory=lambda: {"cpu.weight": 100})
    frozen: bool = False
    oom_group: bool = False
    peak_bytes: int = 0
    events: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("low", "high", "max", "oom", "oom_kill", "oom_group_kill"), 0)
    )


def failed(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class FakeCgroups:
    """Implements `CgroupFiles`, and what tests do to processes."""

    def __init__(self, controllers: tuple[str, ...] = ("cpu", "io", "memory", "pids")) -> None:
        self._controllers = set(controllers)
        self._groups: dict[str, Group] = {"": Group()}
        self._processes: dict[int, FakeProcess] = {}
        self._next_pid = 1000

    def make(self, group: str) -> None:
        if group in self._groups:
            raise failed(errno.EEXIST)
        self._group(parent_of(group))
        self._groups[group] = Group()

    def remove(self, group: str) -> None:
        self._group(group)
        if self.children(group) or self._pids(group, deep=False):
            raise failed(errno.EBUSY)
        del self._groups[group]

    def children(self, group: str) -> tuple[str, ...]:
        self._group(group)
        return tuple(sorted(name.rpartition("/")[2] for name in self._groups if name and parent_of(name) == group))

    def read(self, group: str, file: str) -> str:
        state = self._with_file(group, file)
        match file:
            case "memory.current":
                return f"{self._held(group)}\n"
            case "memory.peak":
                return f"{state.peak_bytes}\n"
            case "memory.events":
                return "".join(f"{name} {count}\n" for name, count in state.events.items())
            case "memory.oom.group":
                return f"{int(state.oom_group)}\n"
            case "cgroup.events":
                return f"populated {int(bool(self._pids(group)))}\nfrozen {int(self._is_frozen(group))}\n"
            case "cgroup.freeze":
                return f"{int(state.frozen)}\n"
            case "cgroup.procs":
                return "".join(f"{pid}\n" for pid in self._pids(group, deep=False))
            case "cgroup.subtree_control":
                return " ".join(sorted(state.delegated)) + "\n"
            case "cgroup.controllers":
                return " ".join(sorted(self._available(group))) + "\n"
            case "pids.current":
                return f"{len(self._pids(group))}\n"
            case "cpu.weight":
                return f"{state.weights[file]}\n"
            case _ if file in state.limits:
                limit = state.limits[file]
                return "max\n" if limit is None else f"{limit}\n"
        raise failed(errno.ENOENT)

    def write(self, group: str, file: str, value: str) -> None:
        state = self._with_file(group, file)
        match file:
            case "cgroup.subtree_control":
                self._delegate(group, state, value)
            case "cgroup.freeze":
                state.frozen = _one_of(value, "0", "1") == "1"
            case "cgroup.kill":
                _one_of(value, "1")
                self._kill(self._pids(group))
            case "cgroup.procs":
                self._attach(group, state, _number(value))
            case "memory.oom.group":
                state.oom_group = _one_of(value, "0", "1") == "1"
            case "cpu.weight":
                state.weights[file] = _in_range(value, 1, 10000)
            case "io.weight":
                _in_range(value, 1, 10000)
            case _ if file in state.limits:
                limit = None if value.strip() == "max" else _number(value)
                state.limits[file] = limit if limit is None or file == "pids.max" else limit // PAGE * PAGE
            case _:
                raise failed(errno.EACCES if file in READ_ONLY else errno.ENOENT)
        self._settle()

    def start(self, group: str) -> int:
        """A process inside the group."""
        if self._group(group).delegated:
            raise failed(errno.EBUSY)
        for above in self._with_parents(group):
            most = self._groups[above].limits["pids.max"]
            if most is not None and len(self._pids(above)) >= most:
                raise failed(errno.EAGAIN)
        self._next_pid += 1
        self._processes[self._next_pid] = FakeProcess(group)
        return self._next_pid

    def allocate(self, pid: int, total_bytes: int) -> None:
        """The process wants to hold so much."""
        self._processes[pid].wanted_bytes = total_bytes
        self._settle()

    def end(self, pid: int) -> None:
        self._kill([pid])
        self._settle()

    def is_alive(self, pid: int) -> bool:
        return pid in self._processes

    def held_bytes(self, pid: int) -> int:
        return self._processes[pid].held_bytes

    def _settle(self) -> None:
        """Processes allocate until each has what it wants, or is frozen, braked or dead."""
        while sum(self._grow(pid) for pid in list(self._processes)):
            pass

    def _grow(self, pid: int) -> bool:
        """Growth of a process up to the nearest limit above it. Returns whether anything changed."""
        process = self._processes.get(pid)
        if process is None or process.wanted_bytes <= process.held_bytes or self._is_frozen(process.group):
            return False
        more = process.wanted_bytes - process.held_bytes
        above = self._with_parents(process.group)
        brake = min(above, key=lambda group: self._room(group, "memory.high"))
        wall = min(above, key=lambda group: self._room(group, "memory.max"))
        braked, stopped = self._room(brake, "memory.high"), self._room(wall, "memory.max")
        grown = max(0, min(more, braked, stopped))
        process.held_bytes += grown
        for group in above:
            state = self._groups[group]
            state.peak_bytes = max(state.peak_bytes, self._held(group))
        if grown < more and braked <= stopped:
            self._count(brake, "high")
        elif grown < more:
            self._out_of_memory(wall)
            return True
        return grown > 0

    def _room(self, group: str, file: str) -> int:
        limit = self._groups[group].limits[file]
        return 1 << 62 if limit is None else limit - self._held(group)

    def _out_of_memory(self, group: str) -> None:
        state = self._groups[group]
        self._count(group, "max")
        self._count(group, "oom")
        largest = max(self._pids(group), key=lambda pid: self._processes[pid].held_bytes)
        victims = self._pids(group) if state.oom_group else [largest]
        for pid in victims:
            self._count(self._processes[pid].group, "oom_kill")
        if state.oom_group:
            self._count(group, "oom_group_kill")
        self._kill(victims)

    def _attach(self, group: str, state: Group, pid: int) -> None:
        if state.delegated:
            raise failed(errno.EBUSY)
        if pid not in self._processes:
            raise failed(errno.ESRCH)
        self._processes[pid].group = group

    def _count(self, group: str, name: str) -> None:
        for above in self._with_parents(group):
            self._groups[above].events[name] += 1

    def _kill(self, pids: list[int]) -> None:
        for pid in pids:
            self._processes.pop(pid, None)

    def _delegate(self, group: str, state: Group, words: str) -> None:
        for word in words.split():
            if word[0] not in "+-":
                raise failed(errno.EINVAL)
            if word[1:] not in self._available(group):
                raise failed(errno.ENOENT)
        if group and self._pids(group, deep=False):
            raise failed(errno.EBUSY)
        state.delegated |= {word[1:] for word in words.split() if word[0] == "+"}
        state.delegated -= {word[1:] for word in words.split() if word[0] == "-"}

    def _available(self, group: str) -> set[str]:
        return self._controllers if not group else self._groups[parent_of(group)].delegated

    def _with_file(self, group: str, file: str) -> Group:
        """The group, where it has the file: a controller's exist where the parent delegates it."""
        state = self._group(group)
        for controller, prefix in NEEDS.items():
            if file.startswith(prefix) and (not group or controller not in self._available(group)):
                raise failed(errno.ENOENT)
        if not group and file in ("cgroup.freeze", "cgroup.events", "cgroup.kill"):
            raise failed(errno.ENOENT)
        return state

    def _group(self, group: str) -> Group:
        if group not in self._groups:
            raise failed(errno.ENOENT)
        return self._groups[group]

    def _with_parents(self, group: str) -> list[str]:
        parts = group.split("/")
        return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]

    def _pids(self, group: str, *, deep: bool = True) -> list[int]:
        return [
            pid
            for pid, process in self._processes.items()
            if process.group == group or (deep and process.group.startswith(f"{group}/"))
        ]

    def _held(self, group: str) -> int:
        return sum(self._processes[pid].held_bytes for pid in self._pids(group))

    def _is_frozen(self, group: str) -> bool:
        return any(self._groups[above].frozen for above in self._with_parents(group))


def parent_of(group: str) -> str:
    return group.rpartition("/")[0]


def _number(text: str) -> int:
    if not text.strip().isdigit():
        raise failed(errno.EINVAL)
    return int(text)


def _in_range(text: str, lowest: int, highest: int) -> int:
    number = _number(text)
    if not lowest <= number <= highest:
        raise failed(errno.ERANGE)
    return number


def _one_of(text: str, *words: str) -> str:
    if text.strip() not in words:
        raise failed(errno.ERANGE if text.strip().isdigit() else errno.EINVAL)
    return text.strip()
