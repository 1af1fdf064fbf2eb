"""Interface between the packing engine and a packing policy: the engine's calls, and the policy's answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.ledger import Ledger


@dataclass(frozen=True, slots=True, eq=False)
class Rated:
    """A policy's ratings of some nodes, in the order of the request."""

    cost: FloatArray
    """Shape (nodes,); the lowest cost wins."""
    devices: IntArray
    """Shape (nodes,). Bit d is set where the pod would take (its share of) device d; this choice attains `cost`."""


Adopt = Callable[[], None]
"""Function that makes a policy use the result of its slow work; quick."""
SlowWork = Callable[[], Adopt]
"""Slow work of a policy, as a function that any thread may run: it reads copies of what it needs, made when it became
due."""


class Policy(Protocol):
    """Rates what it costs to put a pod on a node. Subclass it to inherit the answers that most policies share.

    `rate` depends only on the state of each node, so the engine caches its results. A policy that learns something
    which changes earlier ratings raises `version`; the engine then rates again.

    A policy keeps two things apart. The state of nodes in one draft of a plan: `begin`, then `placed` and `removed`,
    also for pods that are only tried somewhere. Learning from what really happened: `arrived` and `departed`.
    """

    name: str
    version: int = 0
    counts_pods: bool = False
    """Whether `rate` depends on the pods placed on a node, beside its GPU type, its GPUs, free CPU and free devices."""

    def rating_key(self, shape: PodShape) -> PodShape:
        """Shape under which ratings are cached; shapes with the same key share them.

        Memory, labels, taints and GPU types only filter nodes when one is chosen; few policies rate by them.
        """
        return PodShape(cpu_milli=shape.cpu_milli, gpus=shape.gpus, gpu_milli=shape.gpu_milli)

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        """Rates nodes, given by their rows. All of them have the CPU and the devices that the shape requests.

        `shape` is a rating key: it has no memory, labels or taints, nor GPU types unless the key keeps them.
        """
        ...

    def surcharge(self, shape: PodShape, ledger: Ledger) -> FloatArray | None:
        """Cost per GPU type, added when a node is chosen, for terms that change with every arrival. Never cached."""
        return None

    def worth(self, ledger: Ledger, nodes: IntArray) -> FloatArray | None:
        """Worth of the free resources of nodes, in the unit of the policy's costs; None for a policy without one.

        With it, `rate` is the worth that a placement loses, so placing and removing can be weighed together.
        """
        return None

    def arrived(self, *shapes: PodShape) -> None:
        """Records the requests for pods, those that arrived together in one call, for policies that learn from them.

        Once per pod, not per try; whether or not it finds a place.
        """
        return

    def departed(self, *shapes: PodShape) -> None:
        """Records the end of pods that ran. A pod that is moved, or that ends without ever having run, is none."""
        return

    def slow_work(self, ledger: Ledger) -> SlowWork | None:
        """Work that is due and that no decision waits for (new prices); None where nothing is.

        Due once: the evidence that made it due counts as used. ledger: state of the nodes now; it is copied.
        """
        return None

    @property
    def is_cold(self) -> bool:
        """Whether its slow work was never done, and is due: what it decides without it is much worse."""
        return False

    def fleet_changed(self, fleet: Snapshot) -> None:
        """Records that nodes or GPU types are others from now on."""
        return

    def upkeep(self, ledger: Ledger) -> None:
        """Does the slow work that is due in this call, for callers that decide nothing meanwhile."""
        work = self.slow_work(ledger)
        if work is not None:
            work()()

    def begin(self, snapshot: Snapshot) -> None:
        """Starts a draft: the bound pods of the snapshot are placed, and no others, whatever was placed before."""
        return

    def placed(self, shape: PodShape, node: int) -> None:
        """Records that a pod was charged to a node, for policies that look at more than free resources."""
        return

    def removed(self, shape: PodShape, node: int) -> None:
        """Records that a pod's charge was returned."""
        return

    def terms(self, shape: PodShape, ledger: Ledger, node: int) -> Mapping[str, float]:
        """Parts of a node's cost by name, for explanations. Without surcharge."""
        return {"cost": float(self.rate(self.rating_key(shape), ledger, np.array([node])).cost[0])}


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """Information that a policy may use when it is created."""

    fleet: Snapshot
    """Snapshot with nodes and GPU types. Bound pods already count as placed; pending pods are ignored."""
    expected: tuple[PodShape, ...] = ()
    """Sample of the pods that will come (a trace, yesterday's arrivals). Empty: the policy learns as they arrive."""
    seed: int = 0
    """Seed of every random draw that the policy makes."""
    present: tuple[PodShape, ...] = ()
    """Pods that are there at the start, pending or running: the first evidence of a policy that learns."""
