"""Value of free resources to the expected pods: fragments that they cannot use, and GPUs that they could.

Both are sums over the expected classes m with fractions p_m, for one node:

F = Σ p_m · idle GPU that m cannot use there (all of it where m does not fit, or requests no GPU; else the remainders
    that are smaller than its demand per GPU). Source: FGD, USENIX ATC'23, definition of the expected fragment.
H = Σ p_m · GPUs that pods of class m alone could still get there.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.hardware import WHOLE_GPU_MILLI
from placement.prices.node_kinds import allowed_types
from placement.prices.pod_classes import ClassShares


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """Classes as columns for array arithmetic; classes that differ only in their allowed types share a column."""

    share: FloatArray
    """Shape (GPU types, columns): fraction of the pods that are of this column and may use this type."""
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
        by_type = np.vstack([self.share, np.zeros(self.share.shape[1])])  # type -1, no GPU: the appended zero
        share = by_type[gpu_type].T
        usable = (fits * share * (idle - remainder)[self.ask]).sum(axis=0)
        by_cpu = cpu // np.maximum(self.cpu_milli, 1)[:, None]
        pods = np.minimum(by_cpu, copies[self.ask])
        size_gpus = (self.gpus * self.gpu_milli)[self.ask] / WHOLE_GPU_MILLI
        hostable = (fits * share * pods * size_gpus[:, None]).sum(axis=0)
        return (idle - usable) / WHOLE_GPU_MILLI, hostable


def expectation_of(shares: ClassShares, gpu_type_names: tuple[str, ...]) -> Expectation:
    """Columns for a mix.

    Classes without GPUs have none: to them all idle GPU is a fragment, and nothing is hostable.
    """
    rows = [row for row, c in enumerate(shares.classes) if c.gpus]
    key = np.array(
        [(shares.classes[r].cpu_milli, shares.classes[r].gpus, shares.classes[r].gpu_milli) for r in rows],
        dtype=np.int64,
    ).reshape(-1, 3)
    columns, column_of = np.unique(key, axis=0, return_inverse=True)
    asks, ask = np.unique(columns[:, 1:], axis=0, return_inverse=True)
    share = np.zeros((len(gpu_type_names), len(columns)))
    allowed = allowed_types([shares.classes[row] for row in rows], gpu_type_names)
    for row, column, types in zip(rows, column_of.reshape(-1).tolist(), allowed, strict=True):
        share[types, column] += shares.share[row]
    return Expectation(share, columns[:, 0], ask.reshape(-1), asks[:, 0], asks[:, 1])
