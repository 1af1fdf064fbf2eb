"""Limits of bursts: how far they may go now, how fast credit is restored, and which devices drew more than bursts
explain.

A burst is worth most when the row is calm, and does most harm when many begin together on a full row. So bursts end
lower the nearer a domain's draw is to its budget, measured in the rise that one control delay may bring, and low
classes are restricted first. The bound falls from the highest limit to the useful floor and finally to the lease. It
falls gradually, because devices that are stopped accumulate work and start all of it together.
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import NEVER_S, PowerReadings
from power.bursts.burst_credit import credit_after, overdrawn
from power.bursts.headroom import Room
from power.domains.tree import Tree
from power.rules import PowerRules

_MEANT_W = 1.0
"""Difference below which two bounds count as the same."""


@dataclass(frozen=True, slots=True, eq=False)
class BurstAccount:
    """The controller's own account of bursts; shape (devices,) each, unless stated otherwise."""

    credit_j: FloatArray
    """Energy in joules that each device may still draw above its lease."""
    back_s: FloatArray
    """Time in which used credit is restored."""
    to_w: FloatArray
    """Highest limit of any burst."""
    lease_w: FloatArray
    """Limit that each device reported as enforced when its draw was last counted."""
    at_s: FloatArray
    """Instant up to which draws are counted."""
    lifted_s: float
    """Instant when bounds were last raised for devices that waited for it."""
    bounds: bool
    """Whether any burst is bounded."""
    over_s: FloatArray
    """Instant when the draw last exceeded the budget, shape (limits,)."""


def first_account(tree: Tree, rules: PowerRules, burst_j: FloatArray) -> BurstAccount:
    most_w = tree.table.devices.max_w
    back_s, at_s = np.full(tree.devices, rules.credit_back_s), np.full(tree.devices, NEVER_S)
    return BurstAccount(
        burst_j, back_s, most_w, most_w, at_s, NEVER_S, bounds=False, over_s=np.full(tree.limits, NEVER_S)
    )


def counted(
    account: BurstAccount,
    tree: Tree,
    rules: PowerRules,
    burst_j: FloatArray,
    readings: PowerReadings,
    draw_w: FloatArray | None = None,
) -> tuple[BurstAccount, BoolArray]:
    """The account after these readings, and the devices that drew more above their leases than any burst explains.

    draw_w: mean draw of each device since the readings that were counted last; None: use the draws in `readings`.
    A draw is the mean since the previous reading, so it counts against the higher lease of the two, plus the errors of
    limiters and meters. The debt of an honest device is therefore at most what it draws until its agent reacts. Small
    debts are forgiven with time. A device that was found starts again without debt.
    """
    devices = tree.table.devices
    for_s = readings.at_s - account.at_s
    counts = (for_s > 0) & (for_s <= rules.stale_s)
    draw_w = readings.draw_w if draw_w is None else draw_w
    lease_w = np.minimum(readings.cap_w, devices.default_w)
    may_draw_w = np.maximum(lease_w, account.lease_w) * ((1 + devices.overshoot_share) * (1 + rules.tolerance_share))
    if all_of(counts):
        drawn_j = credit_after(account.credit_j, draw_w, may_draw_w, burst_j, for_s, account.back_s)
        if drawn_j[drawn_j.argmin()] >= 0:  # no device has a debt: most steps end here
            return _counted(account, drawn_j, lease_w, readings.at_s), tree.nobody
    for_s = np.where(counts, for_s, 0.0)
    drawn_j = credit_after(account.credit_j, draw_w, may_draw_w, burst_j, for_s, account.back_s)
    forgiven = exp(-float(for_s.max(initial=0.0)) / rules.debt_forgiven_s)
    credit_j = np.where(counts, np.maximum(drawn_j, 0.0) + np.minimum(drawn_j, 0.0) * forgiven, account.credit_j)
    found = overdrawn(credit_j, burst_j)
    lease_w = np.where(counts, lease_w, account.lease_w)
    at_s = np.maximum(account.at_s, readings.at_s)
    return _counted(account, np.where(found, 0.0, credit_j), lease_w, at_s), found


def _counted(account: BurstAccount, credit_j: FloatArray, lease_w: FloatArray, at_s: FloatArray) -> BurstAccount:
    return BurstAccount(
        credit_j=credit_j,
        back_s=account.back_s,
        to_w=account.to_w,
        lease_w=lease_w,
        at_s=at_s,
        lifted_s=account.lifted_s,
        bounds=account.bounds,
        over_s=account.over_s,
    )


def bounded(
    account: BurstAccount,
    tree: Tree,
    rules: PowerRules,
    *,
    draw_w: FloatArray,
    held_back: BoolArray,
    to_lease: BoolArray,
    drawn_w: FloatArray,
    room: Room,
    budget_w: FloatArray,
    cap_w: FloatArray,
    usual_w: FloatArray,
    now_s: float,
    braked: BoolArray | None = None,
) -> BurstAccount:
    """The account with bounds on the bursts that begin now.

    draw_w, cap_w, usual_w: shape (devices,): draw, lease, and need while working.
    held_back: shape (devices,), devices that would draw more at once without their limits.
    to_lease: shape (devices,), devices that must keep to their leases as soon as room is scarce: they generate tokens
    and have less than they need so that others have room. A burst would undo that, and the credit would be gone when
    their next prompt begins.
    drawn_w, budget_w: shape (limits,): the draw and the budget. room: free power at each limit.
    braked: shape (devices,), devices whose draw a hardware brake holds down (power/estimation/brake.py). There is no
    room then, and none may burst.
    """
    most_w = tree.table.devices.max_w
    over_s = account.over_s
    if any_of(drawn_w > budget_w):
        over_s = np.where(drawn_w > budget_w, now_s, over_s)
    cold = now_s - over_s > rules.credit_back_s
    back_s = _credit_back_s(account, tree, rules, np.where(cold, rules.calm_share * budget_w - drawn_w, -1.0))
    to_w, lifted_s = most_w, account.lifted_s
    if braked is not None:
        to_w, back_s = np.where(braked, cap_w, most_w), np.full(tree.devices, rules.credit_back_s)
    elif account.bounds or any_of(room.beyond(rules.low_bursts_room) < 0):
        to_w = np.where(to_lease, cap_w, _ends_w(tree, rules, room, cap_w))
        waits = held_back & (to_w > np.maximum(account.to_w, cap_w) + _MEANT_W)
        if any_of(waits):
            had_w = np.maximum(account.to_w, cap_w)
            if now_s < account.lifted_s + rules.control_delay_s:
                to_w = np.where(waits, had_w, to_w)
            else:
                rooms_w = (room.beyond(rules.bursts_room), room.beyond(rules.low_bursts_room))
                to_w = _lifted(tree, waits, had_w, to_w, draw_w, rooms_w)
                lifted_s = now_s
        squeezed = held_back & (to_w > cap_w + _MEANT_W)
        if any_of(squeezed):
            rooms_w = (room.beyond(rules.floor_room), room.beyond(rules.low_floor_room))
            to_w = _fitted(tree, squeezed, cap_w, to_w, draw_w, usual_w, rooms_w)
        if all_of(to_w == most_w):
            to_w = most_w
        elif all_of(to_w == account.to_w):
            to_w = account.to_w  # the same array signals to later code that nothing changed
    return BurstAccount(
        credit_j=account.credit_j,
        back_s=back_s,
        to_w=to_w,
        lease_w=account.lease_w,
        at_s=account.at_s,
        lifted_s=lifted_s,
        bounds=to_w is not most_w,
        over_s=over_s,
    )


def _ends_w(tree: Tree, rules: PowerRules, room: Room, cap_w: FloatArray) -> FloatArray:
    """Bounds on bursts by the room alone, shape (devices,): from the lease over the floor to the highest limit."""
    devices = tree.table.devices
    start_w = np.minimum(np.maximum(cap_w, devices.floor_w), devices.max_w)
    spikes = room.free_w / np.maximum(room.spike_w, _MEANT_W)

    def ends_w(floor_room: float, bursts_room: float) -> FloatArray:
        to_floor = tree.least(np.minimum(np.maximum(spikes / floor_room, 0.0), 1.0))
        beyond = (spikes - floor_room) / (bursts_room - floor_room)
        above = tree.least(np.minimum(np.maximum(beyond, 0.0), 1.0))
        return cap_w + to_floor * (start_w - cap_w) + above * (devices.max_w - start_w)

    first_w = ends_w(rules.floor_room, rules.bursts_room)
    return np.where(tree.below_first, ends_w(rules.low_floor_room, rules.low_bursts_room), first_w)


def _credit_back_s(account: BurstAccount, tree: Tree, rules: PowerRules, calm_w: FloatArray) -> FloatArray:
    """Time in which credit is restored, shape (devices,). calm_w: shape (limits,), watts until a domain is no longer
    calm.
    """
    calm_s = min(rules.calm_credit_back_s, rules.credit_back_s)
    calm = calm_w > 0
    if all_of(calm) and all_of(account.back_s == calm_s):
        return account.back_s
    if tree.only_share is not None and not calm[0] and all_of(account.back_s == rules.credit_back_s):
        return account.back_s
    return np.where(tree.least(calm_w) > 0, calm_s, rules.credit_back_s)


def _fitted(
    tree: Tree,
    squeezed: BoolArray,
    cap_w: FloatArray,
    to_w: FloatArray,
    draw_w: FloatArray,
    usual_w: FloatArray,
    rooms_w: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Bounds of devices held back by their leases, lowered until the power that they would all draw then fits the room.

    Credit bounds energy, not power: it does not prevent devices from spending it all at the same moment, and devices
    that are held back do so. rooms_w: shape (limits,) each, for the first class and for all others.
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
    """Bounds of waiting devices, raised as far as what they would draw at once fits, the first class first.

    Otherwise all devices that were held back would start together when room is free again, and use it up at once.
    rooms_w: shape (limits,) each, for the first class and for all others.
    """
    taken_w = np.zeros(tree.limits)
    for mine, room_w in zip((waits & (tree.rank == 0), waits & (tree.rank > 0)), rooms_w, strict=True):
        surge_w = np.where(mine, np.maximum(to_w - np.maximum(had_w, draw_w), 0.0), 0.0)
        asked_w = tree.drawn(surge_w)
        left_w = np.maximum(room_w - taken_w, 0.0)
        share = np.minimum(tree.least(left_w / np.maximum(asked_w, 1e-9)), 1.0)
        to_w = np.where(mine, had_w + share * (to_w - had_w), to_w)
        taken_w = taken_w + tree.through(tree.overhead * (share * surge_w))
    return to_w
