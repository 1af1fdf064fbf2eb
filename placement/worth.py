"""What hosting a pod of each class is worth: the linear program's duals, averaged over demands that may well come."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray
from placement.bound import allocation_bound
from placement.classes import ClassShares
from placement.fleet_kinds import FleetKinds


@dataclass(frozen=True, slots=True)
class DemandGuess:
    """How the demands are drawn that prices are averaged over."""

    draws: int = 10
    """Linear programs per price book. One alone costs a point of allocation where types are asked for by name."""
    least_load: float = 0.97
    """Lowest demand that is drawn, as a share of the fleet's GPUs. Origin: search on seeds 1-4 of the openb traces."""
    most_load: float = 1.06
    """Highest demand that is drawn; prices matter when the fleet is nearly full, so both lie near 1."""


def worth_of(shares: ClassShares, kinds: FleetKinds, seed: int, guess: DemandGuess | None = None) -> FloatArray:
    """β: GPUs' worth of the resources that one pod of each class takes when it is hosted best. Shape (classes,).

    The draws' demand of a class is Poisson around its share of a load that is uniform in the guess's range.
    0 ≤ β_c ≤ GPUs of the class; 0 for classes without GPUs.
    """
    guess = guess or DemandGuess()
    mean = shares.mean_gpu_demand
    if mean <= 0 or not len(kinds):
        return np.zeros(len(shares.classes))
    chance = np.random.default_rng(seed)
    total, patterns = np.zeros(len(shares.classes)), None
    for _ in range(guess.draws):
        pods = chance.uniform(guess.least_load, guess.most_load) * kinds.capacity_gpus / mean
        demand = chance.poisson(shares.share * pods).astype(np.float64)
        bound = allocation_bound(shares.classes, demand, kinds, patterns)
        total, patterns = total + bound.worth, bound.patterns
    return total / guess.draws
