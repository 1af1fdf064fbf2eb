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
