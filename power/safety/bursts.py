"""Burst credit: how far a device may exceed its lease for a moment without opening a breaker.

Prompts last about a second and draw one and a half times as much as the tokens after them. A lease therefore limits the
mean of a device's draw. The device may draw up to its highest limit while it has credit: joules that it did not use
before. In any stretch of time it can draw at most `burst_j` above its lease. All bursts of a domain together are at
most half of what its breaker tolerates at once, and credit is restored no faster than the breaker cools.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, log

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of
from cluster.power import NEVER_S, BreakerCurve, PowerReadings
from power.rules import PowerRules
from power.tree import Tree


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


_OF_THE_BREAKER = 0.5
"""Fraction of the breaker's tolerance for a first burst; the other half is for bursts that follow while it still
cools."""


def burst_of(tree: Tree, share: float) -> FloatArray:
    """Energy in joules that each device may draw above its lease, shape (devices,); 0 for classes with hard limits, and
    below a limit without a breaker curve.

    share: fraction used of what is safe, 0..1; 0 makes every lease a hard limit.
    Every device gets the same time at its highest limit, as long as the tightest of its breakers allows.
    """
    table = tree.table
    may = table.devices.managed & np.array([each.bursts for each in table.classes])[table.devices.power_class]
    above_w = np.where(may, table.devices.max_w - table.devices.min_w, 0.0)
    span_w = tree.burden * above_w
    through_w = tree.through(span_w)
    for_s = np.zeros(tree.limits)
    for limit, domain in enumerate(tree.limit.tolist()):
        curve = int(table.domains.curve[domain])
        if curve >= 0 and through_w[limit] > 0:
            over = 1 + through_w[limit] / tree.budget_w[limit]
            energy_j = burst_share_s(table.curves[curve], float(over)) * tree.budget_w[limit]
            for_s[limit] = share * _OF_THE_BREAKER * energy_j / through_w[limit]
    seconds = tree.least(for_s)
    return np.where(np.isfinite(seconds), seconds, 0.0) * above_w


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


@dataclass(frozen=True, slots=True, eq=False)
class BurstAccount:
    """Account of bursts; shape (devices,) each, unless stated otherwise."""

    credit_j: FloatArray
    """Energy in joules that each device may still draw above its lease."""
    back_s: FloatArray
    """Time in which used credit is restored."""
    lease_w: FloatArray
    """Limit that each device reported as enforced when its draw was last counted."""
    at_s: FloatArray
    """Instant up to which draws are counted."""
    exceeded_s: FloatArray
    """Instant when the draw last exceeded the budget, shape (limits,)."""


def first_account(tree: Tree, rules: PowerRules, burst_j: FloatArray) -> BurstAccount:
    back_s, at_s = np.full(tree.devices, rules.credit_back_s), np.full(tree.devices, NEVER_S)
    return BurstAccount(burst_j, back_s, tree.table.devices.max_w, at_s, np.full(tree.limits, NEVER_S))


def counted(
    account: BurstAccount, tree: Tree, rules: PowerRules, burst_j: FloatArray, readings: PowerReadings
) -> tuple[BurstAccount, BoolArray]:
    """The account after these readings, and the devices that drew more above their leases than any burst explains.

    A draw is the mean since the previous reading, so it counts against the higher lease of the two, plus the errors of
    limiters and meters. The debt of an honest device is therefore at most what it draws until its agent reacts. Small
    debts are forgiven with time. A device that was found starts again without debt.
    """
    devices = tree.table.devices
    for_s = readings.at_s - account.at_s
    counts = (for_s > 0) & (for_s <= rules.stale_s)
    lease_w = np.minimum(readings.cap_w, devices.default_w)
    may_draw_w = np.maximum(lease_w, account.lease_w) * (tree.overshoot * (1 + rules.tolerance_share))
    if not all_of(counts):
        for_s = np.where(counts, for_s, 0.0)
        lease_w = np.where(counts, lease_w, account.lease_w)
    credit_j = credit_after(account.credit_j, readings.draw_w, may_draw_w, burst_j, for_s, account.back_s)
    at_s = np.maximum(account.at_s, readings.at_s)
    if credit_j[credit_j.argmin()] >= 0:  # no device has a debt: most steps end here
        return BurstAccount(credit_j, account.back_s, lease_w, at_s, account.exceeded_s), tree.nobody
    forgiven = exp(-float(for_s.max(initial=0.0)) / rules.debt_forgiven_s)
    credit_j = np.maximum(credit_j, 0.0) + np.minimum(credit_j, 0.0) * np.where(counts, forgiven, 1.0)
    found = overdrawn(credit_j, burst_j)
    return BurstAccount(np.where(found, 0.0, credit_j), account.back_s, lease_w, at_s, account.exceeded_s), found


def restoring(
    account: BurstAccount,
    tree: Tree,
    rules: PowerRules,
    drawn_w: FloatArray,
    budget_w: FloatArray,
    now_s: float,
    *,
    braked: bool,
) -> BurstAccount:
    """The account with the time in which credit is restored: soon while a breaker is surely cold, else as it cools.

    drawn_w, budget_w: shape (limits,). A breaker is cold where the budget was not exceeded for as long as it takes to
    cool. While a hardware brake holds, nothing is restored soon: the row only looks calm.
    """
    exceeded_s = np.where(drawn_w > budget_w, now_s, account.exceeded_s)
    calm = (drawn_w < rules.calm_share * budget_w) & (now_s - exceeded_s > rules.credit_back_s)
    soon = tree.least(np.where(calm & (not braked), 1.0, -1.0)) > 0
    back_s = np.where(soon, min(rules.calm_credit_back_s, rules.credit_back_s), rules.credit_back_s)
    if all_of(back_s == account.back_s):
        back_s = account.back_s  # the same array signals to later code that nothing changed
    return BurstAccount(account.credit_j, back_s, account.lease_w, account.at_s, exceeded_s)
