"""Processes of the node: which pod one belongs to, by its cgroup, and whether it runs. Needs the host's PIDs."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cluster.clock import Clock
from nodeagent.process_cgroups import group_in, pod_in

SETTLED_S = 1.0
"""Age from which a process is heard: its number may have been another's until then, whose last words still wait."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One process as the kernel shows it."""

    started_s: float
    """Instant of its start by the clock that counts since boot."""
    state: str
    """One letter: R, S, D (uninterruptible), T (stopped), Z (ended)."""
    pod: str
    """UID of its pod; empty for a process of none."""
    group: str = ""
    """Its cgroup, from the root that the agent sees."""


class Processes(Protocol):
    """Table of processes."""

    def look(self, pid: int) -> Process | None:
        """The process of this number now; None where there is none."""
        ...


class HostProcesses:
    """The kernel's table under /proc."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def look(self, pid: int) -> Process | None:
        if pid <= 0:
            return None
        try:
            stat = (self._proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            cgroup = (self._proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # its name, in brackets, may hold anything
        group = group_in(cgroup)
        return Process(int(fields[19]) / _TICKS, fields[0], pod_in(group), group)


class Senders:
    """Answers which pod sent a datagram, by the process number that the kernel attached to it."""

    def __init__(self, processes: Processes, clock: Clock) -> None:
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
