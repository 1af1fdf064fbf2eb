"""Default choice of a node's devices: the fullest that still fit, for policies without a preference of their own."""

import numpy as np

from cluster.arrays import IntArray
from cluster.workloads import PodShape

_NEVER = np.iinfo(np.int64).max


def tightest_devices(shape: PodShape, left_milli: IntArray) -> IntArray:
    """For each node, the devices with least left that can take the pod's share; the lowest number first among equals.

    left_milli: shape (nodes, width), thousandths left of each device. Every node can take the pod.
    Returns bit masks, shape (nodes,); 0 for a pod without GPUs. For whole GPUs: the first idle ones.
    """
    if not shape.gpus:
        return np.zeros(len(left_milli), dtype=np.int64)
    tightness = np.where(left_milli >= shape.gpu_milli, left_milli, _NEVER)
    if shape.gpus == 1:
        taken = tightness.argmin(axis=1)[:, None]
    else:
        taken = tightness.argsort(axis=1, kind="stable")[:, : shape.gpus]
    masks: IntArray = np.left_shift(1, taken).sum(axis=1)
    return masks


def left_after(shape: PodShape, left_milli: IntArray, devices: IntArray) -> IntArray:
    """Thousandths left of each device once the pod holds the devices of the mask. Shape (nodes, width)."""
    if not shape.gpus:
        return left_milli
    held = devices[:, None] >> np.arange(left_milli.shape[1]) & 1
    after: IntArray = left_milli - held * shape.gpu_milli
    return after
