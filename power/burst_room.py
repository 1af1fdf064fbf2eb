"""How far bursts may go now, how fast their credit comes back, and who drew more than any burst explains.

A burst is worth most when the row is calm and harms most when many begin together on a full one. So the nearer a domain
draws to its budget, measured in the largest rise that it showed within a control delay, the lower bursts may go: first
those of low classes, up to what the device needs in the long run, then everyone's; at last nobody passes its lease.
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from cluster.power import NEVER_S, PowerReadings
from power.burst import credit_after, overdrawn
from power.rules import PowerRules
from power.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class BurstAccount:
    """The controller's own account of bursts; shape (devices,) each."""

    credit_j: FloatArray
    """What each device may still draw above its lease."""
    back_s: FloatArray
    """In so long credit that was used up comes back."""
    to_w: FloatArray
    """No burst passes this limit."""
    at_s: FloatArray
    """Until when draws are counted."""


def first_account(tree: Tree, rules: PowerRules, burst_j: FloatArray) -> BurstAccount:
    most_w = tree.table.devices.max_w
    return BurstAccount(burst_j, np.full(tree.devices, rules.credit_back_s), most_w, np.full(tree.devices, NEVER_S))


def counted(
    account: BurstAccount, rules: PowerRules, burst_j: FloatArray, highest_w: FloatArray, readings: PowerReadings
) -> tuple[BurstAccount, BoolArray]:
    """The account after these readings, and who drew more above its lease than any burst explains.

    highest_w: shape (devices,), what each device draws at most without a lease. Readings are late and agents look
    seldom: small debts are forgiven with time, a liar's grow faster. Who was found starts again without debt.
    """
    for_s = readings.at_s - account.at_s
    counts = (for_s > 0) & (for_s <= rules.stale_s)
    for_s = np.where(counts, for_s, 0.0)
    lease_w = np.minimum(readings.cap_w, highest_w)
    drawn_j = credit_after(account.credit_j, readings.draw_w, lease_w, burst_j, for_s, account.back_s)
    forgiven = exp(-float(for_s.max(initial=0.0)) / rules.debt_forgiven_s)
    credit_j = np.where(counts, np.maximum(drawn_j, 0.0) + np.minimum(drawn_j, 0.0) * forgiven, account.credit_j)
    found = overdrawn(credit_j, burst_j)
    at_s = np.maximum(account.at_s, readings.at_s)
    return BurstAccount(np.where(found, 0.0, credit_j), account.back_s, account.to_w, at_s), found


def bounded(
    account: BurstAccount,
    tree: Tree,
    rules: PowerRules,
    *,
    drawn_w: FloatArray,
    spike_w: FloatArray,
    budget_w: FloatArray,
    cap_w: FloatArray,
    usual_w: FloatArray,
) -> BurstAccount:
    """The account with bounds on the bursts that begin now.

    drawn_w, spike_w, budget_w: shape (limits,): the draw, its largest rise within a control delay, the budget.
    cap_w, usual_w: shape (devices,): each lease, and what each device needs while it works.
    """
    most_w = tree.table.devices.max_w
    calm = tree.least(rules.calm_share * budget_w - drawn_w) > 0
    back_s = np.where(calm, np.minimum(rules.calm_credit_back_s, rules.credit_back_s), rules.credit_back_s)
    free_w = budget_w - drawn_w
    to_w = most_w
    if (free_w < rules.low_bursts_room * spike_w).any():
        low = (tree.least(free_w - rules.low_bursts_room * spike_w) < 0) & (tree.rank > 0)
        narrow = low | (tree.least(free_w - rules.bursts_room * spike_w) < 0)
        none = tree.least(free_w - rules.no_bursts_room * spike_w) < 0
        to_w = np.where(none, cap_w, np.where(narrow, np.minimum(np.maximum(usual_w, cap_w), most_w), most_w))
    return BurstAccount(account.credit_j, back_s, to_w, account.at_s)
