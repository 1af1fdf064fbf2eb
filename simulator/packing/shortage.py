"""Shortage: the resource that was missing when a pod fitted nowhere."""

from dataclasses import replace

from cluster.workloads import PodShape
from placement.engine.packer import Packer

NO_SUCH_NODE = "no node of a kind that it accepts"
CPU = "CPU"
MEMORY = "memory"
CPU_BESIDE_GPUS = "CPU on the nodes whose GPUs were free"
MEMORY_BESIDE_GPUS = "memory on the nodes whose GPUs were free"
OTHER_MODELS_ONLY = "GPUs of a model that it accepts (others were free)"
GPUS_TOGETHER = "enough whole GPUs on one node"
WHOLE_GPU = "a whole GPU"
PART_OF_GPU = "a GPU with a large enough fraction free"


def scarcest(packer: Packer, shape: PodShape) -> str:
    """Resource that a pod of this shape, which fits nowhere now, lacks: the first of the above that explains it.

    A node may be short of several resources. GPU is named before CPU, and CPU before memory, the scarcer first. A pod
    therefore counts as short of CPU only where some node has all the GPU that it requests.
    """
    eligible = packer.eligible(shape)
    if not eligible.any():
        return NO_SUCH_NODE
    with_gpu = packer.ledger.fits(replace(shape, cpu_milli=0, memory_bytes=0))
    with_cpu = packer.ledger.fits(replace(shape, memory_bytes=0))
    if (eligible & with_cpu).any():
        return MEMORY_BESIDE_GPUS if shape.gpus else MEMORY
    if (eligible & with_gpu).any():
        return CPU_BESIDE_GPUS if shape.gpus else CPU
    if packer.ledger.fits(shape).any():
        return OTHER_MODELS_ONLY
    if shape.gpus > 1:
        return GPUS_TOGETHER
    return WHOLE_GPU if shape.is_whole_gpu else PART_OF_GPU
