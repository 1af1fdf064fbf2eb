"""The packing engine: finds the node and devices where a pod costs least under a policy, and keeps what it knows.

Ratings are kept per (rating key, node) and a node is rated again only after it changed, so a decision looks at the few
nodes that were touched since the last pod of its kind, and then at one row of costs.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.nodes import NodeTable, eligible_nodes
from cluster.pods import PENDING, device_numbers
from cluster.power_floors import PowerFloors
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy
from placement.engine.power_headroom import PowerRoom

ROW_BYTES = 64 * 2**20
"""Memory for kept ratings. 16 bytes a node: 3,400 rating keys at 1,213 nodes, 200 at 20,000. The least lately used row
goes first; openb has 91 rating keys in all."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a pod would go."""

    node: int
    """Row of the node table."""
    devices: int
    """Bit mask of the node's devices; 0 for a pod without GPUs."""
    cost: float
    """What the policy asks for it, surcharge included. Comparable between nodes, not between policies."""


@dataclass(slots=True, eq=False)
class _Row:
    """The ratings under one key: infinite where the pod does not fit."""

    cost: FloatArray
    devices: IntArray
    mark: int
    """The ledger's mark up to which they hold."""


class Packer:
    """A ledger, who may run where, and a policy. One pod at a time; whoever needs many together places and removes.

    The same ledger may be changed by others too, through `take` and `give`: the engine notices.
    """

    # 1,213 nodes: 0.03 ms the median decision under BestFit, whose ratings cost next to nothing (benchmarks/scale.py).

    def __init__(
        self,
        nodes: NodeTable,
        gpu_type_names: tuple[str, ...],
        ledger: Ledger,
        policy: Policy,
        rank: IntArray | None = None,
        row_bytes: int = ROW_BYTES,
        power: PowerRoom | None = None,
    ) -> None:
        """rank: shape (nodes,), all different; of nodes that cost the same, the one with least rank is taken.

        None takes the first in the table, so names decide where tables are sorted by name: see
        placement/engine/node_order.py. power: what the watts allow and prefer, as the ledger stands; None: they decide
        nothing.
        """
        self.nodes = nodes
        self.gpu_type_names = gpu_type_names
        self.ledger = ledger
        self.policy = policy
        self.rank = rank
        self.power = power
        self._rows: OrderedDict[PodShape, _Row] = OrderedDict()
        self._most_rows = max(8, row_bytes // (16 * max(len(nodes), 1)))
        self._version = policy.version
        self._all = np.arange(len(nodes), dtype=np.int64)
        self._keys = lru_cache(maxsize=4096)(lambda shape: (policy.rating_key(shape), filters_of(shape)))
        self._eligible = lru_cache(maxsize=512)(lambda filters: eligible_nodes(filters, nodes, gpu_type_names))

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, rank: IntArray | None = None) -> "Packer":
        """An engine for a snapshot's nodes as its bound pods leave them; the policy is told of those pods."""
        pods = snapshot.pods
        for row in np.flatnonzero(pods.node != PENDING):
            policy.placed(pods.shapes[pods.shape[row]], int(pods.node[row]))
        power = PowerRoom.of(snapshot)
        return cls(snapshot.nodes, snapshot.gpu_type_names, Ledger.of(snapshot), policy, rank, power=power)

    def choose(self, shape: PodShape, among: BoolArray | None = None, owner: str = "") -> Choice | None:
        """Where a pod of this shape costs least now; None when it fits nowhere. Changes nothing.

        among: shape (nodes,), where it may go besides what the shape itself says (one rack, all but the full ones).
        owner: its service, whose hours are known to the power room or not.
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
        """Of the nodes where a pod fits, those to whose power domain its hours bring least; None: hours decide nothing.

        cost: shape (nodes,), as `costs` tells it; infinite where the pod does not go.
        """
        return None if self.power is None else self.power.preferred(shape, owner, cost < np.inf)

    def place(self, shape: PodShape, choice: Choice, owner: str = "") -> None:
        """Charge a pod to what `choose` found for it."""
        self.ledger.take(shape, choice.node, device_numbers(choice.devices))
        self.policy.placed(shape, choice.node)
        if self.power is not None:
            self.power.started(shape, owner, choice.node)

    def remove(self, shape: PodShape, node: int, devices: int, owner: str = "") -> None:
        """Take a pod away again: it left, or it was only tried. devices: the bit mask that it held."""
        self.ledger.give(shape, node, device_numbers(devices))
        self.policy.removed(shape, node)
        if self.power is not None:
            self.power.stopped(shape, owner, node)

    def eligible(self, shape: PodShape) -> BoolArray:
        """The nodes that the shape may run on, whatever is free. Shape (nodes,); not to be written to."""
        return self._eligible(self._keys(shape)[1])

    def feasible(self, shape: PodShape) -> BoolArray:
        """The nodes that have room for a pod of this shape now, whatever the watts say. Shape (nodes,)."""
        return self.eligible(shape) & self.ledger.fits(shape)

    @property
    def floors(self) -> PowerFloors | None:
        """The headroom as the ledger stands; None where nobody publishes any."""
        if self.power is None:
            return None
        self.power.catch_up(self.ledger)
        return self.power.floors

    def costs(self, shape: PodShape) -> tuple[FloatArray, IntArray]:
        """The cost on every node, infinite where the pod may not or cannot run, and the devices it would take.

        Both of shape (nodes,); the devices are not to be written to.
        """
        ledger = self.ledger
        key, filters = self._keys(shape)
        row = self._row(key)
        usable = self._eligible(filters) & (ledger.memory_bytes >= shape.memory_bytes)
        if self.power is not None and shape.gpus:
            usable &= self.power.allowed(shape, row.devices, ledger)
        cost = np.where(usable, row.cost, np.inf)
        surcharge = self.policy.surcharge(shape, ledger)
        if surcharge is not None:
            cost += np.append(surcharge, 0.0)[ledger.gpu_type]  # type -1, no GPU: the appended zero
        return cost, row.devices

    def _row(self, key: PodShape) -> _Row:
        if self._version != self.policy.version:
            self._rows.clear()
            self._version = self.policy.version
        row = self._rows.get(key)
        if row is None or not self.policy.keeps_ratings:
            count = len(self.nodes)
            row = _Row(np.full(count, np.inf), np.zeros(count, dtype=np.int64), self.ledger.mark)
            self._rate(row, key, self._all)
            self._rows[key] = row
            if len(self._rows) > self._most_rows:
                self._rows.popitem(last=False)
            return row
        self._rows.move_to_end(key)
        if row.mark != self.ledger.mark:
            self._rate(row, key, self.ledger.changed_since(row.mark))
            row.mark = self.ledger.mark
        return row

    def _rate(self, row: _Row, key: PodShape, nodes: IntArray) -> None:
        row.cost[nodes] = np.inf
        fitting = nodes[self.ledger.fits(key, nodes)]
        if len(fitting):
            rated = self.policy.rate(key, self.ledger, fitting)
            row.cost[fitting] = rated.cost
            row.devices[fitting] = rated.devices


def filters_of(shape: PodShape) -> PodShape:
    """What of a shape decides where it may run at all: many shapes share it."""
    return replace(shape, cpu_milli=0, memory_bytes=0, gpu_milli=0)
