"""Random: any node that can take the pod, any device with enough left."""

import numpy as np

from cluster.arrays import IntArray
from cluster.workloads import PodShape
from placement.engine.device_fit import tightest_devices
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy, Rated


class Random(Policy):
    """Draws lots for every pod. Source: the baseline of the FGD paper, drawn from a seed."""

    name = "random"
    keeps_ratings = False

    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        left = ledger.gpu_milli[nodes]
        lots = self._chance.random(len(nodes))
        if shape.gpus != 1 or shape.is_whole_gpu:
            return Rated(lots, tightest_devices(shape, left))
        draw = np.where(left >= shape.gpu_milli, self._chance.random(left.shape), -1.0)
        return Rated(lots, np.left_shift(1, draw.argmax(axis=1)))
