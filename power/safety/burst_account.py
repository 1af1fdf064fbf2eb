"""The controller's account of bursts: how fast credit returns, and which devices drew more than bursts explain."""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of
from cluster.power import NEVER_S, PowerReadings
from power.domains.tree import Tree
from power.rules import PowerRules
from power.safety.burst_credit import credit_after, overdrawn


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
    over_s: FloatArray
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
        return BurstAccount(credit_j, account.back_s, lease_w, at_s, account.over_s), tree.nobody
    forgiven = exp(-float(for_s.max(initial=0.0)) / rules.debt_forgiven_s)
    credit_j = np.maximum(credit_j, 0.0) + np.minimum(credit_j, 0.0) * np.where(counts, forgiven, 1.0)
    found = overdrawn(credit_j, burst_j)
    return BurstAccount(np.where(found, 0.0, credit_j), account.back_s, lease_w, at_s, account.over_s), found


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
    over_s = np.where(drawn_w > budget_w, now_s, account.over_s)
    calm = (drawn_w < rules.calm_share * budget_w) & (now_s - over_s > rules.credit_back_s)
    soon = tree.least(np.where(calm & (not braked), 1.0, -1.0)) > 0
    back_s = np.where(soon, min(rules.calm_credit_back_s, rules.credit_back_s), rules.credit_back_s)
    if all_of(back_s == account.back_s):
        back_s = account.back_s  # the same array signals to later code that nothing changed
    return BurstAccount(account.credit_j, back_s, account.lease_w, account.at_s, over_s)
