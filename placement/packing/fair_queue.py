"""Order of service when work is short: by priority, and among equals in rounds, so that no namespace takes all turns.

A tenant may create thousands of pods that each cost as much work as a node table. In one order for all of them, the
work of a plan would end before the pods of anybody else had a turn. Source: deficit round robin, Shreedhar and
Varghese, SIGCOMM 1995, with examined places in place of bytes; it differs in that a round is served in the order of
service.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from placement.budget import Budget
from placement.packing.draft import Draft
from placement.packing.pending_units import Order, Queue, Unit, namespace_of

ROUNDS = 8
"""Rounds into which the work of one priority is divided. Chosen: where the work suffices for all, as nearly always,
one round of an eighth holds them, and their order is that of service; a flood takes an eighth before another pod."""
LEVEL_SHARE = 3 / 4
"""Fraction of the remaining work that one priority may use before lower ones have their turn. Chosen: lower priorities
go on, slowly, beside a flood of a higher one, whose pods take their room back by preemption."""


class FairQueue:
    """Units that wait, as `Queue`, where each namespace has its share of the work of its priority.

    A namespace that has used its share of a round rests as a whole, however many of its units wait.
    """

    def __init__(self, draft: Draft, units: Iterable[Unit], budget: Budget) -> None:
        self._draft, self._budget = draft, budget
        self._queues: dict[str, Queue] = {}
        self._heads: list[tuple[Order, str]] = []
        """Heap of the first units' orders with their namespaces; what no longer holds is left in it."""
        self._resting: set[str] = set()
        """Namespaces that have used their share of this round."""
        self._last = Queue(draft)
        self._namespaces: defaultdict[int, set[str]] = defaultdict(set)
        for unit in units:
            namespace = namespace_of(draft, unit)
            self._queues.setdefault(namespace, Queue(draft)).add(unit)
            self._namespaces[unit.priority].add(namespace)
        for namespace in self._queues:
            self._wake(namespace)
        self._priority: int | None = None
        self._used: defaultdict[str, float] = defaultdict(float)
        """Work that each namespace used at the present priority."""
        self._allowance = self._quantum = self._of_level = 0.0

    def add(self, unit: Unit) -> None:
        namespace = namespace_of(self._draft, unit)
        self._queues.setdefault(namespace, Queue(self._draft)).add(unit)
        if namespace not in self._resting:
            self._wake(namespace)

    def waiting(self) -> Iterator[Unit]:
        for queue in (*self._queues.values(), self._last):
            yield from queue.waiting()

    def next(self) -> Unit | None:
        """Removes and returns the unit whose turn it is; None when none waits."""
        while True:
            head = self._head()
            ends = head is None or (self._priority is not None and -head[0][0] < self._priority)
            if ends and self._resting:
                self._end_round()
                continue
            if head is None:
                return self._last.next() if self._last.first else None
            (minus_priority, *_), namespace = head
            if -minus_priority != self._priority:
                self._begin_level(-minus_priority)
            heappop(self._heads)
            if self._used[namespace] < self._allowance:
                unit = self._queues[namespace].next()
                self._wake(namespace)
                return unit
            self._resting.add(namespace)

    def charge(self, unit: Unit, work: float) -> None:
        """Counts the work of a unit that had its turn."""
        self._used[namespace_of(self._draft, unit)] += work

    def _head(self) -> tuple[Order, str] | None:
        """Order of the first unit of a namespace that does not rest, with the namespace; None when there is none."""
        while self._heads:
            order, namespace = self._heads[0]
            if namespace not in self._resting and self._queues[namespace].first == order:
                return order, namespace
            heappop(self._heads)
        return None

    def _wake(self, namespace: str) -> None:
        first = self._queues[namespace].first
        if first is not None:
            heappush(self._heads, (first, namespace))

    def _end_round(self) -> None:
        """Namespaces that rest have another round, or, where this priority has used its work, their units of it wait
        for the end.
        """
        resting, self._resting = sorted(self._resting), set()
        has_more = sum(self._used.values()) < self._of_level
        for namespace in resting:
            queue = self._queues[namespace]
            while not has_more and queue.first is not None and -queue.first[0] == self._priority:
                self._last.add(queue.next())
            self._wake(namespace)
        self._allowance += self._quantum

    def _begin_level(self, priority: int) -> None:
        self._priority = priority
        self._used.clear()
        others = len(self._namespaces) > 1
        self._of_level = self._budget.work * (LEVEL_SHARE if others else 1.0)
        shared_by = max(1, len(self._namespaces[priority]))
        self._quantum = self._of_level / ROUNDS / shared_by
        # Alone, a namespace has nobody to share with.
        self._allowance = self._quantum if shared_by > 1 else self._of_level
