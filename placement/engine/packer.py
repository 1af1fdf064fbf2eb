"""Packing engine: the node and devices where a pod costs least under a policy, with a cache of ratings."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.capacity import CPU
from cluster.neighbours import Neighbours
from cluster.nodes import NAMING_LABELS, LabelMatches, NodeFilter
from cluster.power import PowerTable
from cluster.power_floors import PowerFloors, held_devices
from cluster.snapshot import Snapshot, device_numbers
from cluster.workloads import ALONE, PODS, WHOLE_GPU_MILLI, PodShape
from placement.engine.idle_nodes import IdleNodes
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy


class PowerHeadroom:
    """Power headroom while a plan is made: the useful floors of a pod's devices must fit what every domain above the
    node has left. Follows the packer's ledger.
    """

    def __init__(self, snapshot: Snapshot, power: PowerTable) -> None:
        self.floors = PowerFloors(snapshot, power)
        self._mark = 0

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
    # (benchmarks/packing.py).

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        rank: IntArray | None = None,
        matches: LabelMatches | None = None,
        idle: IdleNodes | None = None,
    ) -> None:
        """Engine for a snapshot's nodes with its bound pods charged; the policy begins a draft with those pods.

        rank: shape (nodes,), all different; among nodes of equal cost, the one with the lowest rank is taken. None
        takes the first in the table; names then decide where tables are sorted by name (`content_rank`). matches: what
        the last plan knew of the nodes' labels; None: nothing. idle: price of starting idle nodes; None: there is none.
        """
        policy.begin(snapshot)
        self.nodes = snapshot.nodes
        self.gpu_type_names = snapshot.gpu_type_names
        self.ledger = Ledger.of(snapshot)
        self.policy = policy
        self.rank = rank
        self.idle = idle
        # Where no headroom is published, power refuses no node.
        known = snapshot.power
        self.power = PowerHeadroom(snapshot, known) if known is not None and known.headroom_w else None
        self._rows: OrderedDict[PodShape, _Row] = OrderedDict()
        self._rated: dict[tuple[PodShape | int, ...], tuple[int, float]] = {}
        """Devices and cost by rating key, version of the policy and state of a node: the states of nodes repeat."""
        self._most_rows = max(8, ROW_BYTES // (16 * max(len(self.nodes), 1)))
        self._version = policy.version
        self._keys = lru_cache(maxsize=4096)(lambda shape: (policy.rating_key(shape), filters_of(shape)))
        self.filter = NodeFilter(self.nodes, self.gpu_type_names, matches)
        self._eligible = lru_cache(maxsize=512)(self.filter.eligible)
        self.neighbours = Neighbours.of(snapshot, self.filter) if snapshot.pods.has_rules else None

    def choose(self, shape: PodShape, among: BoolArray | int | None = None) -> Choice | None:
        """Cheapest choice for a pod of this shape now; None when it fits nowhere. Changes nothing.

        among: shape (nodes,), nodes it may use besides the shape's own constraints (one rack, all but the full ones);
        or a single node.
        """
        if isinstance(among, int):
            return self._on(shape, among)
        cost, devices = self.costs(shape)
        if among is not None:
            cost = np.where(among, cost, np.inf)
        node = int(cost.argmin()) if len(cost) else 0
        if not len(cost) or cost[node] == np.inf:
            return None
        if self.rank is not None:
            ties = np.flatnonzero(cost == cost[node])
            node = int(ties[self.rank[ties].argmin()])
        return Choice(node, int(devices[node]), float(cost[node]))

    def _on(self, shape: PodShape, node: int) -> Choice | None:
        """The choice on one node, without a look at the others where nothing but the node decides."""
        if self.power is not None or self.neighbours is not None or self.policy.counts_pods or self.idle is not None:
            cost, devices = self.costs(shape)
            return Choice(node, int(devices[node]), float(cost[node])) if cost[node] < np.inf else None
        (key, filters), ledger = self._keys(shape), self.ledger
        milli, kind = ledger.gpu_milli[node].tolist(), int(ledger.gpu_type[node])
        is_short = any(left[node] < amount for _, amount, left in ledger.free.asked(shape))
        if is_short or sum(left >= shape.gpu_milli for left in milli) < shape.gpus or not self._eligible(filters)[node]:
            return None
        state = (key, self.policy.version, kind, int(ledger.gpus[node]), int(ledger.cpu_milli[node]), *milli)
        if (known := self._rated.get(state)) is None:
            rated = self.policy.rate(key, ledger, np.array([node]))
            known = self._rated[state] = int(rated.devices[0]), float(rated.cost[0])
        surcharge = self.policy.surcharge(shape, ledger)
        return Choice(node, known[0], known[1] + (0.0 if surcharge is None or kind < 0 else float(surcharge[kind])))

    def place(self, shape: PodShape, choice: Choice) -> None:
        """Charges a pod to the result of `choose`."""
        self.ledger.take(shape, choice.node, device_numbers(choice.devices))
        if self.neighbours is not None:
            self.neighbours.count(shape.beside, choice.node, 1)
        if self.idle is not None:
            self.idle.pods[choice.node] += 1
        self.policy.placed(shape, choice.node)

    def remove(self, shape: PodShape, node: int, devices: int) -> None:
        """Removes a pod that left, or that was placed only to test a plan. devices: the bit mask that it held."""
        self.ledger.give(shape, node, device_numbers(devices))
        if self.neighbours is not None:
            self.neighbours.count(shape.beside, node, -1)
        if self.idle is not None:
            self.idle.pods[node] -= 1
        self.policy.removed(shape, node)

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

        The cost is the policy's rating, which is cached, with its surcharge by GPU type and the price of starting an
        idle node where there is one. Those two change with every pod, so they are added anew.

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
        if self.idle is not None:
            cost += self.idle.costs(shape)
        return cost, row.devices

    def _row(self, key: PodShape) -> _Row:
        if self._version != self.policy.version:
            self._rows.clear()
            self._version = self.policy.version
        row, mark = self._rows.get(key), self.ledger.mark
        if row is None:
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
