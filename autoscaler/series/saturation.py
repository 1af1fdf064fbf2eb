"""Saturated samples: lower bounds, which say something only where they exceed what was known."""

import numpy as np

from autoscaler.series.regular import Series
from cluster.arrays import FloatArray


def informative(series: Series) -> FloatArray:
    """Values of a series without the lower bounds that say nothing: those below the last informative value."""
    values = series.values.astype(np.float64)
    if not series.is_censored.any():
        return values
    last = 0.0
    for row, (value, is_censored) in enumerate(zip(values.tolist(), series.is_censored.tolist(), strict=True)):
        if is_censored and value < last:
            values[row] = np.nan
        elif value == value:  # a number
            last = value
    return values
