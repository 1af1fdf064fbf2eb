"""Best fit as it was published: it needs no learning."""

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import PodShape
from placement.engine.ledger import Ledger, tightest_devices
from placement.engine.policy import Policy, Rated

WIDEST_CPU_MILLI = 128_000
"""CPU of the widest openb server, the unit of fractions. Source: the FGD simulator's specification constants."""
WIDEST_GPU_MILLI = 8_000
"""GPU of the widest openb server. Source: as above."""


def whole_points(score: FloatArray) -> FloatArray:
    """A score in 0..1 as whole points of a hundred, truncated, like the results of kube-scheduler's score plugins.

    Truncation matters: it makes many nodes equal, and the first in order is then taken again and again, which keeps
    other nodes empty (FGD gains 0.9 points of allocation by it on openb).
    """
    # Sums of the same parts in another order differ in the last digit; without rounding first, that digit would decide.
    points: FloatArray = np.floor(np.round(score * 100.0, 9))
    return points


class BestFit(Policy):
    """Half of the weight on remaining CPU, half on remaining GPU, each as a fraction of the largest server.

    Source: USENIX ATC'23 (FGD), section 6.1, as its simulator computes it: points of a hundred, cut to whole numbers.
    """

    name = "bestfit"

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        gpu_milli = ledger.gpu_milli[nodes]
        cpu_left: FloatArray = (ledger.cpu_milli[nodes] - shape.cpu_milli) / WIDEST_CPU_MILLI
        gpu_left: FloatArray = (gpu_milli.sum(axis=1) - shape.total_gpu_milli) / WIDEST_GPU_MILLI
        return Rated(-whole_points(1.0 - 0.5 * (cpu_left + gpu_left)), tightest_devices(shape, gpu_milli))

    def terms(self, shape: PodShape, ledger: Ledger, node: int) -> dict[str, float]:
        cpu_left = (ledger.cpu_milli[node] - shape.cpu_milli) / WIDEST_CPU_MILLI
        gpu_left = (ledger.gpu_milli[node].sum() - shape.total_gpu_milli) / WIDEST_GPU_MILLI
        return {"cpu_left_share": float(cpu_left), "gpu_left_share": float(gpu_left)}
