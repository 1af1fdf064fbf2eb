"""Packing: an allocated device before an idle device, and an allocated node before an idle node."""

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.engine.device_fit import tightest_devices
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy, Rated

MOST_POINTS = 100


class Packing(Policy):
    """Three bands of points: nodes with enough allocated devices, then nodes in use, then idle nodes.

    Above 50 where allocated devices suffice. 33 to 50 where idle devices of a node in use are needed (fewer is better).
    Below 33 on a node whose devices are all idle (smaller nodes first). Source: MLaaS in the wild (NSDI'22), as the FGD
    paper's simulator computes it. A pod without GPUs rates all nodes equal.
    """

    name = "packing"

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        left = ledger.gpu_milli[nodes]
        devices = tightest_devices(shape, left)
        if not shape.gpus:
            return Rated(np.zeros(len(nodes)), devices)
        held = (devices[:, None] >> np.arange(left.shape[1]) & 1).astype(bool)
        idle = left == WHOLE_GPU_MILLI
        idle_count = idle.sum(axis=1)
        idle_held = (held & idle).sum(axis=1)
        free_pct = (held * (left * 100 // WHOLE_GPU_MILLI)).sum(axis=1)
        in_use = np.maximum(MOST_POINTS - free_pct // 10, MOST_POINTS // 2)
        some_idle = np.maximum(MOST_POINTS // 2 - idle_held, MOST_POINTS // 3)
        all_idle = np.maximum(MOST_POINTS // 3 - idle_count, idle_count)
        points = np.where(idle_count == ledger.gpus[nodes], all_idle, np.where(idle_held > 0, some_idle, in_use))
        cost: FloatArray = -points.astype(np.float64)
        return Rated(cost, devices)
