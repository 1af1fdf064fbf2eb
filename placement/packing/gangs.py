"""Gangs: placed whole or not at all, where others must leave for them by the fewest stops."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np

from cluster import arrays, capacity, workloads
from cluster.workloads import ALONE, PodShape
from placement.packing.draft import Kind, PackingDraft, Within, lacking, members_running
from placement.packing.gang_nodes import MOST_COMPARED, GangNodes
from placement.packing.preemption import PLACES_PER_CLEARING, fewest_victims, may_all_leave, stopped_with
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


def seat_together(draft: PackingDraft, unit: Unit, seat: Seat) -> bool:
    """Places at least `unit.need` of a gang's pods, or none. Its other pods follow as far as they fit.

    Topology domains that cannot hold that many, by a count that is never too low, are not tried.
    """
    wanted = draft.snapshot.gangs[unit.gang]
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
        values = ranked_domains(draft, unit, seat, rooms, domain)
    return any(_seat_near(draft, unit, seat, rooms, domain == value) for value in values)


def ranked_domains(draft: PackingDraft, unit: Unit, seat: Seat, rooms: "Rooms", domain: arrays.IntArray) -> list[int]:
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


MOST_PER_NODE = 16
"""Members of a gang on one node for which victims are looked for. Chosen: the GPUs of the widest common server."""
MOST_KINDS = 64
"""Kinds of nodes that are looked at for one gang; where more differ, its victims are found member by member."""
NEVER_MET = 1 << 50
"""Cost of what cannot be."""
VICTIM, HIGHEST = 1 << 28, 1 << 14
"""Cost of a victim, and of one of the highest priority, who would stop others in turn, in nodes: any number of them."""
MOST_MINUTES = 1 << 20
"""Work that a node loses at most, in minutes of devices, where teams have shares: a minute counts as a victim then."""


@dataclass(frozen=True, slots=True)
class GangClearing:
    """Pods that leave for a gang, and the members that start on each node then."""

    price: tuple[int, int, int]
    """Highest priority of a stopped pod, pods stopped, and nodes used; the least is best."""
    victims: tuple[int, ...]
    members: tuple[tuple[int, int], ...]
    """Number of members by node."""


def least_clearing(
    draft: PackingDraft, shape: PodShape, need: int, priority: int, nodes: arrays.IntArray
) -> GangClearing | None:
    """The clearing of these nodes that loses least for so many pods of a shape; None where this search finds none.

    Sets: nodes v, numbers j of members. Data: c_vj, pods stopped on v to make room for j of them, of the lowest
    priorities that suffice in all. Variables: one j for each v. Objective: the sum of c_vj, subject to a sum of j of
    `need`; exact by dynamic programming. What two nodes lose together, as of one gang, counts twice.
    """
    if shape.beside != ALONE or draft.packer.power is not None or not (shape.is_whole_gpu or not shape.gpus):
        return None
    lower, open_nodes = draft.reclaimable(priority), nodes[draft.packer.eligible(shape)[nodes]]
    for band in range(lower.bands):
        most = np.minimum(lower.free(band).copies(shape, open_nodes), min(need, MOST_PER_NODE))
        if int(most.sum()) >= need:
            ceiling = int(lower.ceilings[band])
            victims = _Victims(draft, shape, ceiling + 1)
            members = victims.members(open_nodes[most > 0], most[most > 0], need)
            gone = {each for node, many in members for each in victims.of(node, many)}
            rows = tuple(sorted(stopped_with(draft, tuple(gone))))
            if members and may_all_leave(draft, rows):
                return GangClearing((ceiling, len(rows), len(members)), rows, members)
            return None
    return None


class _Victims:
    """Pods below a priority that make room for several pods of one shape on a node."""

    def __init__(self, draft: PackingDraft, shape: PodShape, below: int) -> None:
        self._draft, self._shape, self._below = draft, shape, below
        self._free = draft.packer.ledger.free.copies(shape)
        self._costs: dict[object, list[int]] = {}

    def of(self, node: int, many: int) -> tuple[int, ...]:
        """The fewest that suffice for so many; none where they fit now."""
        shape = self._shape
        if many <= self._free[node]:
            return ()
        together = replace(
            shape,
            gpus=shape.gpus * many,
            cpu_milli=shape.cpu_milli * many,
            memory_bytes=shape.memory_bytes * many,
            others=tuple((name, amount * many) for name, amount in shape.others),
        )
        return fewest_victims(self._draft, together, node, self._below)

    def members(self, nodes: arrays.IntArray, most: arrays.IntArray, need: int) -> tuple[tuple[int, int], ...]:
        """Number of members by node, at the least number of victims and then of nodes; empty where too many differ."""
        seen, chosen = Counter[object](), list[tuple[int, list[int]]]()
        for node, room in zip(nodes.tolist(), most.tolist(), strict=True):
            kind = (room, self._kind(node))
            seen[kind] += 1
            if seen[kind] > need:
                continue
            if kind not in self._costs:
                if len(self._costs) >= MOST_KINDS:
                    return ()
                self._draft.work += PLACES_PER_CLEARING * room
                self._costs[kind] = [self._cost(node, many) for many in range(room + 1)]
            chosen.append((node, self._costs[kind]))
        best, takes = np.full(need + 1, NEVER_MET), list[arrays.IntArray]()
        best[0] = 0
        for _, costs in chosen:
            options = np.full((len(costs), need + 1), NEVER_MET)
            for many, cost in enumerate(costs):
                options[many, many:] = best[: need + 1 - many] + cost
            takes.append(options.argmin(axis=0))
            best = options.min(axis=0)
        if best[need] >= NEVER_MET:
            return ()
        left, found = need, list[tuple[int, int]]()
        for (node, _), take in zip(reversed(chosen), reversed(takes), strict=True):
            if many := int(take[left]):
                found.append((node, many))
                left -= many
        return tuple(reversed(found))

    def _cost(self, node: int, many: int) -> int:
        """Victims, then those of the highest priority, then the node, as one number."""
        if not many or many <= self._free[node]:
            return 1 if many else 0
        gone = self.of(node, many)
        lost = stopped_with(self._draft, gone)
        highest = sum(int(self._draft.resistance[each]) >= self._below - 1 for each in lost)
        minutes = sum(int(self._draft.loss[each]) for each in lost) // 60
        victims = len(lost) if self._draft.shares is None else min(minutes, MOST_MINUTES)
        return (VICTIM * victims + HIGHEST * highest + 1) if gone else NEVER_MET

    def _kind(self, node: int) -> object:
        """Key of nodes on which as many pods of the shape cost as many victims."""
        draft, free = self._draft, self._draft.packer.ledger
        lower = (row for row in draft.pods_on(node) if draft.resistance[row] < self._below)
        room = tuple(sorted(free.gpu_milli[node].tolist())), int(free.cpu_milli[node]), int(free.memory_bytes[node])
        if draft.shares is not None:
            return room, tuple(sorted((*draft.interchangeable(row), int(draft.loss[row]) // 60) for row in lower))
        return room, tuple(sorted(map(draft.interchangeable, lower)))


def _seat_near(draft: PackingDraft, unit: Unit, seat: Seat, rooms: Rooms, allowed: arrays.BoolArray | None) -> bool:
    """Places a gang inside `allowed`, in as few domains of its preferred label as can be found."""
    mark, prefer = draft.mark, draft.snapshot.gangs[unit.gang].prefer_within
    left = left_near(draft, unit, seat, rooms, allowed, prefer)
    # A member above the minimum must be placed itself: its gang lacks none without it.
    if len(left) < len(unit.rows) and lacking(draft, unit.gang) <= 0:
        return True
    draft.roll_back(mark)
    return False


def left_near(
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
