"""Proven upper bound on what any policy could have allocated of the arrivals."""

from collections import Counter

import numpy as np

from cluster.arrays import IntArray
from cluster.snapshot import Snapshot
from placement.prices.allocation_bound import allocation_bound
from placement.prices.classes import class_of, kinds_of
from simulator.packing.arrivals import gpu_milli_of


def bound_pct(trace: Snapshot, stream: IntArray, arrived_pct: float = 100.0) -> float:
    """Proven bound on allocation for the arrivals up to a point, in percent of the fleet's GPUs.

    stream: indices into `trace.pods.shapes`. The bound also holds for policies that know the arrivals beforehand and
    move pods.
    """
    kinds = kinds_of(trace.nodes, trace.gpu_type_names)
    _, total = gpu_milli_of(trace.pods)
    arrived = np.cumsum(total[stream])
    upto = int(np.searchsorted(arrived, arrived_pct * 10.0 * kinds.capacity_gpus)) + 1
    demand = Counter(class_of(trace.pods.shapes[index]) for index in stream[:upto])
    classes = sorted(demand)
    bound = allocation_bound(classes, np.array([float(demand[kind]) for kind in classes]), kinds)
    return 100.0 * bound.gpus / kinds.capacity_gpus
