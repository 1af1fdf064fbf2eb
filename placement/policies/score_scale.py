"""Constants and rounding that the published policies share."""

import numpy as np

from cluster.arrays import FloatArray

WIDEST_CPU_MILLI = 128_000
"""CPU of the widest openb server, the unit of fractions. Source: the FGD simulator's specification constants."""
WIDEST_GPU_MILLI = 8_000
"""GPU of the widest openb server. Source: as above."""


def whole_points(score: FloatArray) -> FloatArray:
    """A score in 0..1 as whole points of a hundred, truncated, like the results of kube-scheduler's score plugins.

    Truncation matters: it makes many nodes equal, and the first in order is then taken again and again, which keeps
    other nodes empty (FGD gains 0.9 points of allocation by it on openb).
    """
    # Sums of the same parts in another order differ in the last digit; without rounding first, that digit would decide.
    points: FloatArray = np.floor(np.round(score * 100.0, 9))
    return points
