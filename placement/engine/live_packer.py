"""Live packer: a packing policy that is kept from plan to plan and learns from what happens between them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray, Names
from cluster.nodes import LabelMatches
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import PodShape
from placement.engine.idle_nodes import IdleNodes
from placement.engine.ledger import Ledger
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge, Policy, SlowWork


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Pods and nodes at one instant. Refers to no column of its snapshot, so that the frame behind it can be freed."""

    pods: Names
    shape: IntArray
    """Shape (pods,), index into `shapes`."""
    shapes: tuple[PodShape, ...]
    node: IntArray
    """Shape (pods,): index into `nodes`, or PENDING."""
    nodes: Names
    gpu_type_names: tuple[str, ...]
    capacity: IntArray
    """Shape (3, nodes): GPU type, GPUs and CPU of each node."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Pods that arrived and departed between two populations, in table order."""

    arrived: tuple[PodShape, ...] = ()
    """Pods that were not there before, waiting or running; a pod that waits through many plans arrives once."""
    departed: tuple[PodShape, ...] = ()
    """Pods that ran before and are gone. A pod that is gone without having run only ceased to wait."""


def population_of(snapshot: Snapshot) -> Population:
    nodes, pods = snapshot.nodes, snapshot.pods
    return Population(
        pods=pods.names,
        shape=pods.shape.copy(),
        shapes=pods.shapes,
        node=pods.node.copy(),
        nodes=nodes.names,
        gpu_type_names=snapshot.gpu_type_names,
        capacity=np.stack([nodes.gpu_type, nodes.gpus, nodes.cpu_milli]),
    )


def changes_between(before: Population, now: Population) -> Changes:
    """Arrivals and departures. A pod of other requests under the same name is another pod.

    One of other constraints is the same: the placement mode `gate` restricts a pod to its node when it places it.
    Pods on nodes that joined or left do neither: such nodes went from one share of the cluster to another, or brought
    and took their pods with them.
    """
    # 10,000 pods, none of them new: 1 ms.
    unchanged = before.pods == now.pods and before.shapes == now.shapes and np.array_equal(before.shape, now.shape)
    if unchanged:
        return Changes()
    row = before.pods.rows(now.pods)
    is_same = row >= 0
    is_same[is_same] = (_requests(now)[is_same] == _requests(before)[row[is_same]]).all(axis=1)
    arrived = ~is_same & _on_node_of(before, now)
    stayed = np.zeros(len(before.pods), dtype=np.bool_)
    stayed[row[is_same]] = True
    departed = ~stayed & (before.node != PENDING) & _on_node_of(now, before)
    return Changes(_shapes(now, arrived), _shapes(before, departed))


def is_other_fleet(before: Population, now: Population) -> bool:
    """Whether most nodes are others than before: the cluster was divided otherwise, and this is another share of it."""
    if before.nodes == now.nodes:
        return False
    common = int((before.nodes.rows(now.nodes) >= 0).sum())
    return 2 * common < max(len(before.nodes), len(now.nodes))


def has_other_nodes(before: Population, now: Population) -> bool:
    """Whether nodes or GPU types changed in a way that matters to prices."""
    return before.gpu_type_names != now.gpu_type_names or not np.array_equal(before.capacity, now.capacity)


def _requests(of: Population) -> IntArray:
    """Requests of each pod: CPU, memory, GPUs and thousandths of each. Shape (pods, 4)."""
    asks = [(shape.cpu_milli, shape.memory_bytes, shape.gpus, shape.gpu_milli) for shape in of.shapes]
    return np.array(asks, dtype=np.int64).reshape(-1, 4)[of.shape]


def _on_node_of(other: Population, mine: Population) -> BoolArray:
    """Whether each pod waits or has a node that `other` has as well. Shape (pods of mine,)."""
    shared: BoolArray = np.append(other.nodes.rows(mine.nodes) >= 0, True)  # the last entry is the result for PENDING
    return shared[mine.node]


def _shapes(population: Population, rows: BoolArray) -> tuple[PodShape, ...]:
    return tuple(population.shapes[index] for index in population.shape[rows].tolist())


class LivePacker:
    """A policy between plans: `observe` each snapshot, take a `packer` where a pod waits, then do the `slow_work`.

    It learns of pods by the difference of successive snapshots; the ledger is built from each snapshot and cannot
    drift. Prices are made beside the plans, never where nothing waits, and always used from the next plan on: when they
    are ready decides nothing.
    """

    def __init__(
        self, policy_of: Callable[[Knowledge], Policy], seed: int = 0, *, returns_idle_nodes: bool = False
    ) -> None:
        """policy_of: makes the policy at a cold start. seed: of the policy's random draws. returns_idle_nodes: whether
        idle nodes are given back, so that starting one costs its price."""
        self._returns_idle_nodes = returns_idle_nodes
        self._policy_of = policy_of
        self._seed = seed
        self.policy: Policy | None = None
        """None before the first snapshot."""
        self._seen: Population | None = None
        self._planned: Ledger | None = None
        self._matches: LabelMatches | None = None

    def observe(self, snapshot: Snapshot) -> Policy:
        """Tells the policy what changed since the snapshot before.

        The first snapshot is a cold start, at which the present pods are the first evidence. So is one of another
        fleet.
        """
        seen, now = self._seen, population_of(snapshot)
        self._seen = now
        if self.policy is None or seen is None or is_other_fleet(seen, now):
            present = tuple(snapshot.pods.shapes[index] for index in snapshot.pods.shape.tolist())
            self.policy = self._policy_of(Knowledge(snapshot, present=present, seed=self._seed))
            return self.policy
        changes = changes_between(seen, now)
        self.policy.departed(*changes.departed)
        self.policy.arrived(*changes.arrived)
        if has_other_nodes(seen, now):
            self.policy.fleet_changed(snapshot)
        return self.policy

    def packer(self, snapshot: Snapshot) -> Packer:
        """Engine for a draft that starts from this snapshot: the observed one, or it after a part of the plan.

        A policy that has evidence and no prices at all makes them here, in this call.
        """
        policy = self.policy or self.observe(snapshot)
        idle = IdleNodes(snapshot) if self._returns_idle_nodes else None
        packer = Packer(snapshot, policy, content_rank(snapshot), self._matches, idle)
        self._matches = packer.filter.matches
        if policy.is_cold:
            policy.upkeep(packer.ledger)
        self._planned = packer.ledger
        return packer

    def slow_work(self) -> SlowWork | None:
        """Work to be done before the next plan, if a packer was taken since the last call, and it is due."""
        planned, self._planned = self._planned, None
        return None if planned is None or self.policy is None else self.policy.slow_work(planned)
