"""Collector outages: zeros in the middle of a busy series that mean "not measured"."""

import numpy as np

from autoscaler.series.regular import Values

BUSY_SAMPLES = 60
"""Accepted samples before a zero that show whether the series was busy; half of them must exist."""
BUSY_FRACTION = 0.2
"""A series is busy where 19 of 20 of these samples are at least this fraction of their median. A load that is ever
close to zero by itself fails this, and its zeros count."""
LONGEST_S = 7200.0
"""Length from which a run of zeros is a load of zero. The collector outages of ServeGen's production traces last up
to 110 minutes."""


def is_busy(recent: Values) -> bool:
    """Whether a zero right after these samples cannot be a load: whole-window zeros of a collector that failed.

    recent: shape (samples,), the last accepted samples, without gaps.
    """
    if len(recent) < BUSY_SAMPLES // 2:
        return False
    low, median = np.quantile(recent[-BUSY_SAMPLES:], (0.05, 0.5))
    return bool(median > 0 and low >= BUSY_FRACTION * median)
