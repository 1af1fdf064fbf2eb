"""The price book: all that bid-price packing knows of what is to come; made in the background, used in decisions.

`prices_for` takes about a second and looks at nothing but its arguments, so it may run in another process; the book is
handed to the policy when it is ready, and decisions go on with the old one until then.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from placement.classes import ClassShares
from placement.expectation import Expectation, expectation_of
from placement.fleet_kinds import FleetKinds, allowed_types
from placement.node_value import NodeValues
from placement.worth import DemandGuess, worth_of


@dataclass(frozen=True, slots=True, eq=False)
class PriceBook:
    """Prices for one mix on one fleet."""

    shares: ClassShares
    kinds: FleetKinds
    worth: FloatArray
    """β, shape (classes,): see `placement.worth`."""
    expectation: Expectation
    values: NodeValues
    picky_types: BoolArray
    """Shape (picky classes, GPU types): what the classes that may not use every type may use."""
    picky_demand: FloatArray
    """Shape (picky classes,): GPUs that such a class asks for per GPU that arrives."""

    def scarcity(self, idle_gpus: FloatArray, expected_gpus: float) -> FloatArray:
        """GPUs that pods which can go nowhere else are expected to ask, per idle GPU of each type. Shape (types,).

        idle_gpus: of each type. expected_gpus: what is still to arrive in all. The demand of a class is spread over
        the types that it may use in proportion to what is idle of them, so types it may use are equally scarce to it.
        """
        within_reach = self.picky_types @ idle_gpus
        pressure = self.picky_demand * expected_gpus / np.maximum(within_reach, 1e-9)
        scarcity: FloatArray = pressure @ self.picky_types
        return scarcity


def prices_for(shares: ClassShares, kinds: FleetKinds, seed: int = 0, guess: DemandGuess | None = None) -> PriceBook:
    """Prices for a mix on a fleet; the same for the same arguments.

    openb, 1,213 nodes: 0.5 s with 91 classes, 1 s with 330 (benchmarks/bound.py).
    """
    worth = worth_of(shares, kinds, seed, guess)
    allowed = allowed_types(shares.classes, kinds.gpu_type_names)
    present = np.isin(np.arange(len(kinds.gpu_type_names)), kinds.gpu_type)
    picky = np.array([bool(c.gpus) for c in shares.classes], dtype=np.bool_) & (~allowed & present).any(axis=1)
    return PriceBook(
        shares=shares,
        kinds=kinds,
        worth=worth,
        expectation=expectation_of(shares, kinds.gpu_type_names),
        values=NodeValues(shares, worth, kinds),
        picky_types=allowed[picky] & present,
        picky_demand=(shares.share * shares.gpu_demand)[picky] / max(shares.mean_gpu_demand, 1e-9),
    )


def idle_gpus_by_type(gpu_type: IntArray, gpu_milli: IntArray, types: int) -> FloatArray:
    """Free GPU of each type, fractions included. gpu_type: shape (nodes,), gpu_milli: (nodes, devices)."""
    idle = np.maximum(gpu_milli, 0).sum(axis=1) / 1000
    # Type -1 (none, or unknown) falls into a last bin that nobody reads.
    by_type: FloatArray = np.bincount(gpu_type % (types + 1), weights=idle, minlength=types + 1)[:types]
    return by_type
