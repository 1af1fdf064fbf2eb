"""The border between the packing engine and a packing policy: what a policy is asked, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.ledger import Ledger


@dataclass(frozen=True, slots=True, eq=False)
class Rated:
    """What a policy says of some nodes, in the order in which it was asked about them."""

    cost: FloatArray
    """Shape (nodes,); the least wins."""
    devices: IntArray
    """Shape (nodes,); bit d set: the pod would take (its share of) device d. The choice that attains `cost`."""


class Policy(Protocol):
    """Says what it costs to put a pod on a node. Subclass it to inherit the answers that most policies share.

    `rate` is a function of the state of each node alone (what the ledger has left there, and which pods were placed
    on it), so the engine keeps its answers until a node changes. A policy that learns something which changes ratings
    made before raises `version`; the engine then asks afresh.
    """

    name: str
    version: int = 0
    keeps_ratings: bool = True
    """False where `rate` answers differently every time (drawing lots): then nothing is kept."""

    def rating_key(self, shape: PodShape) -> PodShape:
        """The shape by which ratings are kept: shapes with one key share them.

        Memory, labels, taints and GPU types only filter nodes, at choice time; few policies rate by them.
        """
        return PodShape(cpu_milli=shape.cpu_milli, gpus=shape.gpus, gpu_milli=shape.gpu_milli)

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        """Rates nodes, given by their rows, all of which have the CPU and the devices that the shape asks for.

        `shape` is a rating key: memory, labels, taints and (unless the key keeps them) GPU types are not in it.
        """
        ...

    def surcharge(self, shape: PodShape, ledger: Ledger) -> FloatArray | None:
        """A cost per GPU type, added when a node is chosen: for terms that change with every arrival. Never kept."""
        return None

    def worth(self, ledger: Ledger, nodes: IntArray) -> FloatArray | None:
        """What the free resources of nodes are worth, in the unit of its costs; None where it knows no such thing.

        Where there is one, `rate` is about the worth that is lost, so placing and removing can be weighed together.
        """
        return None

    def arrived(self, shape: PodShape) -> None:
        """A pod of this shape was asked for: for policies that learn what arrives. Once per pod, not per attempt."""
        return

    def upkeep(self, ledger: Ledger) -> None:
        """Slow work that no decision waits for (new prices). Whoever runs the policy calls it between decisions."""
        return

    def placed(self, shape: PodShape, node: int) -> None:
        """A pod was charged to a node: for policies that look at more than what is free."""
        return

    def removed(self, shape: PodShape, node: int) -> None:
        """A pod's charge was given back."""
        return

    def terms(self, shape: PodShape, ledger: Ledger, node: int) -> Mapping[str, float]:
        """The parts of a node's cost by name, for people who ask why. Without surcharge."""
        return {"cost": float(self.rate(self.rating_key(shape), ledger, np.array([node])).cost[0])}


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What a policy may know when it is made."""

    fleet: Snapshot
    """The nodes and GPU types. Pods that are bound already count as placed; pending ones are not looked at."""
    expected: tuple[PodShape, ...] = ()
    """A sample of the pods that will come (a trace, yesterday's arrivals). Empty: the policy learns as they arrive."""
    seed: int = 0
    """Of every draw that the policy makes."""
