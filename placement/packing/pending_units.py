"""Units of placement: pods that must be decided together, in their order of service."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from cluster.snapshot import PENDING, Snapshot
from placement.packing.draft import Draft, members_running


@dataclass(frozen=True, slots=True)
class Unit:
    """A single pod, or the pending members of a gang."""

    priority: int
    rows: tuple[int, ...]
    """Pending members, the largest first."""
    need: int
    """Number of members that must start together; fewer do not start at all."""
    gang: int = -1

    def label(self, snapshot: Snapshot) -> str:
        if self.gang >= 0:
            return f"Gang/{snapshot.gangs[self.gang].name}"
        return f"Pod/{snapshot.pods.names[self.rows[0]]}"


Order = tuple[int, bool, int, int, int]
"""Place in the order of service: the least is served first."""


class Queue:
    """Units that wait for their turn, in the order of service; of each gang one entry, which stands for all its units.

    A gang joins in parts: its pending members, and those that a preemption stops while they wait. Whoever serves it
    looks at what is pending then (`as_of_now`).
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._entries: list[tuple[Order, int, Unit]] = []
        self._numbers = count()
        """Decides between entries of equal order, since units themselves have none."""
        self._gangs: set[int] = set()

    def add(self, unit: Unit) -> None:
        if unit.gang in self._gangs:
            return
        if unit.gang >= 0:
            self._gangs.add(unit.gang)
        heapq.heappush(self._entries, (order_of_service(self._draft, unit), next(self._numbers), unit))

    @property
    def first(self) -> Order | None:
        """Order of the first unit; None when none waits."""
        return self._entries[0][0] if self._entries else None

    def next(self) -> Unit:
        """Removes and returns the first unit. Raises IndexError when none waits."""
        *_, unit = heapq.heappop(self._entries)
        self._gangs.discard(unit.gang)
        return unit

    def waiting(self) -> Iterator[Unit]:
        """Units that are still in the queue, in no particular order; of a gang, all of its units."""
        for *_, unit in self._entries:
            yield from as_of_now(self._draft, unit)


def pending_units(draft: Draft) -> list[Unit]:
    """All unplaced units of the draft, in the order of service: priority, then GPUs, then place in the table.

    Where the last plan ended before all had a turn, those that had none come before the others of their priority.

    Large before small packs a batch well (first-fit decreasing); the order of equals is not guaranteed. Pods that
    request the same number of GPUs are not ordered by their CPU. Where not all fit, the pods that need most CPU would
    use it up, and GPUs would stay idle for lack of it (benchmarks/binding.py, overload: 97.4 % of the GPUs allocated,
    against 99.8 %).
    """
    units = units_of(draft, np.flatnonzero(draft.node == PENDING).tolist())
    return sorted(units, key=lambda unit: order_of_service(draft, unit))


def units_of(draft: Draft, rows: Iterable[int]) -> list[Unit]:
    """Units that these pending pods belong to, including the other pending members of their gangs."""
    pods = draft.snapshot.pods
    rows = list(rows)
    units = [Unit(int(draft.priority[row]), (row,), need=1) for row in rows if pods.gang[row] < 0]
    for gang in sorted({int(pods.gang[row]) for row in rows} - {-1}):
        units += gang_units(draft, gang)
    return units


def as_of_now(draft: Draft, unit: Unit) -> list[Unit]:
    """Units that remain of one that waited in the queue while others were placed and removed."""
    if unit.gang >= 0:
        return gang_units(draft, unit.gang)
    return [unit] if draft.node[unit.rows[0]] == PENDING else []


def order_of_service(draft: Draft, unit: Unit) -> Order:
    """Sort key of a unit; the least is served first."""
    shapes = [draft.shape(row) for row in unit.rows]
    gpu = sum(shape.total_gpu_milli for shape in shapes)
    cpu = 0 if gpu else sum(shape.cpu_milli for shape in shapes)
    had_its_turn = bool(draft.tried) and unit.label(draft.snapshot) in draft.tried
    return (-unit.priority, had_its_turn, -gpu, -cpu, unit.rows[0])


def namespace_of(draft: Draft, unit: Unit) -> str:
    """Namespace of a unit's pods."""
    snapshot = draft.snapshot
    name = snapshot.gangs[unit.gang].name if unit.gang >= 0 else snapshot.pods.names[unit.rows[0]]
    return name.rpartition("/")[0]


def gang_units(draft: Draft, gang: int) -> list[Unit]:
    """Pending part of a gang: one unit while the gang is below its minimum, pod by pod once it runs."""
    wanted = draft.snapshot.gangs[gang]
    rows = [row for row in draft.members(gang) if draft.node[row] == PENDING]
    if not rows:
        return []
    rows.sort(key=lambda row: (-draft.shape(row).total_gpu_milli, -draft.shape(row).cpu_milli, row))
    priority = int(draft.priority[rows[0]])
    need = wanted.min_members - len(members_running(draft, gang))
    if need <= 0:
        return [Unit(priority, (row,), 1, gang) for row in rows]
    return [Unit(priority, tuple(rows), need, gang)]
