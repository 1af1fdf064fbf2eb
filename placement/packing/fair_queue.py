"""Order of service when work is short: by priority, and among equals in rounds, so that no namespace takes all turns.

A tenant may create thousands of pods that each cost as much work as a node table. In one order for all of them, the
work of a plan would end before the pods of anybody else had a turn. Source: deficit round robin, Shreedhar and
Varghese, SIGCOMM 1995, with examined places in place of bytes; it differs in that a round is served in the order of
service.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from placement.budget import Budget
from placement.packing.draft import Draft
from placement.packing.pending_units import Queue, Unit, namespace_of

ROUNDS = 8
"""Rounds into which the work of one priority is divided. Chosen: where the work suffices for all, as nearly always,
one round of an eighth holds them, and their order is that of service; a flood takes an eighth before another pod."""
LEVEL_SHARE = 3 / 4
"""Fraction of the remaining work that one priority may use before lower ones have their turn. Chosen: lower priorities
go on, slowly, beside a flood of a higher one, whose pods take their room back by preemption."""


class FairQueue:
    """Units that wait, as `Queue`, where each namespace has its share of the work of its priority."""

    def __init__(self, draft: Draft, units: Iterable[Unit], budget: Budget) -> None:
        self._draft, self._budget = draft, budget
        waiting = list(units)
        self._now = Queue(draft, waiting)
        self._next_round, self._last = Queue(draft), Queue(draft)
        self._namespaces: defaultdict[int, set[str]] = defaultdict(set)
        for unit in waiting:
            self._namespaces[unit.priority].add(namespace_of(draft, unit))
        self._priority: int | None = None
        self._used: defaultdict[str, float] = defaultdict(float)
        """Work that each namespace used at the present priority."""
        self._allowance = self._quantum = self._of_level = 0.0

    def add(self, unit: Unit) -> None:
        self._now.add(unit)

    def waiting(self) -> Iterator[Unit]:
        for queue in (self._now, self._next_round, self._last):
            yield from queue.waiting()

    def next(self) -> Unit | None:
        """Removes and returns the unit whose turn it is; None when none waits."""
        while True:
            unit = self._now.next()
            if unit is None or (self._priority is not None and unit.priority < self._priority):
                if self._begins_round():
                    if unit is not None:
                        self._now.add(unit)
                    continue
                if unit is None:
                    return self._last.next()
            if unit.priority != self._priority:
                self._begin_level(unit.priority)
            if self._used[namespace_of(self._draft, unit)] < self._allowance:
                return unit
            self._next_round.add(unit)

    def charge(self, unit: Unit, work: float) -> None:
        """Counts the work of a unit that had its turn."""
        self._used[namespace_of(self._draft, unit)] += work

    def _begins_round(self) -> bool:
        """Whether units of this priority have another round now; where it has used its work, they wait for the end."""
        deferred = self._drain(self._next_round)
        if not deferred:
            return False
        has_more = sum(self._used.values()) < self._of_level
        for unit in deferred:
            (self._now if has_more else self._last).add(unit)
        self._allowance += self._quantum
        return has_more

    def _begin_level(self, priority: int) -> None:
        self._priority = priority
        self._used.clear()
        others = len(self._namespaces) > 1
        self._of_level = self._budget.work * (LEVEL_SHARE if others else 1.0)
        shared_by = max(1, len(self._namespaces[priority]))
        self._quantum = self._of_level / ROUNDS / shared_by
        # Alone, a namespace has nobody to share with.
        self._allowance = self._quantum if shared_by > 1 else self._of_level

    @staticmethod
    def _drain(queue: Queue) -> list[Unit]:
        units = []
        while (unit := queue.next()) is not None:
            units.append(unit)
        return units
