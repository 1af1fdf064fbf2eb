"""Units of placement: pods that must be decided together, and the order in which they are served."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

import numpy as np

from cluster.snapshot import PENDING, Snapshot
from placement.budget import Budget
from placement.packing.draft import ENDING, PackingDraft, lacking, members_running


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


Order = tuple[float, int, bool, int, int, int]
"""Place in the order of service: the least is served first. First how far its team is beyond its share."""


class UnitQueue:
    """Units that wait for their turn, in the order of service; of each gang one entry, which stands for all its units.

    A gang joins in parts: its pending members, and those that a preemption stops while they wait. Whoever serves it
    looks at what is pending then (`as_of_now`).
    """

    def __init__(self, draft: PackingDraft) -> None:
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
        heappush(self._entries, (order_of_service(self._draft, unit), next(self._numbers), unit))

    @property
    def first(self) -> Order | None:
        """Order of the first unit; None when none waits."""
        return self._entries[0][0] if self._entries else None

    def next(self) -> Unit:
        """Removes and returns the first unit. Raises IndexError when none waits."""
        *_, unit = heappop(self._entries)
        self._gangs.discard(unit.gang)
        return unit

    def waiting(self) -> Iterator[Unit]:
        """Units that are still in the queue, in no particular order; of a gang, all of its units."""
        for *_, unit in self._entries:
            yield from as_of_now(self._draft, unit)


def pending_units(draft: PackingDraft) -> list[Unit]:
    """All unplaced units of the draft, in the order of service: priority, then GPUs, then place in the table.

    Where the last plan ended before all had a turn, those that had none come before the others of their priority.

    Large before small packs a batch well (first-fit decreasing); the order of equals is not guaranteed. Pods that
    request the same number of GPUs are not ordered by their CPU. Where not all fit, the pods that need most CPU would
    use it up, and GPUs would stay idle for lack of it (benchmarks/operator.py, overload: 97.4 % of the GPUs allocated,
    against 99.8 %).
    """
    waiting = (draft.node == PENDING) & (draft.resistance != ENDING)
    units = units_of(draft, np.flatnonzero(waiting).tolist())
    if draft.shares is not None:
        by_priority = sorted(units, key=lambda unit: order_of_service(draft, unit)[1:])
        draft.note_debts(unit.rows[: max(unit.need, 1)] for unit in by_priority)
    return sorted(units, key=lambda unit: order_of_service(draft, unit))


def units_of(draft: PackingDraft, rows: Iterable[int]) -> list[Unit]:
    """Units that these pending pods belong to, including the other pending members of their gangs."""
    pods = draft.snapshot.pods
    rows = list(rows)
    units = [Unit(int(draft.priority[row]), (row,), need=1) for row in rows if pods.gang[row] < 0]
    for gang in sorted({int(pods.gang[row]) for row in rows} - {-1}):
        units += gang_units(draft, gang)
    return units


def as_of_now(draft: PackingDraft, unit: Unit) -> list[Unit]:
    """Units that remain of one that waited in the queue while others were placed and removed."""
    if unit.gang >= 0:
        return gang_units(draft, unit.gang)
    return [unit] if draft.node[unit.rows[0]] == PENDING else []


def order_of_service(draft: PackingDraft, unit: Unit) -> Order:
    """Sort key of a unit; the least is served first: pods within the share of their team, then those that borrow."""
    pods = draft.snapshot.pods
    counts = Counter(pods.shape[list(unit.rows)].tolist())
    gpu = sum(pods.shapes[number].total_gpu_milli * count for number, count in counts.items())
    cpu = 0 if gpu else sum(pods.shapes[number].cpu_milli * count for number, count in counts.items())
    had_its_turn = bool(draft.tried) and unit.label(draft.snapshot) in draft.tried
    # Its place was kept in vain, so others come first.
    was_refused = any(pods.shapes[number].refused_on for number in counts)
    debt = 0.0 if draft.shares is None else draft.debt(unit.rows[: max(unit.need, 1)])
    return (debt, -unit.priority, had_its_turn or was_refused, -gpu, -cpu, unit.rows[0])


def namespace_of(draft: PackingDraft, unit: Unit) -> str:
    """Namespace of a unit's pods."""
    snapshot = draft.snapshot
    name = snapshot.gangs[unit.gang].name if unit.gang >= 0 else snapshot.pods.names[unit.rows[0]]
    return name.rpartition("/")[0]


def gang_units(draft: PackingDraft, gang: int) -> list[Unit]:
    """Pending part of a gang: one unit while the gang is below its minimum, pod by pod once it runs."""
    members = np.array(draft.members(gang), dtype=np.int64)
    rows = members[(draft.node[members] == PENDING) & (draft.resistance[members] != ENDING)].tolist()
    if not rows:
        return []
    if len({*draft.snapshot.pods.shape[rows].tolist()}) > 1:  # equal ones are in order
        rows.sort(key=lambda row: (-draft.shape(row).total_gpu_milli, -draft.shape(row).cpu_milli, row))
    priority = int(draft.priority[rows[0]])
    need = lacking(draft, gang)
    if need <= 0:
        return [Unit(priority, (row,), 1, gang) for row in rows]
    return [Unit(priority, tuple(_needed_first(draft, gang, rows)), need, gang)]


def _needed_first(draft: PackingDraft, gang: int, rows: list[int]) -> list[int]:
    """The pending members in the same order, but those that its groups need before those that could be spared."""
    wanted, names = draft.snapshot.gangs[gang], draft.snapshot.pods.names
    if not wanted.groups:
        return rows
    row_of = {names[row]: row for row in rows}
    running = [names[row] for row in members_running(draft, gang)]
    return [row_of[name] for name in wanted.needed_first(tuple(row_of), running)]


ROUNDS = 8
"""Rounds into which the work of one priority is divided. Chosen: where the work suffices for all, as nearly always,
one round of an eighth holds them, and their order is that of service; a flood takes an eighth before another pod."""
LEVEL_SHARE = 3 / 4
"""Fraction of the remaining work that one priority may use before lower ones have their turn. Chosen: lower priorities
go on, slowly, beside a flood of a higher one, whose pods take their room back by preemption."""


class FairQueue:
    """Units that wait, as `UnitQueue`, where each namespace has its share of the work of its priority.

    A tenant may create thousands of pods that each cost as much work as a node table. In one order for all of them, the
    work of a plan would end before the pods of anybody else had a turn. A namespace that has used its share of a round
    waits for the next one as a whole, however many of its units wait; where a priority has used its work, the rest of
    it waits for the end. Source: deficit round robin, Shreedhar and Varghese, SIGCOMM 1995, with examined places in
    place of bytes; it differs in that a round is served in the order of service.
    """

    def __init__(self, draft: PackingDraft, units: Iterable[Unit], budget: Budget) -> None:
        self._draft, self._budget = draft, budget
        self._queues: dict[str, UnitQueue] = {}
        self._heads: list[tuple[tuple[bool, float, int, int, Order], str]] = []
        """Heap of namespaces by the turns of their first units, as they were when they were noted."""
        self._levels: dict[int, tuple[float, float]] = {}
        """Work of each priority that had a turn, and a namespace's share of a round of it."""
        self._namespaces: defaultdict[int, set[str]] = defaultdict(set)
        self._used: defaultdict[tuple[int, str], float] = defaultdict(float)
        """Work that each namespace used at each priority."""
        self._spent: defaultdict[int, float] = defaultdict(float)
        """Work of each priority so far."""
        for unit in units:
            namespace = namespace_of(draft, unit)
            self._queues.setdefault(namespace, UnitQueue(draft)).add(unit)
            self._namespaces[unit.priority].add(namespace)
        for namespace in self._queues:
            self._note(namespace)

    def add(self, unit: Unit) -> None:
        namespace = namespace_of(self._draft, unit)
        self._queues.setdefault(namespace, UnitQueue(self._draft)).add(unit)
        self._note(namespace)

    def waiting(self) -> Iterator[Unit]:
        for queue in self._queues.values():
            yield from queue.waiting()

    def next(self) -> Unit | None:
        """Removes and returns the unit whose turn it is; None when none waits."""
        while self._heads:
            turn, namespace = heappop(self._heads)
            if turn == self._turn(namespace):
                unit = self._queues[namespace].next()
                if unit.priority not in self._levels:
                    work, sharers = self._budget.work, len(self._namespaces[unit.priority])
                    work *= LEVEL_SHARE if len(self._namespaces) > 1 else 1.0
                    self._levels[unit.priority] = work, work / (ROUNDS * sharers if sharers > 1 else 1)
                self._note(namespace)
                return unit
            self._note(namespace)
        return None

    def charge(self, unit: Unit, work: float) -> None:
        """Counts the work of a unit that had its turn."""
        self._used[unit.priority, namespace_of(self._draft, unit)] += work
        self._spent[unit.priority] += work

    def _note(self, namespace: str) -> None:
        if (turn := self._turn(namespace)) is not None:
            heappush(self._heads, (turn, namespace))

    def _turn(self, namespace: str) -> tuple[bool, float, int, int, Order] | None:
        """When the first unit of a namespace is served: at the end or before, debt, priority, the round, its order."""
        if (order := self._queues[namespace].first) is None:
            return None
        priority = -order[1]
        work, share = self._levels.get(priority, (math.inf, 0.0))
        round_ = int(self._used[priority, namespace] // share) if share else 0
        return self._spent[priority] >= work, order[0], order[1], round_, order
