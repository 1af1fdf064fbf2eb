"""Regular series: a quantity at equal steps, with gaps and lower bounds marked."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.arrays import BoolArray, FloatArray

Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Values at equal steps; read-only. Plain arrays, so that it crosses to another process as it is."""

    start_s: float
    """Instant of the first value, seconds since the epoch."""
    step_s: float
    values: Values
    """Shape (points,), in the quantity's unit, never negative; NaN where nothing was measured."""
    is_censored: BoolArray
    """Shape (points,): the value is a lower bound, because what was measured was saturated."""

    @property
    def at_s(self) -> FloatArray:
        """Instant of each value, shape (points,)."""
        return np.asarray(self.start_s + self.step_s * np.arange(len(self.values)), dtype=np.float64)


def regular(start_s: float, step_s: float, values: FloatArray) -> Series:
    """Series of values that are regular already, none of them censored; negative and infinite ones become gaps."""
    clean = np.array(values, dtype=np.float32)
    clean[~(clean >= 0) | np.isinf(clean)] = np.nan
    is_censored = np.zeros(len(clean), dtype=np.bool_)
    clean.setflags(write=False)
    is_censored.setflags(write=False)
    return Series(start_s, step_s, clean, is_censored)
