"""Bursts: how far a device may pass its lease for a moment, and why no breaker notices.

Prompts last about a second and draw half as much again as the tokens after them. A lease therefore limits the mean of
a device's draw: it may draw up to its highest limit while it has credit, joules that it did not use before. What a
device can draw above its lease in any stretch of time is at most `burst_j`. All bursts of a domain together are at most
half of what its breaker stands in one go, and credit comes back no faster than the breaker cools.
"""

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from power.domains.breaker import burst_share_s
from power.domains.tree import Tree

_OF_THE_BREAKER = 0.5
"""Half for a first burst, half for those that follow while the breaker still cools."""


def burst_of(tree: Tree, share: float) -> FloatArray:
    """Joules that each device may draw above its lease, shape (devices,); 0 below a limit without a breaker curve.

    share: 0..1 of what safety allows; 0 makes every lease a hard limit.
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
    """Credit after so long at this draw; all of one shape, one entry per device (times may be one for all).

    It falls by what was drawn above the lease, below 0 where an agent acted late. It comes back from what was left
    unused, at most `burst_j` in `refill_s`, and never beyond `burst_j`.
    """
    unused_j = (lease_w - draw_w) * for_s
    return np.minimum(credit_j + np.minimum(unused_j, burst_j * (for_s / refill_s)), burst_j)


def may_burst(credit_j: FloatArray, bursting: BoolArray, burst_j: FloatArray) -> BoolArray:
    """Who may draw above its lease now: with credit left, or after running out, with half of it back."""
    return (credit_j > np.where(bursting, 0.0, 0.5 * burst_j)) & (burst_j > 0)


def overdrawn(credit_j: FloatArray, burst_j: FloatArray) -> BoolArray:
    """Who drew more above its lease than any burst explains: by the controller's own account of its credit.

    A debt of two whole bursts is left to readings that are late and agents that look seldom: one alone was passed by an
    honest device in a simulated day.
    """
    return (burst_j > 0) & (credit_j < -2 * burst_j)


def suspected(credit_j: FloatArray, burst_j: FloatArray) -> BoolArray:
    """Who owes more than an honest device does before its agent looks: to be put to the test, no verdict.

    Honest devices owe up to a twenty-fifth of a burst before their agents look, and rarely more (0.07 in the hottest
    simulated hours of five fortnights). A test at its lease takes nothing from one that has no credit left.
    """
    return credit_j < -0.05 * burst_j
