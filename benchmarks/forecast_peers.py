"""Peers of the forecast: the last value, or an EWMA, plus the quantiles of their own last errors."""

import numpy as np

from autoscaler.forecast.grid import LEVELS
from autoscaler.forecast.linear import smoothed
from cluster.arrays import FloatArray

PEERS = {"naive + conformal": 1.0, "ewma + conformal": 0.3}
"""Weight of the newest value."""
_EVERY = 10
"""Points after which the quantiles of a window are taken again."""
_FEWEST = 30


def peer_quantiles(values: FloatArray, weight: float, lead: int, window: int, first: int) -> FloatArray:
    """Quantiles for each point from `first` on that were known `lead` points before it, shape (points, levels).

    The centre is the exponentially weighted mean; its distribution that of the last `window` errors at this lead, as
    they are, cut off at zero. NaN before `first`, and where the point before was a gap.
    """
    means = smoothed(values, np.array([weight]))[:, 0]
    means[np.isnan(values)] = np.nan
    stated = np.concatenate([np.full(lead, np.nan), means[:-lead]])
    errors = values - stated
    found = np.full((len(values), len(LEVELS)), np.nan)
    for start in range(first, len(values), _EVERY):
        known = errors[: start - lead + 1]
        last = known[~np.isnan(known)][-window:]
        if len(last) >= _FEWEST:
            rows = slice(start, start + _EVERY)
            found[rows] = np.maximum(stated[rows, None] + np.quantile(last, LEVELS), 0.0)
    return found
