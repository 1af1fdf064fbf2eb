"""Grants: what of the wanted caps may be granted now. Lowered at once, raised as far as caps still held leave room."""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, all_of, any_of
from cluster.power import NEVER_S, PowerLeases, PowerReadings
from power.rules import MEANT_W
from power.safety.estimator import FINE, OVER_CAP, STALE, Estimate, Trust
from power.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Book:
    """Record of grants, one entry per device."""

    cap_w: FloatArray
    """Newest grant."""
    ceiling_w: FloatArray
    sequence: IntArray
    """Sequence number of the newest grant, -1 before the first. All grants of one moment share a number, and numbers
    rise, so a node's lease carries the number of the newest grant among its devices."""
    mark: IntArray
    """Number of a grant that was not yet obeyed; once it is confirmed, older grants no longer matter."""
    since_mark_w: FloatArray
    """Largest grant from the mark on: a device that confirms the mark and keeps to this value holds no older grant."""
    due_since_s: FloatArray
    """Instant from which the device has been asked for something not yet seen obeyed, however often it was asked again;
    NEVER_S before the first request."""
    next_at_s: FloatArray
    """Instant when the first grant after the mark was sent; infinite if there is none."""
    before_w: FloatArray
    """Grant before the newest: readings may still show it."""
    granted_at_s: FloatArray
    """Instant when the newest grant was sent."""
    burst: BoolArray
    """Whether the newest grant allows bursts above it (power/safety/bursts.py)."""
    held_burst: BoolArray
    """Whether a grant that the device may still hold allows bursts."""
    met: BoolArray
    """Whether the device was ever seen to obey a grant of this controller."""
    open: BoolArray
    """Whether the newest grant was not yet seen to be obeyed."""

    @property
    def settled(self) -> bool:
        """Whether every newest grant is obeyed, so that every ceiling is the newest grant."""
        return not any_of(self.open)


def first_book(leases: PowerLeases) -> Book:
    """The record of a controller after its start: the leases in the snapshot, none of them confirmed to it."""
    return Book(
        cap_w=leases.cap_w,
        ceiling_w=np.maximum(leases.ceiling_w, leases.cap_w),
        sequence=leases.sequence,
        mark=leases.sequence,
        since_mark_w=leases.cap_w,
        due_since_s=np.full(len(leases.cap_w), NEVER_S),
        next_at_s=np.full(len(leases.cap_w), np.inf),
        before_w=leases.cap_w,
        granted_at_s=np.full(len(leases.cap_w), NEVER_S),
        burst=np.zeros(len(leases.cap_w), dtype=bool),
        held_burst=np.zeros(len(leases.cap_w), dtype=bool),
        met=np.zeros(len(leases.cap_w), dtype=bool),
        open=np.ones(len(leases.cap_w), dtype=bool),
    )


def confirmed(book: Book, heard: IntArray, obeyed: BoolArray, keeps_mark: BoolArray) -> Book:
    """The record after devices reported the grants that they hold (`heard`) and were seen to draw no more.

    obeyed: devices that obey the newest grant; keeps_mark: devices that keep to `since_mark_w`, such as one that is
    lowered step by step and always one step behind.
    """
    if book.settled and all_of(book.met):
        return book
    newest = obeyed & (heard >= book.sequence)
    past_mark = newest | (keeps_mark & (heard >= book.mark))
    ceiling_w = np.where(newest, book.cap_w, np.where(past_mark, book.since_mark_w, book.ceiling_w))
    return replace(
        book,
        ceiling_w=np.minimum(ceiling_w, book.ceiling_w),
        mark=np.where(past_mark, book.sequence, book.mark),
        since_mark_w=np.where(past_mark, book.cap_w, book.since_mark_w),
        due_since_s=np.where(past_mark, np.minimum(book.next_at_s, book.granted_at_s), book.due_since_s),
        next_at_s=np.where(past_mark, np.inf, book.next_at_s),
        held_burst=np.where(newest, book.burst, book.held_burst),
        met=book.met | newest,
        open=book.open & ~newest,
    )


def granted(book: Book, cap_w: FloatArray, burst: BoolArray, changed: BoolArray, at_s: float) -> Book:
    """The record after new grants were sent to the devices in `changed`."""
    number = book.sequence.max(initial=-1) + 1
    opens = changed & (~book.open | (book.due_since_s == NEVER_S))
    return replace(
        book,
        cap_w=np.where(changed, cap_w, book.cap_w),
        ceiling_w=np.where(changed, np.maximum(book.ceiling_w, cap_w), book.ceiling_w),
        sequence=np.where(changed, number, book.sequence),
        mark=np.where(opens, number, book.mark),
        since_mark_w=np.where(opens, cap_w, np.where(changed, np.maximum(book.since_mark_w, cap_w), book.since_mark_w)),
        due_since_s=np.where(opens, at_s, book.due_since_s),
        next_at_s=np.where(opens, np.inf, np.where(changed, np.minimum(book.next_at_s, at_s), book.next_at_s)),
        before_w=np.where(changed, book.cap_w, book.before_w),
        granted_at_s=np.where(changed, at_s, book.granted_at_s),
        burst=np.where(changed, burst, book.burst),
        held_burst=book.held_burst | (changed & burst),
        open=book.open | changed,
    )


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
