"""What a breaker stands: heat that gathers above the budget and leaves below it, and how large a burst may be."""

from math import exp, inf, log

import numpy as np

from cluster.power import BreakerCurve


def opens_after_s(curve: BreakerCurve, over: float) -> float:
    """Seconds until a breaker opens that carries so many times its budget; infinite at or below the budget.

    Between points time falls log-log. Below the first point the line of the first two goes on, since a breaker that
    stands 10 % for ten minutes stands 5 % for longer, not for ever; beyond the last point it is that of the last.
    """
    if over <= 1:
        return inf
    if len(curve.over) == 1 or over >= curve.over[-1]:
        return curve.for_s[-1] if over >= curve.over[0] else inf
    right = max(1, int(np.searchsorted(curve.over, over)))
    (x0, x1), (t0, t1) = curve.over[right - 1 : right + 1], curve.for_s[right - 1 : right + 1]
    slope = (log(t1) - log(t0)) / (log(x1) - log(x0))
    return exp(log(t0) + slope * (log(over) - log(x0)))


def burst_share_s(curve: BreakerCurve, over: float) -> float:
    """The smallest energy above the budget that opens the breaker at any load up to `over`, in seconds of the budget.

    A burst of less, however it is spread, does not open a cold breaker: each part of it heats by its energy over the
    energy that would open the breaker at that load, which is no smaller.
    """
    loads = np.linspace(1.0, max(over, 1.0 + 1e-6), 200)[1:]
    return min((float(load) - 1) * opens_after_s(curve, float(load)) for load in loads)
