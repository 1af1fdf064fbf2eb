"""Worth of hosting a pod of each class: the linear program's duals, averaged over likely demands."""

import numpy as np

from cluster.arrays import FloatArray
from placement.prices.allocation_bound import allocation_bound
from placement.prices.bid_settings import BidSettings
from placement.prices.node_kinds import FleetKinds
from placement.prices.pod_classes import ClassShares


def worth_of(shares: ClassShares, kinds: FleetKinds, settings: BidSettings, seed: int) -> FloatArray:
    """β: worth, in GPUs, of the resources that one pod of each class takes in its cheapest place. Shape (classes,).

    The draws' demand of a class is Poisson around its fraction of a load in the settings' range.
    0 ≤ β_c ≤ GPUs of the class; 0 for classes without GPUs.
    """
    mean = shares.mean_gpu_demand
    if mean <= 0 or not len(kinds):
        return np.zeros(len(shares.classes))
    chance = np.random.default_rng(seed)
    total, patterns = np.zeros(len(shares.classes)), None
    # Loads are spread evenly and only the classes' counts are drawn: prices jump at certain loads, and chance would
    # decide which of those ten random loads happen to pass.
    for turn in range(settings.draws):
        load = settings.least_load + (settings.most_load - settings.least_load) * (turn + 0.5) / settings.draws
        pods = load * kinds.capacity_gpus / mean
        demand = chance.poisson(shares.share * pods).astype(np.float64)
        bound = allocation_bound(shares.classes, demand, kinds, patterns)
        total, patterns = total + bound.worth, bound.patterns
    return total / settings.draws
