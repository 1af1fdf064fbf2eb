"""Disruption budgets: how many pods of a set may be stopped now, and the count of those that a plan stops."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.arrays import Names


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """PodDisruptionBudget, as far as the choice of pods to stop needs it."""

    name: str
    """`namespace/name`."""
    allowed: int
    """Number of its pods that may be stopped now."""
    pods: tuple[str, ...]
    """Running pods that it covers (`namespace/name`)."""


class BudgetsLeft:
    """What budgets still allow while a plan stops pods, by rows of the table of pods.

    A pod of two budgets cannot be stopped at all: the Eviction API refuses it.
    Source: Kubernetes documentation, "API-initiated Eviction".
    """

    def __init__(self, budgets: Sequence[DisruptionBudget], names: Names) -> None:
        self.budgets = budgets
        self._of: defaultdict[int, list[int]] = defaultdict(list)
        """Numbers of the budgets that cover a row."""
        self._left = [each.allowed for each in budgets]
        self._stopped = set[int]()
        for number, budget in enumerate(budgets):
            for name in budget.pods:
                if (row := names.row(name)) is not None:
                    self._of[row].append(number)

    def covers(self, row: int) -> bool:
        return row in self._of

    def left_of(self, row: int) -> list[tuple[str, int]]:
        """The budgets that cover a row, with what each still allows."""
        return [(f"budget {self.budgets[each].name}", self._left[each]) for each in self._of.get(row, ())]

    @property
    def covered(self) -> list[int]:
        """Rows of all pods that have a budget."""
        return [*self._of]

    def count(self, row: int, *, stopped: bool) -> None:
        """Counts a pod as stopped, or no longer."""
        if stopped != (row in self._stopped):
            (self._stopped.add if stopped else self._stopped.discard)(row)
            for number in self._of.get(row, ()):
                self._left[number] -= 1 if stopped else -1

    def forbidding(self, rows: Iterable[int]) -> DisruptionBudget | None:
        """Budget that forbids to stop these pods, together with those that are counted; None if none does."""
        asked: Counter[int] = Counter()
        for row in rows:
            numbers = self._of.get(row, ())
            asked.update(dict.fromkeys(numbers, int(row not in self._stopped)))
            if len(numbers) > 1:
                return self.budgets[numbers[0]]
        return next((self.budgets[number] for number, count in asked.items() if count > self._left[number]), None)

    def blocked(self) -> list[int]:
        """Rows of the pods that may not be stopped even alone."""
        return [row for row in self._of if self.forbidding((row,)) is not None]
