"""Free capacity of nodes: what a pod takes and returns, where one fits and how many; and the same of a single node."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.workloads import PODS, WHOLE_GPU_MILLI, PodShape

Rows = IntArray | slice
"""Nodes, by their rows."""
ALL = slice(None)
CPU, MEMORY, GPU = "cpu", "memory", "gpu"
"""Names of these resources among those that a pod asks for."""
MOST_COPIES = 1 << 20
"""Number of pods that stands for any number of them, where a shape requests nothing that a node could lack."""


def asks_of(shape: PodShape) -> Iterator[tuple[str, int]]:
    """Everything that a pod takes beside GPUs, by name: CPU, memory, a place among the node's pods, and others."""
    yield CPU, shape.cpu_milli
    yield MEMORY, shape.memory_bytes
    yield PODS, 1
    yield from shape.others


def everything_asked(shape: PodShape) -> dict[str, int]:
    """The same, with thousandths of GPUs."""
    return {**dict(asks_of(shape)), GPU: shape.total_gpu_milli}


@dataclass(frozen=True, slots=True, eq=False)
class Free:
    """Free capacity of each node: arrays that their owner changes; negative where pods hold more than a node has."""

    cpu_milli: IntArray
    """Shape (nodes,); thousandths of cores."""
    memory_bytes: IntArray
    """Shape (nodes,)."""
    gpu_milli: IntArray
    """Shape (nodes, maximum GPUs per node); free thousandths of each device, 0 where the node has no such device."""
    others: Mapping[str, IntArray] = field(default_factory=dict)
    """Of every other resource that some node has; each of shape (nodes,)."""

    def of(self, rows: IntArray) -> "Free":
        """A copy of these rows, in their order."""
        others = {name: left[rows] for name, left in self.others.items()}
        return Free(self.cpu_milli[rows], self.memory_bytes[rows], self.gpu_milli[rows], others)

    def copy(self) -> "Free":
        return self.of(np.arange(len(self.cpu_milli)))

    def charge(self, shape: PodShape, node: int, devices: Iterable[int], sign: int = 1) -> None:
        """Takes from a node what a pod asks for, or returns it (sign -1)."""
        for _, amount, left in self.asked(shape):
            left[node] -= sign * amount
        for device in devices:
            self.gpu_milli[node, device] -= sign * shape.gpu_milli

    def charge_all(
        self, shapes: Sequence[PodShape], shape: IntArray, node: IntArray, devices: IntArray, sign: int = 1
    ) -> None:
        """The same for many pods. shape (an index into `shapes`), node, devices (a bit mask): shape (pods,)."""
        asks = [dict(asks_of(each)) for each in shapes]
        for name, left in {CPU: self.cpu_milli, MEMORY: self.memory_bytes, **self.others}.items():
            amount = np.array([each.get(name, 0) for each in asks], dtype=np.int64)
            if amount.any():
                np.subtract.at(left, node, sign * amount[shape])
        milli = np.array([each.gpu_milli for each in shapes], dtype=np.int64)
        for device in range(self.gpu_milli.shape[1] if milli.any() else 0):
            holds = (devices >> device & 1).astype(np.bool_)
            np.subtract.at(self.gpu_milli[:, device], node[holds], sign * milli[shape[holds]])

    def asked(self, shape: PodShape) -> Iterator[tuple[str, int, IntArray]]:
        """What a pod asks for beside GPUs: the name, the amount above 0, and what each node has left of it.

        A pod that asks for none of a resource may go where pods hold more of it than the node has.
        """
        for name, amount in asks_of(shape):
            if name == CPU:
                left: IntArray | None = self.cpu_milli
            elif name == MEMORY:
                left = self.memory_bytes
            elif (left := self.others.get(name)) is None and name != PODS:
                left = np.zeros(len(self.cpu_milli), dtype=np.int64)
            if amount and left is not None:
                yield name, amount, left

    def fits(self, shape: PodShape, rows: Rows = ALL) -> BoolArray:
        """Whether nodes have room for a pod, device by device. Does not check eligibility. Shape (rows,)."""
        gpu_milli = self.gpu_milli[rows]
        enough: BoolArray = np.ones(len(gpu_milli), dtype=np.bool_)
        for _, amount, left in self.asked(shape):
            enough &= left[rows] >= amount
        if shape.gpus:
            enough &= (gpu_milli >= shape.gpu_milli).sum(axis=1) >= shape.gpus
        return enough

    def copies(self, shape: PodShape, rows: Rows = ALL) -> IntArray:
        """Pods of one shape that nodes have room for, with nothing else added. Does not check eligibility.

        Shape (rows,).
        """
        gpu_milli = self.gpu_milli[rows]
        copies = np.full(len(gpu_milli), MOST_COPIES)
        for _, amount, left in self.asked(shape):
            copies = np.minimum(copies, left[rows] // amount)
        if shape.is_whole_gpu:
            copies = np.minimum(copies, (gpu_milli >= shape.gpu_milli).sum(axis=1) // shape.gpus)
        elif shape.gpus:
            # t pods that each take their fraction of `gpus` different devices fit under two conditions: no device gives
            # more than t fractions, and the given fractions suffice (McNaughton's wrap-around rule).
            shares = gpu_milli.clip(min=0) // shape.gpu_milli
            most = shares.sum(axis=1) // shape.gpus
            for count in range(int(most.max(initial=0)), 0, -1) if shape.gpus > 1 else ():
                short = np.minimum(shares, count).sum(axis=1) < count * shape.gpus
                most = np.where(short & (most == count), count - 1, most)
            copies = np.minimum(copies, most)
        return np.asarray(np.maximum(copies, 0), dtype=np.int64)


class NodeRoom:
    """Free capacity of one node in plain numbers, which are quicker than arrays where its pods are weighed."""

    def __init__(self, free: Free, node: int) -> None:
        of_node = {CPU: free.cpu_milli, MEMORY: free.memory_bytes, **free.others}
        self.left = {name: int(left[node]) for name, left in of_node.items()}
        self.gpu_milli: list[int] = free.gpu_milli[node].tolist()

    def charge(self, shape: PodShape, devices: Iterable[int], sign: int = 1) -> None:
        """Takes what a pod asks for, or returns it (sign -1)."""
        for name, amount in asks_of(shape):
            if name in self.left:
                self.left[name] -= sign * amount
        for device in devices:
            self.gpu_milli[device] -= sign * shape.gpu_milli

    def missing(self, shape: PodShape) -> dict[str, int]:
        """Amount that is short for a pod, of each resource of which it is; of GPUs in thousandths, the least."""
        found = {}
        for name, amount in asks_of(shape):
            if amount and amount > (left := self.left.get(name, 1 if name == PODS else 0)):
                found[name] = amount - left
        if milli := sum(sorted(max(0, shape.gpu_milli - free) for free in self.gpu_milli)[: shape.gpus]):
            found[GPU] = milli
        return found

    def free_of(self, device: int) -> int:
        """Free thousandths of a device; 0 where the node has no such device."""
        return self.gpu_milli[device] if device < len(self.gpu_milli) else 0

    def held(self, gpus: int) -> int:
        """Devices that hold a pod or part of one. gpus: devices of the node."""
        return sum(free < WHOLE_GPU_MILLI for free in self.gpu_milli[:gpus])
