"""Ledger of the free resources of each node while a plan is made, and what of them one more pod would take."""

from collections.abc import Sequence

import numpy as np

from cluster import arrays, capacity, workloads
from cluster.snapshot import Snapshot


class Ledger:
    """Free resources of a fleet, changed pod by pod.

    free: what is free, with its columns also as attributes here. gpu_type, gpus: shape (nodes,), constant. All may be
    read; only `take` and `give` change them.
    """

    def __init__(self, free: capacity.Free, gpus: arrays.IntArray, gpu_type: arrays.IntArray) -> None:
        self.free = free
        self.cpu_milli, self.memory_bytes, self.gpu_milli = free.cpu_milli, free.memory_bytes, free.gpu_milli
        self.gpus = gpus
        self.gpu_type = gpu_type
        self._charges = 0
        self._last_charge = np.zeros(len(gpus), dtype=np.int64)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Ledger":
        return cls(snapshot.free(), snapshot.nodes.gpus, snapshot.nodes.gpu_type)

    def copy(self) -> "Ledger":
        """The same free resources, which later charges leave as they are."""
        return Ledger(self.free.copy(), self.gpus, self.gpu_type)

    @property
    def mark(self) -> int:
        """Point in time to pass to `changed_since`."""
        return self._charges

    def changed_since(self, mark: int) -> arrays.IntArray:
        """Nodes that changed after that mark, each once, ascending."""
        return np.flatnonzero(self._last_charge > mark)

    def take(self, shape: workloads.PodShape, node: int, devices: Sequence[int]) -> None:
        """Charges a pod to a node. The caller has checked that it fits."""
        self._charge(shape, node, devices, 1)

    def give(self, shape: workloads.PodShape, node: int, devices: Sequence[int]) -> None:
        """Returns what `take` charged."""
        self._charge(shape, node, devices, -1)

    def _charge(self, shape: workloads.PodShape, node: int, devices: Sequence[int], sign: int) -> None:
        self.free.charge(shape, node, devices, sign)
        self._charges += 1
        self._last_charge[node] = self._charges


_NEVER = np.iinfo(np.int64).max


def tightest_devices(shape: workloads.PodShape, left_milli: arrays.IntArray) -> arrays.IntArray:
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
    masks: arrays.IntArray = np.left_shift(1, taken).sum(axis=1)
    return masks


def left_after(shape: workloads.PodShape, left_milli: arrays.IntArray, devices: arrays.IntArray) -> arrays.IntArray:
    """Thousandths left of each device once the pod holds the devices of the mask. Shape (nodes, width)."""
    if not shape.gpus:
        return left_milli
    held = devices[:, None] >> np.arange(left_milli.shape[1]) & 1
    after: arrays.IntArray = left_milli - held * shape.gpu_milli
    return after
