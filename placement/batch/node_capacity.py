"""Free capacity of nodes while pods are dealt by class: further copies of a shape, and their devices."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.snapshot import Free
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.engine.device_fit import tightest_devices

MOST_COPIES = 1 << 20
"""Count for pods that request nothing, which fit without end."""


def copies_in(shape: PodShape, free: Free, nodes: IntArray | None = None) -> IntArray:
    """Number of pods of a shape that each node can take, with nothing else added. Does not check eligibility.

    Shape (len(nodes),), all nodes when None.
    """
    rows = slice(None) if nodes is None else nodes
    cpu = free.cpu_milli[rows]
    copies = np.full(len(cpu), MOST_COPIES, dtype=np.int64)
    if shape.cpu_milli:
        copies = np.minimum(copies, cpu // shape.cpu_milli)
    if shape.memory_bytes:
        copies = np.minimum(copies, free.memory_bytes[rows] // shape.memory_bytes)
    if shape.gpus:
        copies = np.minimum(copies, _by_devices(shape, free.gpu_milli[rows]))
    fitting: IntArray = copies.clip(min=0)
    return fitting


def _by_devices(shape: PodShape, left_milli: IntArray) -> IntArray:
    if shape.is_whole_gpu:
        idle: IntArray = (left_milli == WHOLE_GPU_MILLI).sum(axis=1) // shape.gpus
        return idle
    shares: IntArray = left_milli.clip(min=0) // shape.gpu_milli
    if shape.gpus == 1:
        total: IntArray = shares.sum(axis=1)
        return total
    # t pods that each take their fraction of `gpus` different devices fit under two conditions: no device gives more
    # than t fractions, and the given fractions suffice (McNaughton's wrap-around rule).
    most = shares.sum(axis=1) // shape.gpus
    for count in range(int(most.max(initial=0)), 0, -1):
        short = np.minimum(shares, count).sum(axis=1) < count * shape.gpus
        most = np.where(short & (most == count), count - 1, most)
    fitting: IntArray = most
    return fitting


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """Placements of pods of one class, in the order of dealing."""

    node: IntArray
    """Shape (seats,)."""
    devices: IntArray
    """Bit masks, shape (seats,)."""


class FreeCapacity:
    """Free resources and activity of each node; both change as pods are placed."""

    def __init__(self, free: Free, running: BoolArray) -> None:
        self.free = Free(free.cpu_milli.copy(), free.memory_bytes.copy(), free.gpu_milli.copy())
        self.running = running.copy()

    def copies(self, shape: PodShape, nodes: IntArray) -> IntArray:
        return copies_in(shape, self.free, nodes)

    def tightness(self, nodes: IntArray, scale: FloatArray) -> FloatArray:
        """Remaining resources of nodes, in units of an average node: the least is the best fit. Shape (nodes,)."""
        left: FloatArray = (
            self.free.cpu_milli[nodes] * scale[0]
            + self.free.memory_bytes[nodes] * scale[1]
            + self.free.gpu_milli[nodes].clip(min=0).sum(axis=1) * scale[2]
        )
        return left

    def deal(self, shape: PodShape, nodes: IntArray, counts: IntArray) -> Dealt:
        """Charges `counts` pods of a shape to these nodes, which are all different and have the resources."""
        nodes, counts = nodes[counts > 0], counts[counts > 0]
        self.free.cpu_milli[nodes] -= counts * shape.cpu_milli
        self.free.memory_bytes[nodes] -= counts * shape.memory_bytes
        self.running[nodes] = True
        if not shape.gpus:
            return Dealt(np.repeat(nodes, counts), np.zeros(int(counts.sum()), dtype=np.int64))
        seats = [self._one_each(shape, nodes[counts > turn]) for turn in range(int(counts.max(initial=0)))]
        if not seats:
            return Dealt(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        return Dealt(np.concatenate([s.node for s in seats]), np.concatenate([s.devices for s in seats]))

    def _one_each(self, shape: PodShape, nodes: IntArray) -> Dealt:
        left = self.free.gpu_milli[nodes]
        devices = _roomiest(shape, left) if shape.gpus > 1 and not shape.is_whole_gpu else tightest_devices(shape, left)
        held = devices[:, None] >> np.arange(left.shape[1]) & 1
        self.free.gpu_milli[nodes] = left - held * shape.gpu_milli
        return Dealt(nodes, devices)

    def give_back(self, shape: PodShape, seats: Dealt) -> None:
        """Returns placements. Nodes stay active: the caller knows whether anything else runs there."""
        np.add.at(self.free.cpu_milli, seats.node, shape.cpu_milli)
        np.add.at(self.free.memory_bytes, seats.node, shape.memory_bytes)
        held = seats.devices[:, None] >> np.arange(self.free.gpu_milli.shape[1]) & 1
        np.add.at(self.free.gpu_milli, seats.node, held * shape.gpu_milli)


def _roomiest(shape: PodShape, left_milli: IntArray) -> IntArray:
    """Devices with most left: taking those keeps fractions of several devices possible for as long as they are."""
    order = (-left_milli).argsort(axis=1, kind="stable")[:, : shape.gpus]
    masks: IntArray = np.left_shift(1, order).sum(axis=1)
    return masks
