"""Next caps on the way to their targets: lowered at once, raised as far as the caps still held elsewhere leave room."""

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import PowerReadings
from power.allocator.state import MEANT_W, Allocator
from power.domains.tree import Tree
from power.estimation.commitments import Book
from power.estimation.estimator import FINE, OVER_CAP, Estimate, Trust


def next_caps(
    allocator: Allocator,
    trust: Trust,
    book: Book,
    seen: Estimate,
    need_w: FloatArray,
    target_w: FloatArray,
    room_w: FloatArray,
    pool_w: FloatArray,
) -> FloatArray:
    """New cap of every device: lowered at once, raised as far as the limits that others may still hold leave room."""
    tree = allocator.tree
    managed = tree.table.devices.managed
    held_w = _governed(allocator, seen.held_w)
    left_w = room_w - tree.at_worst(held_w)
    wanted_w = _wanted(allocator, book.cap_w, need_w, target_w, room_w - pool_w)
    may_rise = book.ceiling_w <= book.cap_w
    lowered_w = np.minimum(wanted_w, book.cap_w)
    if not (seen.clean and allocator.all_managed):
        may_rise &= seen.believed & (seen.fault == FINE) & managed
        lowered_w = np.where(managed, lowered_w, book.cap_w)
    if not trust.clean:
        lowered_w = _as_clamped(allocator, trust, book, seen, lowered_w, left_w)
    rise_w = np.where(may_rise, np.maximum(wanted_w - held_w, 0.0), 0.0)
    if not any_of(rise_w > 0):
        return lowered_w
    rise_w = _fitting(tree, rise_w, np.maximum(np.minimum(need_w, wanted_w) - held_w, 0.0), left_w)
    return _floors_first(
        allocator, target_w, lowered_w, np.where(rise_w >= MEANT_W, held_w + np.floor(rise_w), lowered_w)
    )


def _as_clamped(
    allocator: Allocator, trust: Trust, book: Book, seen: Estimate, cap_w: FloatArray, left_w: FloatArray
) -> FloatArray:
    """Caps in which a device that keeps a higher limit than granted is granted that limit, once others made room for
    it.

    Only the record changes, since the device enforces that limit already. Without this, it would be reported for ever
    as not obeying a lower cap.
    """
    clamped = (trust.least_w > book.cap_w) & seen.believed & (seen.fault != OVER_CAP) & (seen.held_w >= trust.least_w)
    fits = allocator.tree.least(left_w) >= 0
    return np.where(clamped & fits, np.minimum(trust.least_w, allocator.appetite.most_w), cap_w)


def _wanted(
    allocator: Allocator, cap_w: FloatArray, need_w: FloatArray, target_w: FloatArray, room_w: FloatArray
) -> FloatArray:
    """Caps to move to now: the targets, without moves that have no use.

    A device that has what it needs keeps any surplus until others need the power; then the largest surpluses are taken
    first. A device that must do with less than it needs is lowered at once, and raised when the gain is worth it.
    """
    tree, rules, appetite = allocator.tree, allocator.rules, allocator.appetite
    band_w = rules.band_share * appetite.most_w
    squeezed = target_w < need_w - MEANT_W
    content = ~squeezed & (cap_w >= need_w - MEANT_W) & (cap_w >= target_w - 3 * band_w)
    near = squeezed & (cap_w <= target_w) & (cap_w >= target_w - band_w)
    keeps = (content | near) & tree.table.devices.managed
    wanted_w = np.where(keeps, cap_w, target_w)
    missing_w = tree.at_worst(_governed(allocator, wanted_w)) - room_w
    if all_of(missing_w <= 0):
        return wanted_w
    surplus_w = np.where(keeps, np.maximum(cap_w - target_w, 0.0), 0.0)
    return np.where(_givers(tree, surplus_w, missing_w), target_w, wanted_w)


def _governed(allocator: Allocator, cap_w: FloatArray) -> FloatArray:
    """Caps of managed devices, and 0 for those that opted out."""
    return cap_w if allocator.all_managed else np.where(allocator.tree.table.devices.managed, cap_w, 0.0)


def _givers(tree: Tree, surplus_w: FloatArray, missing_w: FloatArray) -> BoolArray:
    """The fewest devices whose surplus covers what is missing at every limit, the largest surplus first."""
    if tree.only_share is not None:
        return _first_givers(tree.only_share * tree.burden * surplus_w, float(missing_w[0])) & (surplus_w > 0)
    chosen = np.zeros(tree.devices, dtype=bool)
    for limit in np.flatnonzero(missing_w > 0).tolist():
        on = tree.path_limit == limit
        device = tree.path_device[on]
        gives_w = tree.path_share[on] * tree.burden[device] * surplus_w[device]
        still_w = missing_w[limit] - gives_w[chosen[device]].sum()
        order = np.argsort(-np.where(chosen[device], 0.0, gives_w), kind="stable")
        count = int(np.searchsorted(np.cumsum(gives_w[order]), still_w)) + 1 if still_w > 0 else 0
        chosen[device[order[:count]]] = True
    return chosen & (surplus_w > 0)


def _first_givers(gives_w: FloatArray, missing_w: float) -> BoolArray:
    """The largest surpluses that together cover what is missing at one limit."""
    order = (-gives_w).argsort(kind="stable")
    chosen = np.zeros(len(gives_w), dtype=bool)
    chosen[order[: int(gives_w[order].cumsum().searchsorted(missing_w)) + 1]] = True
    return chosen


def _fitting(tree: Tree, rise_w: FloatArray, needed_w: FloatArray, left_w: FloatArray) -> FloatArray:
    """Rises reduced to the room that every limit has left: needs class by class, then the rest."""
    if all_of(tree.at_worst(rise_w) <= left_w):
        return rise_w
    needed_w = np.minimum(needed_w, rise_w)
    made = np.zeros(len(rise_w))
    parts = [np.where(tree.rank == rank, needed_w, 0.0) for rank in range(int(tree.rank.max()) + 1)]
    for part in (*parts, rise_w - needed_w):
        asked = tree.at_worst(part)
        share = np.minimum(np.maximum(left_w, 0.0) / np.maximum(asked, 1e-9), 1.0)
        given = part * np.minimum(tree.least(share), 1.0)
        left_w = left_w - tree.at_worst(given)
        made += given
    return made


def _floors_first(allocator: Allocator, target_w: FloatArray, before_w: FloatArray, cap_w: FloatArray) -> FloatArray:
    """Caps in which no device rises above its useful floor while a higher class below the same limit waits for its
    floor.

    A device whose target is below its floor, because it has no work, waits for nothing.
    """
    tree, floor_w = allocator.tree, allocator.appetite.floor_w
    waits = (cap_w < np.minimum(floor_w, target_w) - MEANT_W) & tree.table.devices.managed
    if not any_of(waits):
        return cap_w
    first = np.full(tree.limits, np.iinfo(np.int64).max)
    waiting = waits[tree.path_device]
    np.minimum.at(first, tree.path_limit[waiting], tree.rank[tree.path_device[waiting]])
    ahead = np.full(tree.devices, np.iinfo(np.int64).max)
    np.minimum.at(ahead, tree.path_device, first[tree.path_limit])
    return np.where(ahead < tree.rank, np.minimum(cap_w, np.maximum(floor_w, before_w)), cap_w)


def as_found(allocator: Allocator, before: Book, book: Book, readings: PowerReadings, cap_w: FloatArray) -> FloatArray:
    """Caps limited to the enforced limits of devices that are seen to obey for the first time.

    An earlier controller may have lowered them since their limits were first read, and granted the power to others.
    """
    newly = book.met & ~before.met & (readings.cap_w > 0)
    holds_w = np.maximum(np.floor(readings.cap_w), allocator.appetite.base_w)
    return np.where(newly, np.minimum(cap_w, holds_w), cap_w)
