"""Processes of the node: which pod one belongs to, by its cgroup, and whether it runs. Needs the host's PIDs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cluster.clock import Clock
from health.records.frames import Evidence, Source
from nodeagent.process_files import absolute, group_in, pod_in

SETTLED_S = 1.0
"""Age from which a process is heard: its number may have been another's until then, whose last words still wait."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """One process as the kernel shows it."""

    started_s: float
    """Instant of its start by the clock that counts since boot."""
    state: str
    """One letter: R, S, D (uninterruptible), T (stopped), Z (ended)."""
    pod: str
    """UID of its pod; empty for a process of none."""
    group: str = ""
    """Its cgroup, from the root that the agent sees."""


class ProcessesByNumber(Protocol):
    """Table of processes."""

    def look(self, pid: int) -> NodeProcess | None:
        """The process of this number now; None where there is none."""
        ...


class ProcessTable:
    """The kernel's table under /proc."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def look(self, pid: int) -> NodeProcess | None:
        if pid <= 0:
            return None
        try:
            stat = (self._proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            cgroup = (self._proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # its name, in brackets, may hold anything
        group = group_in(cgroup)
        return NodeProcess(int(fields[19]) / _TICKS, fields[0], pod_in(group), group)


class Senders:
    """Answers which pod sent a datagram, by the process number that the kernel attached to it."""

    def __init__(self, processes: ProcessesByNumber, clock: Clock) -> None:
        self._processes, self._clock = processes, clock

    def pod_of(self, pid: int, waited_s: float = 0.0) -> str:
        """UID of the sender's pod; empty where that is not certain.

        waited_s: longest time that the datagram may have waited. A younger process may have got the number of the one
        that sent it.
        """
        process = self._processes.look(pid)
        if process is None or self._clock() - process.started_s < max(SETTLED_S, waited_s):
            return ""
        return process.pod


MOST_RANKS = 16
"""Ranks of one pod that are followed: one per GPU. A pod that claims more gains nothing by it."""
CPU_LOOK_S = 2.0
FORGET_S = 120.0
"""Time for which the end of a process is reported: by then a verdict has used it, or the rank is there again."""
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(slots=True)
class _Rank:
    pid: int
    started_s: float
    group: str
    gone_s: float | None = None
    stopped_s: float | None = None


class Ranks:
    """Processes behind the frames of this node, by pod and rank."""

    def __init__(self, processes: ProcessesByNumber, cgroups: Path = CGROUPS) -> None:
        self._processes, self._cgroups = processes, cgroups
        self._ranks: dict[tuple[str, int], _Rank] = {}
        self._cpu: dict[str, tuple[float, int, int]] = {}
        """When, and microseconds used and withheld by then, of each cgroup."""
        self._share: dict[str, tuple[float, float]] = {}
        """Speed that each cgroup leaves, and since when it is below 1."""

    def note(self, pod: str, rank: int, pid: int) -> None:
        """Notes that a process spoke for a rank."""
        known = self._ranks.get((pod, rank))
        if known is not None and known.pid == pid and known.gone_s is None:
            return
        if known is None and sum(each == pod for each, _ in self._ranks) >= MOST_RANKS:
            return
        if (process := self._processes.look(pid)) is not None:
            self._ranks[(pod, rank)] = _Rank(pid, process.started_s, process.group)

    def read(self, now_s: float) -> Sequence[Evidence]:
        for key, rank in list(self._ranks.items()):
            process = self._processes.look(rank.pid) if rank.gone_s is None else None
            if process is None or process.started_s != rank.started_s or process.state in "ZX":
                rank.gone_s = now_s if rank.gone_s is None else rank.gone_s
            elif process.state in "Tt":
                rank.stopped_s = now_s if rank.stopped_s is None else rank.stopped_s
            else:
                rank.stopped_s = None
            if rank.gone_s is not None and now_s - rank.gone_s > FORGET_S:
                del self._ranks[key]
        self._measure(now_s)
        found: list[Evidence] = []
        for (pod, number), rank in self._ranks.items():
            subject = f"process {rank.pid}"
            if rank.gone_s is not None:
                found.append(Evidence(Source.PROCESS, "Gone", subject, now_s - rank.gone_s, "it ended", pod, number))
                continue
            if rank.stopped_s is not None:
                for_s = now_s - rank.stopped_s
                found.append(Evidence(Source.PROCESS, "Stopped", subject, for_s, "a signal", pod, number))
            share, since_s = self._share.get(rank.group, (1.0, now_s))
            if share < 1:
                words = f"its cgroup left it {share:.0%} of the CPU time that it asked for"
                found.append(Evidence(Source.CGROUP, "Throttled", subject, now_s - since_s, words, pod, number, share))
        return tuple(found)

    def _measure(self, now_s: float) -> None:
        """Measures what the cgroups of all ranks withheld since the last time."""
        groups = {rank.group for rank in self._ranks.values() if rank.gone_s is None}
        self._cpu = {group: each for group, each in self._cpu.items() if group in groups}
        self._share = {group: each for group, each in self._share.items() if group in groups}
        for group in groups:
            before = self._cpu.get(group)
            if before is not None and now_s - before[0] < CPU_LOOK_S:
                continue
            try:
                lines = (self._cgroups / absolute(group) / "cpu.stat").read_text(encoding="ascii").split()
            except OSError:
                continue
            values = dict(zip(lines[::2], lines[1::2], strict=False))
            now = int(values.get("usage_usec", 0)), int(values.get("throttled_usec", 0))
            self._cpu[group] = (now_s, *now)
            if before is not None:
                used, withheld = now[0] - before[1], now[1] - before[2]
                share = used / (used + withheld) if withheld > 0 else 1.0
                since_s = self._share.get(group, (1.0, now_s))[1] if share < 1 else now_s
                self._share[group] = (share, since_s)
