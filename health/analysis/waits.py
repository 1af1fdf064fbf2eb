"""Wait-for graph: the ranks and paths on which a job that stands still waits in the end."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray
from health.analysis.pulse import Pulse, Waiting
from health.records.layout import Layout

LEAST_S = 3.0
"""Age from which a wait counts as a hang: above the stalls of data loading, within the goal of 5 s with heartbeats
four times a second."""
START_S = 120.0
"""The same while a job starts: ranks load weights and compile for unlike times before they meet."""
_FIRST, _MANY = 32, 1_000
"""Operations of a group that count as its start, unless some group of the job has had many."""
_TYPICAL = 5.0
"""Multiple of the job's own 99th percentile that a wait must exceed too."""
_OLD_S = 1.0
"""Age of a wait that takes part in the graph."""
SILENT_S = 2.5
"""Silence from which a rank counts as stopped: ten heartbeats. It may have left what the last of them named."""
BLIND = 0.5
"""Share of silent ranks above which the records, not the job, are what stopped."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Ranks that the others wait for, and that wait for none."""

    ranks: tuple[int, ...]
    waiting: int
    """Ranks that wait for them, directly or behind others."""
    since_s: float
    silent: bool
    """Whether their heartbeats stopped as well."""
    phase: int


@dataclass(frozen=True, slots=True)
class Stuck:
    """Operation that all its members entered and that does not end."""

    path: int
    waiting: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Order:
    """Ranks that wait for each other in different operations: the program's order of calls differs."""

    ranks: tuple[int, ...]
    since_s: float


def stands_still(pulse: Pulse, layout: Layout, now_s: float) -> Absent | Stuck | Order | None:
    """Cause of the oldest waits; None while the job makes progress or while the cause is too young to tell."""
    waits = pulse.waiting(now_s)
    if not len(waits.rank) or waits.age_s.max() < _least_s(waits, pulse):
        return None
    old = np.flatnonzero(waits.age_s >= _OLD_S)
    silent = np.flatnonzero(pulse.silent_s(now_s) > SILENT_S)
    if len(silent):
        ready = len(silent) <= BLIND * layout.ranks
        return _longest_absent(silent.tolist(), pulse, len(set(waits.rank[old].tolist())), now_s) if ready else None
    blockers, stuck = _followed(pulse, layout, waits, old)
    in_operation = pulse.in_operation()
    absent = [rank for rank in sorted(blockers) if not in_operation[rank]]
    if stuck:
        found = _oldest_stuck(stuck, pulse, waits, now_s)
        if found is not None or not absent:
            return found
    if absent:
        return _longest_absent(absent, pulse, len(set(waits.rank[old].tolist())), now_s)
    oldest = float(waits.age_s[old].max())
    return Order(tuple(sorted(blockers)), now_s - oldest) if blockers and oldest > 2 * LEAST_S else None


def _least_s(waits: Waiting, pulse: Pulse) -> float:
    """Age from which the oldest wait counts, by how far its group has come."""
    starts = waits.seq[waits.age_s.argmax()] <= _FIRST and pulse.entered.max() < _MANY
    return START_S if starts else LEAST_S


def _followed(pulse: Pulse, layout: Layout, waits: Waiting, old: np.ndarray) -> tuple[set[int], list[int]]:
    """Ranks that some old wait needs, and the waits whose members are all there."""
    blockers: set[int] = set()
    stuck: list[int] = []
    seen: set[tuple[int, int]] = set()
    for wait in old.tolist():
        path, seq = int(waits.path[wait]), int(waits.seq[wait])
        if (path, seq) in seen:
            continue
        seen.add((path, seq))
        slots = slice(layout.starts[path], layout.starts[path + 1])
        missing = layout.members[slots][pulse.entered[slots] < seq]
        if len(missing):
            blockers.update(missing.tolist())
        else:
            stuck.append(wait)
    return blockers, stuck


def _oldest_stuck(stuck: list[int], pulse: Pulse, waits: Waiting, now_s: float) -> Stuck | None:
    """The operation that was complete first: the others may wait behind it."""
    youngest_s: dict[int, float] = {}
    for wait in stuck:
        same = (waits.path == waits.path[wait]) & (waits.seq == waits.seq[wait])
        youngest_s[wait] = min(float(waits.age_s[same].min()), now_s - pulse.complete_s(int(waits.path[wait])))
    wait = max(youngest_s, key=lambda each: youngest_s[each])
    if youngest_s[wait] < max(LEAST_S, _TYPICAL * pulse.lately_s(int(waits.path[wait]))):
        return None
    return Stuck(int(waits.path[wait]), len(set(waits.rank.tolist())), now_s - youngest_s[wait])


def _longest_absent(absent: list[int], pulse: Pulse, waiting: int, now_s: float) -> Absent | None:
    limit_s = max(LEAST_S, _TYPICAL * pulse.typical_gap_s)
    silent_s = pulse.silent_s(now_s)
    idle_s: FloatArray = pulse.idle_s + silent_s
    ripe = [rank for rank in absent if idle_s[rank] > limit_s or silent_s[rank] > SILENT_S]
    if len(ripe) < len(absent):  # the youngest may be what the others wait for
        return None
    longest = max(ripe, key=lambda rank: idle_s[rank])
    silent = bool(silent_s[longest] > _OLD_S)
    return Absent(tuple(ripe), waiting, now_s - float(idle_s[longest]), silent, int(pulse.phase[longest]))
