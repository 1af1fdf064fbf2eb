"""Burst credit: how far a device may exceed its lease for a moment without opening a breaker.

Prompts last about a second and draw one and a half times as much as the tokens after them. A lease therefore limits the
mean of a device's draw. The device may draw up to its highest limit while it has credit: joules that it did not use
before. In any stretch of time it can draw at most `burst_j` above its lease. All bursts of a domain together are at
most half of what its breaker tolerates at once, and credit is restored no faster than the breaker cools.
"""

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from power.domains.breaker import burst_share_s
from power.domains.tree import Tree

_OF_THE_BREAKER = 0.5
"""Fraction of the breaker's tolerance for a first burst; the other half is for bursts that follow while it still
cools."""


def burst_of(tree: Tree, share: float) -> FloatArray:
    """Energy in joules that each device may draw above its lease, shape (devices,); 0 below a limit without a breaker
    curve.

    share: fraction used of what is safe, 0..1; 0 makes every lease a hard limit.
    Every device gets the same time at its highest limit, as long as the tightest of its breakers allows.
    """
    table = tree.table
    span_w = tree.burden * np.where(table.devices.managed, table.devices.max_w - table.devices.min_w, 0.0)
    through_w = tree.through(span_w)
    for_s = np.zeros(tree.limits)
    for limit, domain in enumerate(tree.limit.tolist()):
        curve = int(table.domains.curve[domain])
        if curve >= 0 and through_w[limit] > 0:
            over = 1 + through_w[limit] / tree.budget_w[limit]
            energy_j = burst_share_s(table.curves[curve], float(over)) * tree.budget_w[limit]
            for_s[limit] = share * _OF_THE_BREAKER * energy_j / through_w[limit]
    seconds = tree.least(for_s)
    return np.where(np.isfinite(seconds), seconds, 0.0) * (table.devices.max_w - table.devices.min_w)


def credit_after(
    credit_j: FloatArray,
    draw_w: FloatArray,
    lease_w: FloatArray,
    burst_j: FloatArray,
    for_s: FloatArray | float,
    refill_s: FloatArray | float,
) -> FloatArray:
    """Credit after `for_s` seconds at this draw; all arrays of one shape, one entry per device (times may be scalars).

    Credit falls by what was drawn above the lease, below 0 where an agent acted late. It is restored from unused power,
    at most `burst_j` in `refill_s`, and never beyond `burst_j`.
    """
    unused_j = (lease_w - draw_w) * for_s
    return np.minimum(credit_j + np.minimum(unused_j, burst_j * (for_s / refill_s)), burst_j)


def overdrawn(credit_j: FloatArray, burst_j: FloatArray) -> BoolArray:
    """Devices that drew more above their leases than any burst explains, by the controller's own account of their
    credit.

    A debt of up to two whole bursts is attributed to late readings and to agents that check rarely: a debt of one burst
    was exceeded by an honest device in a simulated day.
    """
    return (burst_j > 0) & (credit_j < -2 * burst_j)
