"""Value of free resources to the expected pods: fragments that they cannot use, and GPUs that they could.

Both are sums over the expected classes m, for one node. p_m: fraction of the pods; q_m: fraction of the requested GPUs;
b: between 0 and 1.

F = Σ ((1 - b) p_m + b q_m) · idle GPU that m cannot use there (all of it where m does not fit, or requests no GPU; else
    the remainders that are smaller than its demand per GPU). Source: FGD, USENIX ATC'23, definition of the expected
    fragment, which is that of b = 0. With b = 1 a class counts by its GPUs: a refused pod of eight costs eight.
H = Σ p_m · GPUs that pods of class m alone could still get there.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import WHOLE_GPU_MILLI
from placement.prices.node_kinds import allowed_types
from placement.prices.pod_classes import ClassShares


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """Classes as columns for array arithmetic; classes that differ only in their allowed types share a column."""

    share: FloatArray
    """Shape (GPU types + 1, columns): fraction of the pods that are of this column and may use this type, for H.

    The last row is zero: type -1, no GPU.
    """
    fragment_share: FloatArray
    """Shape (GPU types + 1, columns): the weights of F, likewise."""
    cpu_milli: IntArray
    """Shape (columns,)."""
    ask: IntArray
    """Shape (columns,): index into `gpus` and `gpu_milli`."""
    gpus: IntArray
    """Shape (asks,): the distinct GPU requests."""
    gpu_milli: IntArray
    """Shape (asks,)."""

    def fragment_and_hostable(
        self, gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """F and H of several node states, in GPUs. gpu_milli: shape (states, devices); the others (states,)."""
        free = np.maximum(gpu_milli, 0)
        idle = free.sum(axis=1)
        size = self.gpu_milli[:, None, None]
        # Shape (asks, states) each: devices that suffice, GPU that is too small for the request, pods that the GPUs
        # host.
        suffices = free >= size
        enough = suffices.sum(axis=2)
        remainder = idle - np.where(suffices, free, 0).sum(axis=2)
        copies = (free // size).sum(axis=2) // self.gpus[:, None]
        cpu = np.maximum(cpu_milli, 0)
        fits = ((enough >= self.gpus[:, None])[self.ask] & (self.cpu_milli[:, None] <= cpu)).astype(np.float64)
        share, weight = self.share[gpu_type].T, self.fragment_share[gpu_type].T
        usable = (fits * weight * (idle - remainder)[self.ask]).sum(axis=0)
        by_cpu = cpu // np.maximum(self.cpu_milli, 1)[:, None]
        pods = np.minimum(by_cpu, copies[self.ask])
        size_gpus = (self.gpus * self.gpu_milli)[self.ask] / WHOLE_GPU_MILLI
        hostable = (fits * share * pods * size_gpus[:, None]).sum(axis=0)
        return (idle - usable) / WHOLE_GPU_MILLI, hostable


def expectation_of(shares: ClassShares, gpu_type_names: tuple[str, ...], by_gpus: float = 0.0) -> Expectation:
    """Columns for a mix. by_gpus: b above.

    Classes without GPUs have none: to them all idle GPU is a fragment, and nothing is hostable.
    """
    rows = [row for row, c in enumerate(shares.classes) if c.gpus]
    key = np.array(
        [(shares.classes[r].cpu_milli, shares.classes[r].gpus, shares.classes[r].gpu_milli) for r in rows],
        dtype=np.int64,
    ).reshape(-1, 3)
    columns, column_of = np.unique(key, axis=0, return_inverse=True)
    asks, ask = np.unique(columns[:, 1:], axis=0, return_inverse=True)
    of_gpus = shares.share * shares.gpu_demand / max(shares.mean_gpu_demand, 1e-300)
    weights = (1 - by_gpus) * shares.share + by_gpus * of_gpus
    share, fragment_share = np.zeros((2, len(gpu_type_names) + 1, len(columns)))
    allowed = allowed_types([shares.classes[row] for row in rows], gpu_type_names)
    for row, column, types in zip(rows, column_of.reshape(-1).tolist(), allowed, strict=True):
        share[:-1][types, column] += shares.share[row]
        fragment_share[:-1][types, column] += weights[row]
    return Expectation(share, fragment_share, columns[:, 0], ask.reshape(-1), asks[:, 0], asks[:, 1])
