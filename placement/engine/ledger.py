"""Ledger of the free resources of each node while a plan is made, and what of them one more pod would take."""

from collections.abc import Mapping, Sequence

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.snapshot import Free, Snapshot
from cluster.workloads import PODS, PodShape

ALL = slice(None)


class Ledger:
    """Free resources of a fleet, changed pod by pod.

    cpu_milli, memory_bytes: shape (nodes,). gpu_milli: shape (nodes, width), thousandths left of each device. others:
    of every other resource, by name, shape (nodes,). gpu_type, gpus: shape (nodes,), constant. All may be read; only
    `take` and `give` change them.
    """

    def __init__(self, free: Free, gpus: IntArray, gpu_type: IntArray) -> None:
        self.cpu_milli = free.cpu_milli
        self.memory_bytes = free.memory_bytes
        self.gpu_milli = free.gpu_milli
        self.others = free.others
        self.gpus = gpus
        self.gpu_type = gpu_type
        self._charges = 0
        self._last_charge = np.zeros(len(gpus), dtype=np.int64)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Ledger":
        return cls(snapshot.free(), snapshot.nodes.gpus, snapshot.nodes.gpu_type)

    def copy(self) -> "Ledger":
        """The same free resources, which later charges leave as they are."""
        others = {name: left.copy() for name, left in self.others.items()}
        free = Free(self.cpu_milli.copy(), self.memory_bytes.copy(), self.gpu_milli.copy(), others)
        return Ledger(free, self.gpus, self.gpu_type)

    @property
    def mark(self) -> int:
        """Point in time to pass to `changed_since`."""
        return self._charges

    @property
    def free(self) -> Free:
        """The present amounts themselves, not a copy: do not write to them."""
        return Free(self.cpu_milli, self.memory_bytes, self.gpu_milli, self.others)

    def changed_since(self, mark: int) -> IntArray:
        """Nodes that changed after that mark, each once, ascending."""
        return np.flatnonzero(self._last_charge > mark)

    def take(self, shape: PodShape, node: int, devices: Sequence[int]) -> None:
        """Charges a pod to a node. The caller has checked that it fits."""
        self._charge(shape, node, devices, 1)

    def give(self, shape: PodShape, node: int, devices: Sequence[int]) -> None:
        """Returns what `take` charged."""
        self._charge(shape, node, devices, -1)

    def _charge(self, shape: PodShape, node: int, devices: Sequence[int], sign: int) -> None:
        self.cpu_milli[node] -= sign * shape.cpu_milli
        self.memory_bytes[node] -= sign * shape.memory_bytes
        for device in devices:
            self.gpu_milli[node, device] -= sign * shape.gpu_milli
        if PODS in self.others:
            self.others[PODS][node] -= sign
        for name, amount in shape.others:
            if name in self.others:
                self.others[name][node] -= sign * amount
        self._charges += 1
        self._last_charge[node] = self._charges

    def fits(self, shape: PodShape, nodes: IntArray | None = None) -> BoolArray:
        """Whether the free resources suffice, device by device. Does not check eligibility.

        nodes: rows to check, all when None. Returns shape (len(nodes),).
        """
        rows = ALL if nodes is None else nodes
        enough = has(self.cpu_milli[rows], shape.cpu_milli) & has(self.memory_bytes[rows], shape.memory_bytes)
        if shape.gpus:
            enough &= (self.gpu_milli[rows] >= shape.gpu_milli).sum(axis=1) >= shape.gpus
        if self.others or shape.others:
            enough &= has_others(shape, self.others, rows)
        fits: BoolArray = enough
        return fits


def has(left: IntArray, asked: int) -> BoolArray:
    """Whether each node has as much left; a pod that asks for none may go where pods hold more than the node has."""
    return left >= asked if asked else np.ones(len(left), dtype=np.bool_)


def has_others(shape: PodShape, left: Mapping[str, IntArray], rows: IntArray | slice = ALL) -> BoolArray | bool:
    """Whether each node has as much of every other resource left as the pod asks for. Shape (rows,); False for all."""
    enough: BoolArray | bool = True
    if PODS in left:
        enough = left[PODS][rows] >= 1
    for name, amount in shape.others:
        enough &= left[name][rows] >= amount if name in left else False
    return enough


_NEVER = np.iinfo(np.int64).max

MOST_COPIES = 1 << 20
"""Number of pods that stands for any number of them, where a shape requests nothing that a node could lack."""


def copies_at_most(shape: PodShape, free: Free) -> IntArray:
    """Upper bound on the pods of one shape that the free resources of each node hold together. Shape (nodes,)."""
    copies = np.full(len(free.cpu_milli), MOST_COPIES)
    for left, asked in ((free.cpu_milli, shape.cpu_milli), (free.memory_bytes, shape.memory_bytes)):
        if asked:
            copies = np.minimum(copies, left // asked)
    for name, left in free.others.items():
        if asked := shape.asks(name):
            copies = np.minimum(copies, left // asked)
    if any(name not in free.others for name, _ in shape.others):
        return np.zeros(len(copies), dtype=np.int64)
    if shape.gpus:
        copies = np.minimum(copies, (free.gpu_milli // shape.gpu_milli).sum(axis=1) // shape.gpus)
    return np.asarray(np.maximum(copies, 0), dtype=np.int64)


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
