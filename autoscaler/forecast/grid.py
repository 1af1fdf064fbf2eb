"""Leads and levels of forecasts, and the scale in which they are made."""

import numpy as np

from cluster.arrays import FloatArray, IntArray

LEVELS: FloatArray = np.array(
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995]
)
"""Levels of the quantiles. A window of 1,440 residuals holds seven beyond the last: there is no more to learn."""
LEVELS.setflags(write=False)
_LEADS_S = (60.0, 120.0, 180.0, 300.0, 420.0, 600.0, 900.0, 1800.0)
_FIRST_STEPS = 3
"""Steps that are leads in any case: those of a coarse series are its only ones."""


def lead_steps(step_s: float) -> IntArray:
    """Leads of a series, in its steps, rising: 1, 2, 3, 5, 7, 10, 15 and 30 at a minute."""
    wanted = np.rint(np.array(_LEADS_S) / step_s).astype(np.int64)
    return np.unique(np.concatenate([np.arange(1, _FIRST_STEPS + 1), wanted[wanted >= 1]]))


def to_root(values: FloatArray) -> FloatArray:
    """Square root, the scale in which forecasts are made.

    It makes the spread of arrivals (which grows with the root of the load) even, is defined at zero, and has no unit
    to choose. On the public traces it calibrates as well as the logarithm on busy series, and better on sparse ones.
    """
    return np.asarray(np.sqrt(values))


def from_root(roots: FloatArray) -> FloatArray:
    """Inverse of `to_root`; what lies below zero is zero."""
    return np.asarray(np.maximum(roots, 0.0) ** 2)


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


LATER_S = 6 * 3600.0
"""Age of the last sample up to which errors grow. Chosen: what is known of the level is lost by then."""
GROWTH = 4.0
"""Growth of errors up to there in a series of which nothing is known. Chosen; public traces have 1.3 to 9."""
FRESH_STEPS = 1.5
"""Age of the last sample, in steps, up to which a forecast is fresh: the next sample may be a little late."""


def aged(roots: FloatArray, leads_s: FloatArray, age_s: float, growth: FloatArray) -> FloatArray:
    """Quantiles at the leads, counted from now, of a forecast made at a last sample that is `age_s` old.

    Medians are those of leads that are longer by the age, and from the last lead on the last one. The distance from
    them grows as errors do without news: with the root of the age.
    roots: shape (leads, levels), never falling along the levels; the result likewise.
    growth: shape (leads,), distance at the age `LATER_S` and beyond, in that of a fresh forecast.
    """
    centre = roots[:, LEVELS == 0.5]
    factor = 1 + (growth - 1) * np.sqrt(min(age_s / LATER_S, 1.0))
    later = np.interp(leads_s + age_s, leads_s, centre[:, 0])
    return np.asarray(later[:, None] + (roots - centre) * factor[:, None])
