"""Pods that are placed together: gangs, whole or not at all, and instances that one by one would leave some out."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pulp

from cluster import arrays, capacity, snapshot, workloads
from placement.budget import Budget
from placement.mix.pulp_solver import solve
from placement.packing.draft import Kind, PackingDraft, Within, lacking, members_running
from placement.packing.gang_nodes import MOST_COMPARED, GangNodes
from placement.packing.gang_victims import GangClearing, least_clearing
from placement.packing.group_levels import TreeSeating, has_levels
from placement.packing.units import Unit
from placement.stock import Footprint, footprint_of

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
            return _ranked(draft, part, seat, Rooms(draft, part.rows, seat.below), domain)

        def seat_in(part: Unit, allowed: arrays.BoolArray) -> None:
            _left_near(draft, part, seat, Rooms(draft, part.rows, seat.below), allowed, None)

        def fewest(part: Unit, allowed: arrays.BoolArray) -> list[arrays.BoolArray]:
            rooms = Rooms(draft, part.rows, seat.below)
            best = GangNodes(draft, part.gang, part.rows, rooms.copies).best(np.flatnonzero(allowed))
            return [] if best.unseated else [np.isin(np.arange(len(allowed)), list(best.on))]

        return TreeSeating(draft, unit, ranked, seat_in, fewest).seat()
    rooms = Rooms(draft, unit.rows, seat.below)
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
        return GangNodes(draft, unit.gang, unit.rows, rooms.copies).domains(domain, can)
    # Where least must be stopped, as far as that is known, else the roomiest.
    able = np.flatnonzero(can)
    values: list[int] = able[np.lexsort((able, -rooms.free(domain)[able]))].tolist()
    found = {each: _clearing(draft, unit, seat, np.flatnonzero(domain == each)) for each in values[:MOST_COMPARED]}
    known = {value: clearing.price for value, clearing in found.items() if clearing is not None}
    return [*sorted(known, key=known.__getitem__), *(each for each in values if each not in known)]


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
        self.copies = {shape: free.copies(shape) * self._open[shape] for shape in self._kinds}
        self._most = self.copies
        if below is not None:
            self._most = {shape: self._reach.copies(shape) * self._open[shape] for shape in self._kinds}

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
    """Places those of these pods of a gang that fit, inside `allowed`, and returns the others.

    Domains are filled one after the other: the tightest that holds all remaining pods, else the roomiest. For equal
    pods, the roomiest-first order needs the fewest possible domains.
    """
    nodes = GangNodes(draft, unit.gang, unit.rows, rooms.copies)
    everywhere = np.ones(len(draft.snapshot.nodes), dtype=bool) if allowed is None else allowed
    among = np.flatnonzero(everywhere)
    if prefer is not None:
        domain = draft.domain(prefer)
        inside = np.where(everywhere, domain, -1)
        among = nodes.in_fewest(inside)
    left = _left_by_stops(draft, unit, seat, np.flatnonzero(everywhere))
    left = _left_by_choice(unit, seat, nodes, among) if left is None else left
    if left and prefer is not None:
        shapes: set[workloads.PodShape] = set()
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


InstanceKind = tuple[workloads.PodShape, int]
"""Shape and priority of instances that are interchangeable here."""

MOST_VARIABLES = 4_000
"""Pairs of shape and node, beyond which instances are placed one at a time. Chosen: 1 s of a core of 2026 at most."""
MOST_NODES = 50
"""Nodes of the tree search. Chosen: the model mostly takes one."""
PLACES_PER_VARIABLE = 500
"""Price of the model for each pair of shape and node, in examined places. Measured: 0.2 ms."""


def seat_instances_together(draft: PackingDraft, priority: int, budget: Budget) -> int:
    """Places the pending instances of this priority together, where one by one they, or those of lower priority, would
    not all find a place. Returns how many.

    The mix sells instances that fit together: one that may run anywhere must then leave the few nodes of another
    service to it. Pods are placed one at a time, so equal nodes look equal. A small model places as many as possible:
    x_gv instances of shape g on node v. It leaves room to those of lower priority as well, as far as that costs none of
    higher priority its own.
    """
    pods, ledger = draft.snapshot.pods, draft.packer.ledger
    waiting = np.flatnonzero((draft.node == snapshot.PENDING) & (draft.priority <= priority) & (pods.gang < 0)).tolist()
    rows = [row for row in waiting if pods.owner[row] and draft.shape(row).is_whole_gpu]
    rows.sort(key=lambda row: (-draft.priority[row], -draft.shape(row).gpus, row))
    shapes = list(dict.fromkeys(draft.shape(row) for row in rows))
    if len(shapes) < 2:
        return 0
    mark = draft.mark
    budget.spend(len(rows) * len(draft.snapshot.nodes))
    fit_one_by_one = all(draft.seat(row) for row in rows)
    draft.roll_back(mark)
    if fit_one_by_one:
        return 0
    # Nodes that some of these shapes fit, with what is free there; of equal ones no more than there are instances.
    fits = np.array([draft.packer.feasible(shape) for shape in shapes])
    whole = (ledger.gpu_milli >= workloads.WHOLE_GPU_MILLI).sum(axis=1)
    seen = Counter[tuple[bytes, Footprint]]()
    rooms: dict[int, Footprint] = {}
    for node in np.flatnonzero(fits.any(axis=0)).tolist():
        room = Footprint(int(whole[node]), int(ledger.cpu_milli[node]), int(ledger.memory_bytes[node]))
        kind = fits[:, node].tobytes(), room
        seen[kind] += 1
        if seen[kind] <= len(rows):
            rooms[node] = room
    if len(rooms) * len(shapes) > MOST_VARIABLES:
        return 0
    budget.spend(PLACES_PER_VARIABLE * len(rooms) * len(shapes))
    places = _most_places(draft, Counter((draft.shape(row), int(draft.priority[row])) for row in rows), rooms)
    seated = 0
    for row in rows:
        nodes = places.get((draft.shape(row), int(draft.priority[row])))
        if draft.priority[row] == priority and nodes:
            there = np.zeros(len(draft.snapshot.nodes), dtype=bool)
            there[nodes.pop(0)] = True
            seated += draft.seat(row, there)
    return seated


def _most_places(
    draft: PackingDraft, wanted: Mapping[InstanceKind, int], rooms: Mapping[int, Footprint]
) -> dict[InstanceKind, list[int]]:
    """Nodes by shape and priority, one entry per instance. rooms: what is free on each node that may be used."""
    problem = pulp.LpProblem("instances", pulp.LpMinimize)
    x = {
        (kind, node): problem.add_variable(f"x_{g}_{v}", 0, min(wanted[kind], footprint.times_in(room)), pulp.LpInteger)
        for g, kind in enumerate(wanted)
        for footprint in (footprint_of(kind[0]),)
        for allowed in (draft.packer.feasible(kind[0]),)
        for v, (node, room) in enumerate(rooms.items())
        if allowed[node]
    }
    # A place of a higher priority is worth more than all of the next lower one. Beyond 1e6 the lower ones are worth
    # nothing: solvers work to six digits.
    worth, all_below = dict[int, float](), 0.0
    for priority in sorted({priority for _, priority in wanted}):
        worth[priority] = 1.0 + all_below
        all_below += worth[priority] * sum(count for (_, each), count in wanted.items() if each == priority)
    highest = max(worth.values())
    worth = {priority: value / highest if value * 1e6 >= highest else 0.0 for priority, value in worth.items()}
    problem += -pulp.lpSum(worth[kind[1]] * variable for (kind, _), variable in x.items())
    for kind, count in wanted.items():
        problem += pulp.lpSum(variable for (each, _), variable in x.items() if each == kind) <= count
    on_node: dict[int, list[tuple[workloads.PodShape, pulp.LpVariable]]] = {}
    for (kind, node), variable in x.items():
        on_node.setdefault(node, []).append((kind[0], variable))
    for node, there in on_node.items():
        problem += pulp.lpSum(shape.gpus * variable for shape, variable in there) <= rooms[node].gpus
        problem += pulp.lpSum(shape.cpu_milli * variable for shape, variable in there) <= rooms[node].cpu_milli
        # In MiB: solvers lose whole numbers among sums of 1e12 bytes.
        memory = (-(-shape.memory_bytes // 2**20) * variable for shape, variable in there)
        problem += pulp.lpSum(memory) <= rooms[node].memory_bytes // 2**20
    if not solve(problem, most_nodes=MOST_NODES).has_answer:
        return {}
    return {
        kind: [node for (each, node), count in x.items() if each == kind for _ in range(round(count.value() or 0))]
        for kind in wanted
    }
