"""Reclaimable resources: what stopping the pods below a priority would free on each node, by bands of priority."""

from collections.abc import Sequence

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.snapshot import PENDING, PodTable, device_numbers
from cluster.workloads import PodShape
from placement.engine.ledger import Ledger

BANDS = 8
"""Largest number of bands. Chosen: clusters have a handful of priority classes; more of them share bands, and only the
order in which nodes are examined is then coarser. 20,000 nodes with 8 GPUs each: 13 MB."""


class Reclaimable:
    """Resources that pods below a priority hold, current with the draft that it belongs to.

    Bands are cumulative: band b holds the pods of all bands up to b. The last one holds all pods below the priority, so
    what is free together with it bounds what any preemption can reach.
    """

    # 8,000 pods on 1,000 nodes: 2 ms to build, 10 microseconds for a change, 50 for `fits`.

    def __init__(
        self, pods: PodTable, node: IntArray, devices: IntArray, priority: IntArray, below: int, ledger: Ledger
    ) -> None:
        """node, devices, priority: shape (pods,), as in the draft. below: priority that is not reclaimable any more."""
        self.below = below
        self._ledger = ledger
        rows = np.flatnonzero((node != PENDING) & (priority < below))
        levels = np.unique(priority[rows])
        edges = np.linspace(0, len(levels), min(BANDS, len(levels)) + 1)[1:]
        self._ceilings: IntArray = levels[np.ceil(edges).astype(np.int64) - 1]
        count, width = len(ledger.cpu_milli), ledger.gpu_milli.shape[1]
        shape = (len(self._ceilings), count)
        place = np.searchsorted(self._ceilings, priority[rows]) * count + node[rows]
        ask = np.array([(s.cpu_milli, s.memory_bytes, s.gpu_milli) for s in pods.shapes], dtype=np.int64).reshape(-1, 3)
        cpu_milli, memory_bytes, gpu_milli = ask[pods.shape[rows]].T

        def held(amount: IntArray) -> IntArray:
            total = np.bincount(place, amount, shape[0] * count).astype(np.int64)
            return np.asarray(total.reshape(shape).cumsum(axis=0), dtype=np.int64)

        self._count = held(np.ones(len(rows), dtype=np.int64))
        self._cpu_milli, self._memory_bytes = held(cpu_milli), held(memory_bytes)
        self._gpu_milli = np.zeros((*shape, width), dtype=np.int64)
        for device in range(width):
            self._gpu_milli[:, :, device] = held(gpu_milli * (devices[rows] >> device & 1))

    @property
    def bands(self) -> int:
        """Number of bands; 0 where no pod below the priority runs."""
        return len(self._ceilings)

    def charge(self, shape: PodShape, priority: int, node: int, devices: int, sign: int) -> None:
        """Counts a pod at a node (sign 1), or no longer (-1)."""
        if priority >= self.below:
            return
        band = int(np.searchsorted(self._ceilings, priority))
        if band == self.bands:  # a priority that no running pod had
            self._add_band(priority)
        self._count[band:, node] += sign
        self._cpu_milli[band:, node] += sign * shape.cpu_milli
        self._memory_bytes[band:, node] += sign * shape.memory_bytes
        if devices:
            self._gpu_milli[band:, node, device_numbers(devices)] += sign * shape.gpu_milli

    def _add_band(self, priority: int) -> None:
        self._ceilings = np.append(self._ceilings, priority)
        for name in ("_count", "_cpu_milli", "_memory_bytes", "_gpu_milli"):
            held = getattr(self, name)
            last = held[-1:] if len(held) else np.zeros((1, *held.shape[1:]), dtype=np.int64)
            setattr(self, name, np.concatenate([held, last]))

    def free(self, band: int = -1) -> tuple[IntArray, IntArray, IntArray]:
        """Free CPU, memory and thousandths of each device with the pods of that band stopped."""
        ledger = self._ledger
        if not self.bands:
            return ledger.cpu_milli, ledger.memory_bytes, ledger.gpu_milli
        cpu_milli = ledger.cpu_milli + self._cpu_milli[band]
        return cpu_milli, ledger.memory_bytes + self._memory_bytes[band], ledger.gpu_milli + self._gpu_milli[band]

    def fits(self, shape: PodShape, band: int) -> BoolArray:
        """Nodes where pods of that band run and a pod of this shape would fit without them. Shape (nodes,)."""
        cpu_milli, memory_bytes, gpu_milli = self.free(band)
        enough = (self._count[band] > 0) & (cpu_milli >= shape.cpu_milli) & (memory_bytes >= shape.memory_bytes)
        if shape.gpus:
            enough &= (gpu_milli >= shape.gpu_milli).sum(axis=1) >= shape.gpus
        fits: BoolArray = enough
        return fits

    def losses(self, shape: PodShape, band: int, nodes: IntArray) -> Sequence[IntArray]:
        """Least amount that a pod of this shape takes from the pods above each lower band, the lowest band first.

        In thousandths of GPUs, or of cores for a pod without GPUs; the last entry is what it takes from the pods of
        `band` that are in no lower one. Each of shape (len(nodes),).
        """
        ledger = self._ledger
        if shape.gpus:
            asked, free, held = shape.total_gpu_milli, ledger.gpu_milli[nodes].sum(axis=1), self._gpu_milli
            freed = [np.zeros_like(free), *(held[b, nodes].sum(axis=1) for b in range(band))]
        else:
            asked, free = shape.cpu_milli, ledger.cpu_milli[nodes]
            freed = [np.zeros_like(free), *(self._cpu_milli[b, nodes] for b in range(band))]
        return [np.maximum(0, asked - free - each) for each in freed]
