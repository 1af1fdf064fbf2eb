"""Clustering: a node that already runs pods of the same GPU demand."""

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import PodShape
from placement.engine.device_fit import tightest_devices
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy, Rated
from placement.policies.score_scale import WIDEST_GPU_MILLI

BAND = 25
_NONE = -1


class Clustering(Policy):
    """Four bands of 25 points: only pods of the same kind there, some of the same kind, no GPU pod yet, only others.

    Within a band, the fuller node. Kinds: a fraction of a GPU, or a number of whole GPUs. A pod without GPUs has none,
    and rates all nodes equal. Source: Gandiva (OSDI'18), as the FGD paper's simulator computes it.
    """

    name = "clustering"

    def __init__(self, nodes: int) -> None:
        self._pods: dict[int, IntArray] = {}
        """Kind → number of its pods on each node."""
        self._kinds = np.zeros(nodes, dtype=np.int64)
        """Number of kinds on each node."""

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        left = ledger.gpu_milli[nodes]
        devices = tightest_devices(shape, left)
        if not shape.gpus:
            return Rated(np.zeros(len(nodes)), devices)
        same = self._pods[kind(shape)][nodes] > 0 if kind(shape) in self._pods else np.zeros(len(nodes), dtype=bool)
        kinds = self._kinds[nodes]
        band = np.where(same, np.where(kinds == 1, 3, 2), np.where(kinds == 0, 1, 0))
        fullness = BAND * (WIDEST_GPU_MILLI - left.sum(axis=1)) // WIDEST_GPU_MILLI
        cost: FloatArray = -(band * BAND + fullness).astype(np.float64)
        return Rated(cost, devices)

    def begin(self, snapshot: Snapshot) -> None:
        pods, count = snapshot.pods, len(snapshot.nodes)
        of_shape = np.array([kind(shape) if shape.gpus else _NONE for shape in pods.shapes], dtype=np.int64)
        bound = pods.node != PENDING
        of_pod, where = of_shape[pods.shape[bound]], pods.node[bound]
        self._pods, self._kinds = {}, np.zeros(count, dtype=np.int64)
        for each in np.unique(of_pod[of_pod != _NONE]).tolist():
            self._pods[each] = np.bincount(where[of_pod == each], minlength=count)
            self._kinds += self._pods[each] > 0

    def placed(self, shape: PodShape, node: int) -> None:
        self._count(shape, node, 1)

    def removed(self, shape: PodShape, node: int) -> None:
        self._count(shape, node, -1)

    def _count(self, shape: PodShape, node: int, more: int) -> None:
        if not shape.gpus:
            return
        pods = self._pods.setdefault(kind(shape), np.zeros(len(self._kinds), dtype=np.int64))
        was = pods[node] > 0
        pods[node] += more
        self._kinds[node] += int(pods[node] > 0) - int(was)


def kind(shape: PodShape) -> int:
    """Number for pods of the same GPU demand: 0 for a fraction of one GPU, else the number of GPUs."""
    return 0 if shape.gpus == 1 and not shape.is_whole_gpu else shape.gpus
