"""Stale forecasts: what the last forecast still says when no sample has come since."""

import numpy as np

from autoscaler.forecast.grid import LEVELS
from cluster.arrays import FloatArray

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
