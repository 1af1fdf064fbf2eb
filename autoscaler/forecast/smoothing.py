"""Exponential smoothing of whole series at once, equal to a recursion over their points."""

import numpy as np

from cluster.arrays import FloatArray


def smoothed(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Exponentially weighted means along the first axis, for each weight; shape (points, ..., weights).

    values: shape (points, ...); NaN changes nothing. The mean starts at the first number; NaN before it.
    weight: shape (weights,), of the newest value, in (0, 1].
    Computed in log2(points) passes: two neighbouring steps of a linear recursion are one linear step.
    """
    known = ~np.isnan(values)
    is_first = known & (np.cumsum(known, axis=0) == 1)
    gain = np.where(known[..., None], np.where(is_first[..., None], 1.0, weight), 0.0)
    kept, added = 1.0 - gain, gain * np.nan_to_num(values)[..., None]
    span = 1
    while span < len(values):
        added[span:] += kept[span:] * added[:-span]
        kept[span:] = kept[span:] * kept[:-span]
        span *= 2
    added[np.cumsum(known, axis=0) == 0] = np.nan
    return np.asarray(added)
