"""Grants: what of the wanted caps may be granted now. Lowered at once, raised as far as caps still held leave room."""

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import PowerReadings
from power.domains.tree import Tree
from power.rules import MEANT_W
from power.safety.commitments import Book
from power.safety.estimator import FINE, OVER_CAP, STALE, Estimate, Trust


def granted_w(
    tree: Tree,
    trust: Trust,
    book: Book,
    seen: Estimate,
    awaited: BoolArray,
    wanted_w: FloatArray,
    need_w: FloatArray,
    room_w: FloatArray,
) -> FloatArray:
    """New cap of every device, shape (devices,).

    awaited: devices not heard yet by a new controller, which keep what they have; others that no grant may govern are
    sent to their safe floor. wanted_w: the policy's caps, trimmed to what devices accept and to the room. need_w: what
    devices would draw: rises up to it come first, class by class. room_w: shape (limits,), what leased devices may draw
    at worst.
    """
    devices = tree.table.devices
    governed = is_governed(tree, seen)
    wanted_w = np.minimum(np.maximum(wanted_w, devices.min_w), devices.max_w)
    wanted_w = _fitting_caps(tree, governed, np.where(governed, wanted_w, seen.held_w), room_w)
    if not all_of(governed):
        wanted_w = np.where(governed, wanted_w, np.where(awaited, book.cap_w, devices.floor_w))
    held_w = np.where(devices.managed, seen.held_w, 0.0)
    left_w = room_w - tree.at_worst(held_w)
    lowered_w = np.where(devices.managed, np.minimum(wanted_w, book.cap_w), book.cap_w)
    if not trust.clean:
        lowered_w = _as_clamped(tree, trust, book, seen, lowered_w, left_w)
    may_rise = (book.ceiling_w <= book.cap_w) & seen.believed & (seen.fault == FINE) & devices.managed
    rise_w = np.where(may_rise, np.maximum(wanted_w - held_w, 0.0), 0.0)
    if not any_of(rise_w > 0):
        return lowered_w
    rise_w = _fitting_rises(tree, rise_w, np.maximum(np.minimum(need_w, wanted_w) - held_w, 0.0), left_w)
    return np.where(rise_w >= MEANT_W, held_w + np.floor(rise_w), lowered_w)


def is_governed(tree: Tree, seen: Estimate) -> BoolArray:
    """Devices that a new grant may govern, shape (devices,).

    Others count at what they may hold, whatever is granted.
    """
    if seen.clean:
        return tree.table.devices.managed
    return np.asarray(tree.table.devices.managed & (seen.fault != STALE) & (seen.fault != OVER_CAP))


def _fitting_caps(tree: Tree, governed: BoolArray, cap_w: FloatArray, room_w: FloatArray) -> FloatArray:
    """Caps that together fit every limit: where a policy wants too much, all above their lowest limits give alike."""
    devices = tree.table.devices
    leased_w = np.where(devices.managed, cap_w, 0.0)
    if all_of(tree.at_worst(leased_w) <= room_w):
        return cap_w
    base_w = np.where(governed, devices.min_w, leased_w)
    above_w = tree.at_worst(leased_w - base_w)
    share = np.minimum(np.maximum(room_w - tree.at_worst(base_w), 0.0) / np.maximum(above_w, 1e-9), 1.0)
    return np.where(governed, base_w + np.floor((leased_w - base_w) * np.minimum(tree.least(share), 1.0)), cap_w)


def _as_clamped(
    tree: Tree, trust: Trust, book: Book, seen: Estimate, cap_w: FloatArray, left_w: FloatArray
) -> FloatArray:
    """Caps in which a device that keeps a higher limit than granted is granted that limit, once others made room.

    Only the record changes: the device enforces that limit already, and would be reported for ever as not obeying.
    """
    clamped = (trust.least_w > book.cap_w) & seen.believed & (seen.fault != OVER_CAP) & (seen.held_w >= trust.least_w)
    fits = tree.least(left_w) >= 0
    return np.where(clamped & fits, np.minimum(trust.least_w, tree.table.devices.max_w), cap_w)


def _fitting_rises(tree: Tree, rise_w: FloatArray, needed_w: FloatArray, left_w: FloatArray) -> FloatArray:
    """Rises reduced to the room that every limit has left: needs class by class, then the rest."""
    if all_of(tree.at_worst(rise_w) <= left_w):
        return rise_w
    needed_w = np.minimum(needed_w, rise_w)
    made = np.zeros(len(rise_w))
    parts = [np.where(tree.rank == rank, needed_w, 0.0) for rank in range(int(tree.rank.max()) + 1)]
    for part in (*parts, rise_w - needed_w):
        share = np.minimum(np.maximum(left_w, 0.0) / np.maximum(tree.at_worst(part), 1e-9), 1.0)
        given = part * np.minimum(tree.least(share), 1.0)
        left_w = left_w - tree.at_worst(given)
        made += given
    return made


def as_found_w(tree: Tree, before: Book, book: Book, readings: PowerReadings, cap_w: FloatArray) -> FloatArray:
    """Caps limited to the enforced limits of devices that are seen to obey for the first time.

    An earlier controller may have lowered them since their limits were first read, and granted the power to others.
    """
    newly = book.met & ~before.met & (readings.cap_w > 0)
    holds_w = np.maximum(np.floor(readings.cap_w), tree.table.devices.min_w)
    return np.where(newly, np.minimum(cap_w, holds_w), cap_w)
