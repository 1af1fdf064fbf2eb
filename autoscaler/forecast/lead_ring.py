"""Lead ring: what was stated at the last slots, so that it can be compared with what came."""

import numpy as np

from cluster.arrays import FloatArray, IntArray


class LeadRing:
    """Statements of the last slots, by lead; NaN where nothing was stated."""

    __slots__ = ("_columns", "_leads", "_rows", "_slot")

    def __init__(self, leads: IntArray, shape: tuple[int, ...]) -> None:
        self._leads, self._columns = leads, np.arange(len(leads))
        self._rows = np.full((int(leads.max()) + 1, len(leads), *shape), np.nan)
        self._slot = -1

    def advance(self, slot: int) -> FloatArray:
        """Moves to a later slot; returns what was stated for it at each lead, shape (leads, ...)."""
        size = len(self._rows)
        passed = np.arange(max(self._slot + 1, slot - size + 1), slot + 1)
        self._rows[passed % size] = np.nan
        self._slot = slot
        return np.asarray(self._rows[(slot - self._leads) % size, self._columns])

    def state(self, statement: FloatArray) -> None:
        """What is stated at the present slot, shape (leads, ...)."""
        self._rows[self._slot % len(self._rows)] = statement

    def restore(self, statements: FloatArray, slot: int) -> None:
        """State after a history, shape (slots, leads, ...), that ends at this slot."""
        kept = statements[-len(self._rows) :]
        self._rows[np.arange(slot - len(kept) + 1, slot + 1) % len(self._rows)] = kept
        self._slot = slot


def due(statements: FloatArray, leads: IntArray) -> FloatArray:
    """What was stated for each point of a history; shape as the statements, (points, leads, ...)."""
    found = np.full_like(statements, np.nan)
    for n, lead in enumerate(leads.tolist()):
        found[lead:, n] = statements[:-lead, n]
    return found
