"""Published packing policies for comparison alone: dot product, packing, clustering, random."""

from collections.abc import Callable, Mapping

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.engine.ledger import Ledger, tightest_devices
from placement.engine.policy import Knowledge, Policy, Rated
from placement.policies import POLICIES
from placement.policies.published import WIDEST_CPU_MILLI, WIDEST_GPU_MILLI, whole_points


class DotProduct(Policy):
    """Free (CPU, GPU) times requested (CPU, GPU), each as a fraction of the largest server; the smallest product wins.

    Source: Tetris (SIGCOMM'14), as the FGD paper's published runs configure it: all of a node's GPUs merged into one
    number, fractions of the largest server, the smallest product first, the tightest device within the node.
    """

    name = "dotprod"

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        gpu_milli = ledger.gpu_milli[nodes]
        cpu: FloatArray = ledger.cpu_milli[nodes] / WIDEST_CPU_MILLI * (shape.cpu_milli / WIDEST_CPU_MILLI)
        gpu: FloatArray = gpu_milli.sum(axis=1) / WIDEST_GPU_MILLI * (shape.total_gpu_milli / WIDEST_GPU_MILLI)
        return Rated(-whole_points(1.0 - (cpu + gpu) / 2.0), tightest_devices(shape, gpu_milli))


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


class Random(Policy):
    """Draws lots for every pod. Source: the baseline of the FGD paper, drawn from a seed."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        self.version += 1  # drawn anew every time: the engine caches nothing
        left = ledger.gpu_milli[nodes]
        lots = self._chance.random(len(nodes))
        if shape.gpus != 1 or shape.is_whole_gpu:
            return Rated(lots, tightest_devices(shape, left))
        draw = np.where(left >= shape.gpu_milli, self._chance.random(left.shape), -1.0)
        return Rated(lots, np.left_shift(1, draw.argmax(axis=1)))


BAND = 25
_NONE = -1


class Clustering(Policy):
    """Four bands of 25 points: only pods of the same kind there, some of the same kind, no GPU pod yet, only others.

    Within a band, the fuller node. Kinds: a fraction of a GPU, or a number of whole GPUs. A pod without GPUs has none,
    and rates all nodes equal. Source: Gandiva (OSDI'18), as the FGD paper's simulator computes it.
    """

    name = "clustering"
    counts_pods = True

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


RIVALS: Mapping[str, Callable[[Knowledge], Policy]] = {
    "random": lambda known: Random(known.seed),
    "dotprod": lambda _: DotProduct(),
    "clustering": lambda known: Clustering(len(known.fleet.nodes)),
    "packing": lambda _: Packing(),
}
POLICIES.update(RIVALS)
