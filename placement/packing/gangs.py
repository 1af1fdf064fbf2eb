"""Placement of gangs: all members in as few topology domains as required, or none."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.workloads import PodShape
from placement.engine.ledger import copies_at_most
from placement.packing.draft import Kind, PackingDraft, members_running
from placement.packing.units import Unit

Place = Callable[[int, BoolArray | None], bool]
"""Places one pod, among the nodes of the mask. Returns whether it did."""

PLACES_PER_COUNT = 500
"""Price of counting the pods of one shape that all nodes hold, in examined places."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Way to place one pod: in free resources, or by preemption."""

    place: Place
    below: int | None = None
    """Priority below which pods may be stopped; None: free resources only."""


def seat_gang(draft: PackingDraft, unit: Unit, seat: Seat) -> bool:
    """Places at least `unit.need` of a gang's pods, or none. Its other pods follow as far as they fit.

    Topology domains that cannot hold that many, by a count that is never too low, are not tried.
    """
    wanted, rooms = draft.snapshot.gangs[unit.gang], Rooms(draft, unit.rows, seat.below)
    if wanted.within is None:
        everywhere = np.zeros(len(draft.snapshot.nodes), dtype=np.int64)
        return bool(rooms.may_hold(everywhere, unit.need).any()) and _seat_near(draft, unit, seat, None)
    domain = draft.domain(wanted.within)
    room, can = rooms.free(domain), rooms.may_hold(domain, unit.need)
    if running := members_running(draft, unit.gang):  # a gang that runs in part must stay in the domain where it runs
        here = sorted({int(domain[draft.node[row]]) for row in running} - {-1})[:1]
        values = [value for value in here if can[value]]
    else:
        # In free resources the tightest that suffices first, by preemption the roomiest, where least must be stopped.
        able = np.flatnonzero(can)
        free = room[able]
        values = able[np.lexsort((able, np.where(free < unit.need, -free, free), free < unit.need))].tolist()
    return any(_seat_near(draft, unit, seat, domain == value) for value in values)


class Rooms:
    """Number of a gang's pods that topology domains hold, counted node by node once for all domains."""

    def __init__(self, draft: PackingDraft, rows: Sequence[int], below: int | None) -> None:
        """below: counts as if all pods below this priority were stopped; None: in free resources."""
        self._shapes = [draft.shape(row) for row in rows]
        self._kinds = Counter(self._shapes)
        draft.work += PLACES_PER_COUNT * len(self._kinds)
        free = draft.packer.ledger.free
        self._reach = free if below is None else draft.reclaimable(below).free()
        self._open = {shape: draft.packer.eligible(shape) for shape in self._kinds}
        self._copies = {shape: copies_at_most(shape, free) * self._open[shape] for shape in self._kinds}
        self._most = self._copies
        if below is not None:
            self._most = {shape: copies_at_most(shape, self._reach) * self._open[shape] for shape in self._kinds}

    def free(self, domain: IntArray) -> IntArray:
        """Pods that fit now: exact for equal pods, a guess for unequal ones. Shape (domains,).

        domain: shape (nodes,), the domain of each node; -1 for none.
        """
        most: IntArray = np.max([_sums(copies, domain) for copies in self._copies.values()], axis=0)
        return most

    def most(self, domain: IntArray) -> IntArray:
        """Pods that fit at most, after any preemption; never too low. Shape (domains,)."""
        parts = [np.minimum(_sums(self._most[shape], domain), count) for shape, count in self._kinds.items()]
        total: IntArray = np.sum(parts, axis=0)
        return total

    def may_hold(self, domain: IntArray, need: int) -> BoolArray:
        """Domains that may hold so many of the pods, after any preemption; the others certainly cannot."""
        may: BoolArray = self.most(domain) >= need
        if len(self._kinds) > 1:  # pods of several shapes need the sum of what they request
            eligible, reach = np.any(list(self._open.values()), axis=0), self._reach
            for free, asked in (
                (reach.cpu_milli, [shape.cpu_milli for shape in self._shapes]),
                (reach.memory_bytes, [shape.memory_bytes for shape in self._shapes]),
                (reach.gpu_milli.sum(axis=1), [shape.total_gpu_milli for shape in self._shapes]),
            ):
                may &= _sums(np.maximum(free, 0) * eligible, domain) >= sum(sorted(asked)[:need])
        return may


def _sums(copies: IntArray, domain: IntArray) -> IntArray:
    inside = domain >= 0
    count = int(domain.max(initial=-1)) + 1
    return np.bincount(domain[inside], copies[inside], count).astype(np.int64)


def _seat_near(draft: PackingDraft, unit: Unit, seat: Seat, allowed: BoolArray | None) -> bool:
    """Places a gang inside `allowed`, in as few domains of its preferred label as can be found.

    Domains are filled one after the other: the tightest that holds all remaining pods, else the roomiest. For equal
    pods, the roomiest-first order needs the fewest possible domains.
    """
    mark, prefer = draft.mark, draft.snapshot.gangs[unit.gang].prefer_within
    left = list(unit.rows)
    if prefer is not None:
        domain = draft.domain(prefer)
        everywhere = np.ones(len(domain), dtype=bool) if allowed is None else allowed
        inside = np.where(everywhere, domain, -1)
        shapes: set[PodShape] = set()
        while left:
            if shapes != (shapes := {draft.shape(row) for row in left}):
                # Pods are placed in one domain at a time, which is then done: the others keep their room.
                rooms = Rooms(draft, left, seat.below)
                room, most = rooms.free(inside), rooms.most(inside)
            if not most.any():
                break
            enough = np.flatnonzero((room >= len(left)) & (most > 0))
            best = int(enough[room[enough].argmin()] if len(enough) else np.where(most > 0, room, -1).argmax())
            left = _left_of(draft, left, seat, inside == best)
            inside = np.where(inside == best, -1, inside)
            room[best] = most[best] = 0
        allowed = everywhere & (domain < 0)
    left = _left_of(draft, left, seat, allowed)
    if len(unit.rows) - len(left) >= unit.need:
        return True
    draft.roll_back(mark)
    return False


def _left_of(draft: PackingDraft, rows: Sequence[int], seat: Seat, allowed: BoolArray | None) -> list[int]:
    """Places each of these pods that fits; returns those that do not."""
    left, futile = list[int](), set[Kind]()
    for row in rows:
        kind = draft.kind(row)
        if kind in futile or not seat.place(row, allowed):
            futile.add(kind)  # room only shrinks while a gang is placed
            left.append(row)
    return left
