"""Packing engine: the node and devices where a pod costs least under a policy, with a cache of ratings."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.capacity import CPU
from cluster.neighbours import Neighbours
from cluster.nodes import NAMING_LABELS, LabelMatches, NodeFilter
from cluster.power import PowerTable
from cluster.power_floors import PowerFloors, held_devices, paths_of
from cluster.snapshot import PENDING, Snapshot, device_numbers
from cluster.workloads import ALONE, PODS, WHOLE_GPU_MILLI, PodShape
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy

TIGHTNESS = 16
"""Exponent that makes a rise near the budget expensive. A rise of 1 W in a domain's expected peak weighs as the peak's
fraction of the budget to the power TIGHTNESS - 1: 35 times as much at 0.95 of a budget as at 0.75. Low exponents
stack services until the first budget is reached; high ones level peaks whatever a pod adds to them. Chosen: of 4, 8,
16 and 40, none was best on all of five synthetic and public profiles of request rates; 16 was never far behind."""
EVEN_SHARE = 0.05
"""Tolerance within which domains count as equal, so that the packing policy decides among them: a fraction of the price
of the pod's own highest hour in the cheapest domain. Chosen: wide tolerances let best fit stack pods until the
tolerance is passed."""


class PowerHeadroom:
    """Power headroom while a plan is made. Follows the packer's ledger, and is updated as pods start and stop.

    Hard limit: the useful floors of a pod's devices must fit the remaining headroom of every domain above the node.
    Preference: each service has a profile of expected power over the hours of a day or a week. The peak of a domain is
    that of the sum of its profiles, which is less than the sum of peaks where hours differ. A pod therefore goes where
    the expected peaks of the domains above rise least. A rise weighs more the nearer a peak is to its budget.
    """

    def __init__(self, snapshot: Snapshot, power: PowerTable) -> None:
        self.floors = PowerFloors(snapshot, power)
        hours = max((len(course) for course in power.courses.values()), default=1)
        # A profile of another length cannot be added to the others.
        self.courses: Mapping[str, FloatArray] = {n: one for n, one in power.courses.items() if len(one) == hours}
        self._budget_w = np.maximum(power.domains.budget_w[self.floors.domain_of_limit], 1.0)
        self._swing_w, self._even_w = _swings(snapshot, power)
        # Limits above each place and its parts of them, shape (places, longest path); unused entries have part 0.
        paths = self.floors.paths
        shape = len(paths), max((len(path) for path in paths), default=0)
        self._limit_at, self._part_at = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        for place, path in enumerate(paths):
            for n, (limit, part) in enumerate(path):
                self._limit_at[place, n], self._part_at[place, n] = limit, part
        self._expected_w = np.tile(_at_rest_w(power, self.floors.limits)[:, None], (1, hours))
        # Nodes of one place whose GPUs have the same power range are one kind: a pod's peak is computed once per kind.
        rounded = np.stack([self.floors.place_of, self._swing_w.round().astype(np.int64)], axis=1)
        self._kinds, kind_of = np.unique(rounded, axis=0, return_inverse=True)
        self._kind_of: IntArray = kind_of.reshape(-1)
        self._mark = 0
        if self.courses:
            self._count_running(snapshot)

    def catch_up(self, ledger: Ledger) -> None:
        """Charges the floors of devices that got their first pod since the last call; returns those of emptied ones."""
        if ledger.mark == self._mark:
            return
        nodes = ledger.changed_since(self._mark)
        self.floors.follow(nodes, held_devices(ledger.gpu_milli[nodes], ledger.gpus[nodes]))
        self._mark = ledger.mark

    def allowed(self, shape: PodShape, devices: IntArray, ledger: Ledger) -> BoolArray:
        """Whether the headroom covers the floors of the devices on which the pod would be the first. Shape (nodes,).

        devices: shape (nodes,), the bit mask that it would take on each node.
        """
        self.catch_up(ledger)
        if shape.gpu_milli == WHOLE_GPU_MILLI or not shape.gpus:
            return self.floors.allows(shape.gpus)
        extra = np.zeros(len(devices), dtype=np.int64)
        for device in range(ledger.gpu_milli.shape[1]):
            extra += (devices >> device & 1) & (ledger.gpu_milli[:, device] == WHOLE_GPU_MILLI)
        allowed: BoolArray = np.ones(len(devices), dtype=np.bool_)
        for count in range(1, shape.gpus + 1):
            allowed &= (extra != count) | self.floors.allows(count)
        return allowed

    def preferred(self, shape: PodShape, owner: str, feasible: BoolArray) -> BoolArray | None:
        """Nodes, among the feasible ones, where the pod's daily profile fits best; None where profiles decide nothing.

        feasible: shape (nodes,). Nodes outside every power domain stay in, since nothing is known against them.
        """
        course = self.courses.get(owner)
        if course is None or not shape.gpus:
            return None
        there = np.bincount(self._kind_of[feasible], minlength=len(self._kinds)) > 0
        inside = there & (self._kinds[:, 0] >= 0)
        if not inside.any():
            return None
        kinds = np.flatnonzero(inside)
        limit, most_w = self._most_w(shape, kinds)
        budget_w = self._budget_w[limit]
        before = self._expected_w.max(axis=1)[limit] / budget_w
        after = (self._expected_w[limit] + most_w[:, :, None] * course).max(axis=2) / budget_w
        # Prices of the rises of all peaks above with the pod there, and of a rise by its own highest hour, shape
        # (kinds,), in watts weighted by `TIGHTNESS`: budget × (fraction after ** t - fraction before ** t).
        price = (budget_w * (after**TIGHTNESS - before**TIGHTNESS)).sum(axis=1)
        own = (most_w * course.max() * TIGHTNESS * before ** (TIGHTNESS - 1)).sum(axis=1)
        keep = self._kinds[:, 0] < 0
        keep[kinds[price <= price.min() + EVEN_SHARE * own[price.argmin()]]] = True
        return np.asarray(feasible & keep[self._kind_of], dtype=np.bool_)

    def _most_w(self, shape: PodShape, kinds: IntArray) -> tuple[IntArray, FloatArray]:
        """Limits above, and the most power above idle that the pod adds to each; both of shape (kinds, longest path).

        Entries past the end of a shorter path add nothing.
        """
        place = self._kinds[kinds, 0]
        most_w: FloatArray = self._part_at[place] * _gpus(shape) * self._kinds[kinds, 1][:, None]
        return self._limit_at[place], most_w

    def peak_share(self, shape: PodShape, owner: str, node: int) -> float | None:
        """Highest expected fraction of a budget above a node with such a pod there; None where no profile is known."""
        course = self.courses.get(owner)
        if course is None or not shape.gpus or self.floors.place_of[node] < 0:
            return None
        limit, most_w = self._most_w(shape, self._kind_of[node : node + 1])
        share = (self._expected_w[limit] + most_w[:, :, None] * course).max(axis=2) / self._budget_w[limit]
        return float(share[self._part_at[self.floors.place_of[node : node + 1]] > 0].max())

    def started(self, shape: PodShape, owner: str, node: int) -> None:
        """Counts a pod's expected power at its node from now on."""
        self._count(shape, owner, node, 1)

    def stopped(self, shape: PodShape, owner: str, node: int) -> None:
        """Stops counting it there. owner: the one with which it started."""
        self._count(shape, owner, node, -1)

    def _count(self, shape: PodShape, owner: str, node: int, sign: int) -> None:
        place = int(self.floors.place_of[node])
        if place < 0 or not shape.gpus or not self.courses:
            return
        course = self.courses.get(owner)
        watts = self._even_w[node] if course is None else self._swing_w[node] * course
        for limit, part in self.floors.paths[place]:
            self._expected_w[limit] += sign * _gpus(shape) * part * watts

    def _count_running(self, snapshot: Snapshot) -> None:
        """Counts all running pods, service by service: pod by pod, 60,000 would take a second."""
        pods = snapshot.pods
        gpus = np.array([_gpus(shape) for shape in pods.shapes])[pods.shape]
        rows = np.flatnonzero((pods.node != PENDING) & (gpus > 0))
        rows = rows[self.floors.place_of[pods.node[rows]] >= 0]
        number = {owner: n for n, owner in enumerate(self.courses)}
        owner_of = np.array([number.get(pods.owner[row], -1) for row in rows.tolist()], dtype=np.int64)
        for n, course in enumerate((*self.courses.values(), None)):
            own = rows[owner_of == (-1 if course is None else n)]
            node = pods.node[own]
            watts = gpus[own] * (self._even_w if course is None else self._swing_w)[node]
            at_place_w = np.bincount(self.floors.place_of[node], watts, len(self.floors.paths))
            at_limit_w = np.bincount(
                self._limit_at.ravel(), (self._part_at * at_place_w[:, None]).ravel(), len(self._budget_w)
            )
            self._expected_w += at_limit_w[:, None] * (1.0 if course is None else course)


def _gpus(shape: PodShape) -> float:
    return shape.total_gpu_milli / WHOLE_GPU_MILLI


def _swings(snapshot: Snapshot, power: PowerTable) -> tuple[FloatArray, FloatArray]:
    """Range from idle to the highest limit, and the draw of a GPU without a profile, in watts per node and GPU.

    Both at the feed. The draw without a profile is what the node's busy devices draw now, and at least the useful
    floor.
    """
    devices, draw_w = power.devices, power.readings.draw_w
    count = np.bincount(devices.domain, minlength=len(power.domains))

    def mean(watts: FloatArray) -> FloatArray:
        total = np.bincount(devices.domain, watts * (1 + devices.overhead_share), len(power.domains))
        return np.asarray(total / np.maximum(count, 1), dtype=np.float64)

    swing_w = mean(np.where(devices.managed, devices.max_w - devices.idle_w, 0.0))
    floor_w = mean(np.where(devices.managed, devices.floor_w - devices.idle_w, 0.0))
    drawn_w = mean(np.where(devices.managed, np.maximum(draw_w - devices.idle_w, 0.0), 0.0))
    domain = [power.domains.names.row(name) for name in snapshot.nodes.names]
    row = np.array([-1 if one is None else one for one in domain], dtype=np.int64)
    held = held_devices(snapshot.free().gpu_milli, snapshot.nodes.gpus)
    of_node = [np.append(column, 0.0)[row] for column in (swing_w, floor_w, drawn_w)]
    per_busy_w = of_node[2] * np.append(count, 0)[row] / np.maximum(held, 1)
    return of_node[0], np.clip(per_busy_w, of_node[1], np.maximum(of_node[0], of_node[1]))


def _at_rest_w(power: PowerTable, limits: tuple[str, ...]) -> FloatArray:
    """Power through each limit with no GPU allocated, in watts.

    Managed devices count at idle, opted-out ones and all else at their maximum.
    """
    devices = power.devices
    rest_w = np.where(devices.managed, devices.idle_w, np.maximum(devices.max_w, devices.default_w))
    own_w = power.domains.other_w + np.bincount(
        devices.domain, rest_w * (1 + devices.overhead_share), len(power.domains)
    )
    number = {power.domains.names.row(name): limit for limit, name in enumerate(limits)}
    path_of, made = paths_of(power), np.zeros(len(limits))
    for domain in np.flatnonzero(own_w).tolist():
        for above, part in path_of(domain):
            if above in number:
                made[number[above]] += part * own_w[domain]
    return made


ROW_BYTES = 64 * 2**20
"""Memory for cached ratings, in bytes. 16 bytes a node: 3,400 rating keys at 1,213 nodes, 200 at 20,000. The least
recently used row is dropped first; openb has 91 rating keys in all."""
IN_RATINGS = (CPU, PODS)
"""Resources that a rating accounts for, beside GPUs: the others are looked at when a node is chosen."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Node and devices chosen for a pod."""

    node: int
    """Row of the node table."""
    devices: int
    """Bit mask of the node's devices; 0 for a pod without GPUs."""
    cost: float
    """Cost under the policy, including surcharge. Comparable between nodes, not between policies."""


@dataclass(slots=True, eq=False)
class _Row:
    """Cached ratings under one key; the cost is infinite where the pod does not fit."""

    cost: FloatArray
    devices: IntArray
    mark: int
    """Ledger's mark up to which the ratings are current."""


class Packer:
    """Ledger, eligibility of nodes and a policy, combined. Handles one pod at a time; callers place sets pod by pod.

    Ratings are cached per (rating key, node), and a node is rated again only after it changed. A decision therefore
    rates only the nodes that changed since the last pod of the same shape, and then reads one row of costs.

    Others may change the same ledger through `take` and `give`: the engine notices.
    """

    # 1,213 nodes: 0.03 ms for the median decision under BestFit, whose ratings cost next to nothing
    # (benchmarks/packing_speed.py).

    def __init__(
        self, snapshot: Snapshot, policy: Policy, rank: IntArray | None = None, matches: LabelMatches | None = None
    ) -> None:
        """Engine for a snapshot's nodes with its bound pods charged; the policy begins a draft with those pods.

        rank: shape (nodes,), all different; among nodes of equal cost, the one with the lowest rank is taken. None
        takes the first in the table; names then decide where tables are sorted by name (`content_rank`). matches: what
        the last plan knew of the nodes' labels; None: nothing.
        """
        policy.begin(snapshot)
        self.nodes = snapshot.nodes
        self.gpu_type_names = snapshot.gpu_type_names
        self.ledger = Ledger.of(snapshot)
        self.policy = policy
        self.rank = rank
        # Where no headroom is published, power neither refuses nor prefers any node.
        known = snapshot.power
        self.power = PowerHeadroom(snapshot, known) if known is not None and known.headroom_w else None
        self._rows: OrderedDict[PodShape, _Row] = OrderedDict()
        self._most_rows = max(8, ROW_BYTES // (16 * max(len(self.nodes), 1)))
        self._version = policy.version
        self._keys = lru_cache(maxsize=4096)(lambda shape: (policy.rating_key(shape), filters_of(shape)))
        self.filter = NodeFilter(self.nodes, self.gpu_type_names, matches)
        self._eligible = lru_cache(maxsize=512)(self.filter.eligible)
        self.neighbours = Neighbours.of(snapshot, self.filter)

    def choose(self, shape: PodShape, among: BoolArray | None = None, owner: str = "") -> Choice | None:
        """Cheapest choice for a pod of this shape now; None when it fits nowhere. Changes nothing.

        among: shape (nodes,), nodes it may use besides the shape's own constraints (one rack, all but the full ones).
        owner: its service, whose daily power profile may be known.
        """
        cost, devices = self.costs(shape)
        if among is not None:
            cost = np.where(among, cost, np.inf)
        preferred = self.preferred(shape, owner, cost)
        if preferred is not None:
            cost = np.where(preferred, cost, np.inf)
        node = int(cost.argmin()) if len(cost) else 0
        if not len(cost) or cost[node] == np.inf:
            return None
        if self.rank is not None:
            ties = np.flatnonzero(cost == cost[node])
            node = int(ties[self.rank[ties].argmin()])
        return Choice(node, int(devices[node]), float(cost[node]))

    def preferred(self, shape: PodShape, owner: str, cost: FloatArray) -> BoolArray | None:
        """Nodes whose power domains suit the pod's daily power profile best; None where profiles decide nothing.

        cost: shape (nodes,), as returned by `costs`; infinite where the pod cannot go.
        """
        return None if self.power is None else self.power.preferred(shape, owner, cost < np.inf)

    def place(self, shape: PodShape, choice: Choice, owner: str = "") -> None:
        """Charges a pod to the result of `choose`."""
        self.ledger.take(shape, choice.node, device_numbers(choice.devices))
        if self.neighbours is not None:
            self.neighbours.started(shape, choice.node)
        self.policy.placed(shape, choice.node)
        if self.power is not None:
            self.power.started(shape, owner, choice.node)

    def remove(self, shape: PodShape, node: int, devices: int, owner: str = "") -> None:
        """Removes a pod that left, or that was placed only to test a plan. devices: the bit mask that it held."""
        self.ledger.give(shape, node, device_numbers(devices))
        if self.neighbours is not None:
            self.neighbours.stopped(shape, node)
        self.policy.removed(shape, node)
        if self.power is not None:
            self.power.stopped(shape, owner, node)

    def eligible(self, shape: PodShape) -> BoolArray:
        """Nodes that the shape may use, whatever is free. Shape (nodes,); do not write to it."""
        return self._eligible(self._keys(shape)[1])

    def feasible(self, shape: PodShape) -> BoolArray:
        """Nodes where a pod of this shape may start and has room now, regardless of power. Shape (nodes,)."""
        return self._beside(shape, self.eligible(shape) & self.ledger.free.fits(shape))

    def _beside(self, shape: PodShape, nodes: BoolArray) -> BoolArray:
        """Those of these nodes where the rules between pods allow one of this shape."""
        allowed = None if self.neighbours is None else self.neighbours.allowed(shape)
        return nodes if allowed is None else nodes & allowed

    @property
    def floors(self) -> PowerFloors | None:
        """Power headroom, current with the ledger; None where no headroom is published."""
        if self.power is None:
            return None
        self.power.catch_up(self.ledger)
        return self.power.floors

    def costs(self, shape: PodShape) -> tuple[FloatArray, IntArray]:
        """Cost on every node, infinite where the pod may not or cannot run, and the devices it would take.

        Both of shape (nodes,); do not write to the devices.
        """
        ledger = self.ledger
        key, filters = self._keys(shape)
        row = self._row(key)
        surcharge = self.policy.surcharge(shape, ledger)
        if not (row.cost < np.inf).any():  # no node has room, so nobody needs to know which ones the pod may use
            return row.cost.copy(), row.devices
        usable = self._eligible(filters)
        for name, amount, left in ledger.free.asked(shape):
            if name not in IN_RATINGS:
                usable = usable & (left >= amount)
        usable = self._beside(shape, usable)
        if self.power is not None and shape.gpus:
            usable = usable & self.power.allowed(shape, row.devices, ledger)
        cost = np.where(usable, row.cost, np.inf)
        if surcharge is not None:
            cost += np.append(surcharge, 0.0)[ledger.gpu_type]  # type -1, no GPU: the appended zero
        return cost, row.devices

    def _row(self, key: PodShape) -> _Row:
        if self._version != self.policy.version:
            self._rows.clear()
            self._version = self.policy.version
        row, mark = self._rows.get(key), self.ledger.mark
        if row is None or not self.policy.keeps_ratings:
            count = len(self.nodes)
            row = self._rows[key] = _Row(np.full(count, np.inf), np.zeros(count, dtype=np.int64), mark)
            stale = np.arange(count, dtype=np.int64)
            if len(self._rows) > self._most_rows:
                self._rows.popitem(last=False)
        else:
            self._rows.move_to_end(key)
            if row.mark == mark:
                return row
            stale = self.ledger.changed_since(row.mark)
            row.mark = mark
        row.cost[stale] = np.inf
        fitting = stale[self.ledger.free.fits(key, stale)]
        if len(fitting):
            rated = self.policy.rate(key, self.ledger, fitting)
            row.cost[fitting] = rated.cost
            row.devices[fitting] = rated.devices
        return row


def filters_of(shape: PodShape) -> PodShape:
    """Parts of a shape that decide where it may run at all; many shapes share them."""
    return replace(shape, cpu_milli=0, memory_bytes=0, gpu_milli=0, beside=ALONE)


def content_rank(snapshot: Snapshot, seed: int | None = None) -> IntArray:
    """Rank for each node that depends on its properties and its load, not on its name.

    Sorted by GPU type, GPUs, CPU, memory, labels, taints, then free resources, the fullest first. Nodes that are equal
    in all of this are interchangeable, so their order in the table makes no observable difference.

    seed: shuffles the ranks, the same way whatever the names; None leaves them sorted.
    Returns shape (nodes,), a permutation.
    """
    # 20,000 nodes without labels: 0.06 s.
    nodes, free = snapshot.nodes, snapshot.free()
    type_names = [kind.name for kind in snapshot.gpu_types]
    type_rank = np.array([*(sorted(type_names).index(name) for name in type_names), -1])[nodes.gpu_type]
    marks = [
        (
            tuple(sorted(item for item in labels.items() if item[0] not in NAMING_LABELS)),
            tuple(sorted((taint.key, taint.value, taint.effect) for taint in taints)),
        )
        for labels, taints in zip(nodes.labels, nodes.taints, strict=True)
    ]
    rank_of_marks = {mark: number for number, mark in enumerate(sorted(set(marks)))}
    least_important_first = (
        free.memory_bytes,
        free.cpu_milli,
        *np.sort(free.gpu_milli, axis=1).T[::-1],
        np.array([rank_of_marks[mark] for mark in marks], dtype=np.int64),
        nodes.memory_bytes,
        nodes.cpu_milli,
        nodes.gpus,
        type_rank,
    )
    rank = np.empty(len(nodes), dtype=np.int64)
    positions = np.arange(len(nodes)) if seed is None else np.random.default_rng(seed).permutation(len(nodes))
    rank[np.lexsort(least_important_first)] = positions
    return rank
