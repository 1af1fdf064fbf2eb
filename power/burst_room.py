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

_MEANT_W = 1.0
"""Bounds that differ by less are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class BurstAccount:
    """The controller's own account of bursts; shape (devices,) each."""

    credit_j: FloatArray
    """What each device may still draw above its lease."""
    back_s: FloatArray
    """In so long credit that was used up comes back."""
    to_w: FloatArray
    """No burst passes this limit."""
    lease_w: FloatArray
    """What each device said to be held to when its draw was last counted."""
    at_s: FloatArray
    """Until when draws are counted."""
    lifted_s: float
    """When bounds were last lifted for devices that waited for it."""
    bounds: bool
    """Whether any burst is bounded."""


def first_account(tree: Tree, rules: PowerRules, burst_j: FloatArray) -> BurstAccount:
    most_w = tree.table.devices.max_w
    back_s, at_s = np.full(tree.devices, rules.credit_back_s), np.full(tree.devices, NEVER_S)
    return BurstAccount(burst_j, back_s, most_w, most_w, at_s, NEVER_S, bounds=False)


def counted(
    account: BurstAccount, tree: Tree, rules: PowerRules, burst_j: FloatArray, readings: PowerReadings
) -> tuple[BurstAccount, BoolArray]:
    """The account after these readings, and who drew more above its lease than any burst explains.

    A draw is the mean since the reading before, so it counts against the higher lease of both, with what limiters and
    meters err by: an honest device is in debt by no more than what it draws until its agent looks. Small debts are
    forgiven with time. Who was found starts again without debt.
    """
    devices = tree.table.devices
    for_s = readings.at_s - account.at_s
    counts = (for_s > 0) & (for_s <= rules.stale_s)
    for_s = np.where(counts, for_s, 0.0)
    lease_w = np.minimum(readings.cap_w, devices.default_w)
    may_draw_w = np.maximum(lease_w, account.lease_w) * ((1 + devices.overshoot_share) * (1 + rules.tolerance_share))
    drawn_j = credit_after(account.credit_j, readings.draw_w, may_draw_w, burst_j, for_s, account.back_s)
    forgiven = exp(-float(for_s.max(initial=0.0)) / rules.debt_forgiven_s)
    credit_j = np.where(counts, np.maximum(drawn_j, 0.0) + np.minimum(drawn_j, 0.0) * forgiven, account.credit_j)
    found = overdrawn(credit_j, burst_j)
    at_s = np.maximum(account.at_s, readings.at_s)
    credit_j = np.where(found, 0.0, credit_j)
    lease_w = np.where(counts, lease_w, account.lease_w)
    return (
        BurstAccount(credit_j, account.back_s, account.to_w, lease_w, at_s, account.lifted_s, bounds=account.bounds),
        found,
    )


def bounded(
    account: BurstAccount,
    tree: Tree,
    rules: PowerRules,
    *,
    draw_w: FloatArray,
    held_back: BoolArray,
    drawn_w: FloatArray,
    spike_w: FloatArray,
    budget_w: FloatArray,
    cap_w: FloatArray,
    usual_w: FloatArray,
    now_s: float,
    braked: BoolArray | None = None,
) -> BurstAccount:
    """The account with bounds on the bursts that begin now.

    draw_w, cap_w, usual_w: shape (devices,): what each draws, its lease, and what it needs while it works.
    held_back: shape (devices,), who would draw more at once if it were let.
    drawn_w, spike_w, budget_w: shape (limits,): the draw, its largest rise within a control delay, the budget.
    braked: shape (devices,), whose draw a hardware brake holds down (power/brake.py): the room is none, nobody bursts.
    """
    most_w = tree.table.devices.max_w
    calm = tree.least(rules.calm_share * budget_w - drawn_w) > 0
    back_s = np.where(calm, min(rules.calm_credit_back_s, rules.credit_back_s), rules.credit_back_s)
    free_w = budget_w - drawn_w
    to_w, lifted_s = most_w, account.lifted_s
    if braked is not None:
        to_w, back_s = np.where(braked, cap_w, most_w), np.full(tree.devices, rules.credit_back_s)
    elif account.bounds or (free_w < rules.low_bursts_room * spike_w).any():
        low = (tree.least(free_w - rules.low_bursts_room * spike_w) < 0) & (tree.rank > 0)
        narrow = low | (tree.least(free_w - rules.bursts_room * spike_w) < 0)
        none = (tree.least(free_w - rules.no_low_bursts_room * spike_w) < 0) & (tree.rank > 0)
        none |= tree.least(free_w - rules.no_bursts_room * spike_w) < 0
        to_w = np.where(none, cap_w, np.where(narrow, np.minimum(np.maximum(usual_w, cap_w), most_w), most_w))
        waits = held_back & (to_w > np.maximum(account.to_w, cap_w) + _MEANT_W)
        if waits.any():
            had_w = np.maximum(account.to_w, cap_w)
            if now_s < account.lifted_s + rules.control_delay_s:
                to_w = np.where(waits, had_w, to_w)
            else:
                rooms_w = (free_w - rules.bursts_room * spike_w, free_w - rules.low_bursts_room * spike_w)
                to_w = _lifted(tree, waits, had_w, to_w, draw_w, rooms_w)
                lifted_s = now_s
        squeezed = held_back & (to_w > cap_w + _MEANT_W)
        if squeezed.any():
            rooms_w = (free_w - rules.no_bursts_room * spike_w, free_w - rules.no_low_bursts_room * spike_w)
            to_w = _fitted(tree, squeezed, cap_w, to_w, draw_w, usual_w, rooms_w)
    bounds = to_w is not most_w
    return BurstAccount(account.credit_j, back_s, to_w, account.lease_w, account.at_s, lifted_s, bounds=bounds)


def _fitted(
    tree: Tree,
    squeezed: BoolArray,
    cap_w: FloatArray,
    to_w: FloatArray,
    draw_w: FloatArray,
    usual_w: FloatArray,
    rooms_w: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Bounds of those whom their leases hold back, lowered until what they all draw then, in watts, fits the room.

    Credit bounds what they draw in joules. That does not keep them from drawing it all at the same moment, and who is
    held back does. rooms_w: shape (limits,) each, for the first class and for all others.
    """
    taken_w = np.zeros(tree.limits)
    goes_to_w = np.minimum(to_w, np.maximum(usual_w, cap_w))
    for mine, room_w in zip((squeezed & (tree.rank == 0), squeezed & (tree.rank > 0)), rooms_w, strict=True):
        surge_w = np.where(mine, np.maximum(goes_to_w - draw_w, 0.0), 0.0)
        asked_w = tree.through(tree.overhead * surge_w)
        share = np.minimum(tree.least(np.maximum(room_w - taken_w, 0.0) / np.maximum(asked_w, 1e-9)), 1.0)
        to_w = np.where(mine & (share < 1), np.minimum(np.maximum(draw_w + share * surge_w, cap_w), to_w), to_w)
        taken_w = taken_w + tree.through(tree.overhead * (share * surge_w))
    return to_w


def _lifted(
    tree: Tree,
    waits: BoolArray,
    had_w: FloatArray,
    to_w: FloatArray,
    draw_w: FloatArray,
    rooms_w: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Bounds of those who wait for more, lifted as far as what they would draw at once fits: the first class first.

    Else all who were held back begin together when there is room again, and there is none any more.
    rooms_w: shape (limits,) each, for the first class and for all others.
    """
    taken_w = np.zeros(tree.limits)
    for mine, room_w in zip((waits & (tree.rank == 0), waits & (tree.rank > 0)), rooms_w, strict=True):
        surge_w = np.where(mine, np.maximum(to_w - np.maximum(had_w, draw_w), 0.0), 0.0)
        asked_w = tree.through(tree.overhead * surge_w)
        left_w = np.maximum(room_w - taken_w, 0.0)
        share = np.minimum(tree.least(left_w / np.maximum(asked_w, 1e-9)), 1.0)
        to_w = np.where(mine, had_w + share * (to_w - had_w), to_w)
        taken_w = taken_w + tree.through(tree.overhead * (share * surge_w))
    return to_w
