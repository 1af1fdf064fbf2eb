"""DotProduct: the node whose free resources point least in the direction of the pod's request."""

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import PodShape
from placement.engine.device_fit import tightest_devices
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy, Rated
from placement.policies.score_scale import WIDEST_CPU_MILLI, WIDEST_GPU_MILLI, whole_points


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
