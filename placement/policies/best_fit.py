"""BestFit: the node that is left with the least free CPU and GPU."""

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import PodShape
from placement.engine.device_fit import tightest_devices
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy, Rated
from placement.policies.score_scale import WIDEST_CPU_MILLI, WIDEST_GPU_MILLI, whole_points


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
