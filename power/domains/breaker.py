"""Trip model of a breaker: heat builds up above the budget and dissipates below it, which bounds a burst."""

from bisect import bisect_left
from functools import lru_cache
from math import exp, inf, log

import numpy as np

from cluster.power import BreakerCurve


def opens_after_s(curve: BreakerCurve, over: float) -> float:
    """Seconds until a breaker opens that carries `over` times its budget; infinite at or below the budget.

    Between the points of the curve, time is interpolated log-log. Below the first point the line through the first two
    is extended, since a breaker that tolerates 10 % for ten minutes tolerates 5 % for longer, but not for ever. Beyond
    the last point the time of the last point applies.
    """
    if over <= 1:
        return inf
    if len(curve.over) == 1 or over >= curve.over[-1]:
        return curve.for_s[-1] if over >= curve.over[0] else inf
    right = max(1, bisect_left(curve.over, over))
    (x0, x1), (t0, t1) = curve.over[right - 1 : right + 1], curve.for_s[right - 1 : right + 1]
    slope = (log(t1) - log(t0)) / (log(x1) - log(x0))
    return exp(log(t0) + slope * (log(over) - log(x0)))


@lru_cache(maxsize=256)
def burst_share_s(curve: BreakerCurve, over: float) -> float:
    """Smallest energy above the budget that opens the breaker at any load up to `over`, in seconds of the budget.

    A smaller burst, however it is spread over time, does not open a cold breaker. Each part of the burst heats it by
    the part's energy divided by the energy that would open the breaker at that load, which is at least this value.
    """
    loads = np.linspace(1.0, max(over, 1.0 + 1e-6), 200)[1:]
    return min((float(load) - 1) * opens_after_s(curve, float(load)) for load in loads)
