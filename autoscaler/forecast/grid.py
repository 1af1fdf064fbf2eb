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


FRESH_STEPS = 1.5
"""Age of the last sample, in steps, up to which a forecast is fresh: the next sample may be a little late."""


def aged(quantiles: FloatArray, leads_s: FloatArray, age_s: float) -> FloatArray:
    """Quantiles at the leads, counted from now, of a forecast made at a last sample that is `age_s` old.

    Counted from the sample, leads are longer by its age. Over the leads, quantiles above the median may only rise and
    those below it only fall; beyond the last lead they move away from the median with the root of the lead. So every
    interval contains the one that was given for the same lead when the sample was younger.
    quantiles: shape (leads, levels), never falling along the levels; the result likewise, never negative.
    """
    upper, lower = LEVELS > 0.5, LEVELS < 0.5
    envelope = quantiles.copy()
    envelope[:, upper] = np.maximum.accumulate(quantiles[:, upper], axis=0)
    envelope[:, lower] = np.minimum.accumulate(quantiles[:, lower], axis=0)
    later_s = leads_s + age_s
    found = np.stack([np.interp(later_s, leads_s, column) for column in envelope.T], axis=-1)
    median = found[:, ~(upper | lower)]
    stretch = np.sqrt(np.maximum(later_s / leads_s[-1], 1.0))[:, None]
    return np.asarray(np.maximum(median + (found - median) * stretch, 0.0))
