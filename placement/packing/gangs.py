"""Gangs: placed whole or not at all."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from cluster import arrays, capacity, workloads
from placement.packing.draft import Kind, PackingDraft, Within, lacking, members_running
from placement.packing.gang_nodes import MOST_COMPARED, GangNodes
from placement.packing.gang_victims import GangClearing, least_clearing
from placement.packing.group_levels import TreeSeating, has_levels
from placement.packing.units import Unit

Place = Callable[[int, Within], bool]
"""Places one pod, among the nodes of the mask, or in what is free on one node. Returns whether it did."""

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
    wanted = draft.snapshot.gangs[unit.gang]
    if has_levels(wanted.groups):

        def ranked(part: Unit, domain: arrays.IntArray) -> list[int]:
            return _ranked(draft, part, seat, Rooms(draft, part, seat.below), domain)

        def seat_in(part: Unit, allowed: arrays.BoolArray) -> None:
            _left_near(draft, part, seat, Rooms(draft, part, seat.below), allowed, None)

        def fewest(part: Unit, allowed: arrays.BoolArray) -> list[arrays.BoolArray]:
            best = Rooms(draft, part, seat.below).nodes.best(np.flatnonzero(allowed))
            return [] if best.unseated else [np.isin(np.arange(len(allowed)), list(best.on))]

        return TreeSeating(draft, unit, ranked, seat_in, fewest).seat()
    rooms = Rooms(draft, unit, seat.below)
    if wanted.within is None:
        everywhere = np.zeros(len(draft.snapshot.nodes), dtype=np.int64)
        return bool(rooms.may_hold(everywhere, unit.need).any()) and _seat_near(draft, unit, seat, rooms, None)
    domain = draft.domain(wanted.within)
    if running := members_running(draft, unit.gang):  # a gang that runs in part must stay in the domain where it runs
        here = sorted({int(domain[draft.node[row]]) for row in running} - {-1})[:1]
        can = rooms.may_hold(domain, unit.need)
        values = [value for value in here if can[value]]
    else:
        values = _ranked(draft, unit, seat, rooms, domain)
    return any(_seat_near(draft, unit, seat, rooms, domain == value) for value in values)


def _ranked(draft: PackingDraft, unit: Unit, seat: Seat, rooms: "Rooms", domain: arrays.IntArray) -> list[int]:
    """Domains that may hold what a gang, or a group of one, needs, the best first."""
    can = rooms.may_hold(domain, unit.need)
    if seat.below is None:
        return rooms.nodes.domains(domain, can)
    # Where least must be stopped, as far as that is known, else the roomiest.
    able = np.flatnonzero(can)
    values: list[int] = able[np.lexsort((able, -rooms.free(domain)[able]))].tolist()
    found = {each: _clearing(draft, unit, seat, np.flatnonzero(domain == each)) for each in values[:MOST_COMPARED]}
    known = {value: clearing.price for value, clearing in found.items() if clearing is not None}
    return [*sorted(known, key=known.__getitem__), *(each for each in values if each not in known)]


class Rooms:
    """Number of a gang's pods that topology domains hold, counted node by node once for all domains."""

    def __init__(self, draft: PackingDraft, unit: Unit, below: int | None) -> None:
        """below: counts as if all pods below this priority were stopped; None: in free resources."""
        self._draft, self._unit = draft, unit
        self._shapes = [draft.shape(row) for row in unit.rows]
        self._kinds = Counter(self._shapes)
        draft.work += PLACES_PER_COUNT * len(self._kinds)
        free = draft.packer.ledger.free
        self._reach = free if below is None else draft.reclaimable(below).free()
        self._open = {shape: draft.packer.eligible(shape) for shape in self._kinds}
        self.copies = {shape: free.copies(shape) * self._open[shape] for shape in self._kinds}
        self._most = self.copies
        if below is not None:
            self._most = {shape: self._reach.copies(shape) * self._open[shape] for shape in self._kinds}

    @cached_property
    def nodes(self) -> GangNodes:
        """Nodes as the gang's pods see them, while nothing is placed."""
        return GangNodes(self._draft, self._unit.gang, self._unit.rows, self.copies)

    def free(self, domain: arrays.IntArray) -> arrays.IntArray:
        """Pods that fit now: exact for equal pods, a guess for unequal ones. Shape (domains,).

        domain: shape (nodes,), the domain of each node; -1 for none.
        """
        most: arrays.IntArray = np.max([domain_sums(copies, domain) for copies in self.copies.values()], axis=0)
        return most

    def most(self, domain: arrays.IntArray) -> arrays.IntArray:
        """Pods that fit at most, after any preemption; never too low. Shape (domains,)."""
        parts = [np.minimum(domain_sums(self._most[shape], domain), count) for shape, count in self._kinds.items()]
        total: arrays.IntArray = np.sum(parts, axis=0)
        return total

    def may_hold(self, domain: arrays.IntArray, need: int) -> arrays.BoolArray:
        """Domains that may hold so many of the pods, after any preemption; the others certainly cannot."""
        may: arrays.BoolArray = self.most(domain) >= need
        if len(self._kinds) > 1:
            may &= has_in_all(self._reach, np.any(list(self._open.values()), axis=0), domain, self._shapes, need)
        return may


def has_in_all(
    free: capacity.Free,
    eligible: arrays.BoolArray,
    domain: arrays.IntArray,
    shapes: Sequence[workloads.PodShape],
    need: int,
) -> arrays.BoolArray:
    """Domains whose eligible nodes have as much of each resource in all as the smallest of these pods request, so many
    of them. Shape (domains,).
    """
    enough = np.ones(int(domain.max(initial=-1)) + 1, dtype=np.bool_)
    for left, asked in (
        (free.cpu_milli, [shape.cpu_milli for shape in shapes]),
        (free.memory_bytes, [shape.memory_bytes for shape in shapes]),
        (free.gpu_milli.clip(min=0).sum(axis=1), [shape.total_gpu_milli for shape in shapes]),
    ):
        enough &= domain_sums(np.maximum(left, 0) * eligible, domain) >= sum(sorted(asked)[:need])
    return enough


def domain_sums(copies: arrays.IntArray, domain: arrays.IntArray) -> arrays.IntArray:
    """Sum over the nodes of each domain; nodes of domain -1 are in none. Shape (domains,)."""
    inside = domain >= 0
    count = int(domain.max(initial=-1)) + 1
    return np.bincount(domain[inside], copies[inside], count).astype(np.int64)


def _seat_near(draft: PackingDraft, unit: Unit, seat: Seat, rooms: Rooms, allowed: arrays.BoolArray | None) -> bool:
    """Places a gang inside `allowed`, in as few domains of its preferred label as can be found."""
    mark, prefer = draft.mark, draft.snapshot.gangs[unit.gang].prefer_within
    left = _left_near(draft, unit, seat, rooms, allowed, prefer)
    # A member above the minimum must be placed itself: its gang lacks none without it.
    if len(left) < len(unit.rows) and lacking(draft, unit.gang) <= 0:
        return True
    draft.roll_back(mark)
    return False


def _left_near(
    draft: PackingDraft, unit: Unit, seat: Seat, rooms: Rooms, allowed: arrays.BoolArray | None, prefer: str | None
) -> list[int]:
    """Places those of these pods of a gang that fit, inside `allowed`, and returns the others."""
    nodes = rooms.nodes
    everywhere = np.ones(len(draft.snapshot.nodes), dtype=bool) if allowed is None else allowed
    among = np.flatnonzero(everywhere)
    if prefer is not None:
        among = nodes.in_fewest(np.where(everywhere, draft.domain(prefer), -1))
    left = _left_by_stops(draft, unit, seat, np.flatnonzero(everywhere))
    left = _left_by_choice(unit, seat, nodes, among) if left is None else left
    return _left_of(draft, left, seat, allowed)


def _left_by_stops(draft: PackingDraft, unit: Unit, seat: Seat, among: arrays.IntArray) -> list[int] | None:
    """Places as many equal pods as the gang needs by the fewest stops, and returns the others; None: nothing is placed,
    since no such choice was found.
    """
    mark, found = draft.mark, _clearing(draft, unit, seat, among)
    if found is None:
        return None
    for victim in found.victims:
        draft.unseat(victim)
    waiting = iter(unit.rows)
    if all(seat.place(next(waiting), node) for node, many in found.members for _ in range(many)):
        return list(waiting)
    draft.roll_back(mark)
    return None


def _clearing(draft: PackingDraft, unit: Unit, seat: Seat, among: arrays.IntArray) -> GangClearing | None:
    row = unit.rows[0]
    if seat.below is None or len({draft.kind(each) for each in unit.rows}) > 1 or not draft.may_preempt(row):
        return None
    return least_clearing(draft, draft.shape(row), unit.need, seat.below, among)


def _left_by_choice(unit: Unit, seat: Seat, nodes: GangNodes, among: arrays.IntArray) -> list[int]:
    """Places the gang's pods on the nodes chosen for all of them, as far as the choice holds; returns the others."""
    waiting, seated = [iter(rows) for rows in nodes.rows.values()], set[int]()
    for node, members in nodes.best(among).on.items():
        for kind, many in members.items():
            seated.update(row for row in islice(waiting[kind], many) if seat.place(row, node))
    return [row for row in unit.rows if row not in seated]


def _left_of(draft: PackingDraft, rows: Sequence[int], seat: Seat, allowed: arrays.BoolArray | None) -> list[int]:
    """Places each of these pods that fits; returns those that do not."""
    left, futile = list[int](), set[Kind]()
    for row in rows:
        kind = draft.kind(row)
        if kind in futile or not seat.place(row, allowed):
            futile.add(kind)  # room only shrinks while a gang is placed
            left.append(row)
    return left
