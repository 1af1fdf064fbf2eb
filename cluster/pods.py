"""Pods as columns: requests, node and devices of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray, Names
from cluster.workloads import PodShape

PENDING = -1
"""Node index of a pod that is not bound."""


@dataclass(frozen=True, slots=True, eq=False)
class PodTable:
    """Pods of a snapshot that are pending or hold resources; one entry per pod in each column."""

    names: Names
    """`namespace/name`."""
    shape: IntArray
    """Index into `shapes`."""
    shapes: tuple[PodShape, ...]
    """Distinct shapes; thousands of pods share a few dozen."""
    node: IntArray
    """Index of the node that the pod is bound to, or PENDING."""
    devices: IntArray
    """Bit d is set where the pod holds (its share of) device d of its node."""
    priority: IntArray
    gang: IntArray
    """Index into the snapshot's `gangs`, -1 for none."""
    owner: tuple[str, ...]
    """Service (`namespace/name`) that an instance belongs to, or "" ."""
    movable: BoolArray
    """Whether the pod may be evicted and started elsewhere: its owner restarts it, and it has no local state."""
    never_preempts: BoolArray | None = None
    """Whether no pod may be stopped for this one, whatever their priorities; None: for none of them."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def pending(self) -> IntArray:
        """Rows of the pods that are not bound, in table order."""
        return np.flatnonzero(self.node == PENDING)

    def plus(self, more: "PodTable") -> "PodTable":
        """Pods of both tables, this one's first. Gang indices must mean the same gangs in both."""
        new = tuple(dict.fromkeys(shape for shape in more.shapes if shape not in self.shapes))
        shapes = (*self.shapes, *new)
        number = np.array([shapes.index(shape) for shape in more.shapes], dtype=np.int64)
        return PodTable(
            names=self.names.plus(more.names),
            shape=np.append(self.shape, number[more.shape]),
            shapes=shapes,
            node=np.append(self.node, more.node),
            devices=np.append(self.devices, more.devices),
            priority=np.append(self.priority, more.priority),
            gang=np.append(self.gang, more.gang),
            owner=self.owner + more.owner,
            movable=np.append(self.movable, more.movable),
            never_preempts=_joined(self, more),
        )

    def never_preempt_at(self, rows: IntArray) -> BoolArray | None:
        """Column `never_preempts` of these rows, for a table of them."""
        return None if self.never_preempts is None else self.never_preempts[rows]


def _joined(first: PodTable, second: PodTable) -> BoolArray | None:
    """Column `never_preempts` of both tables."""
    if first.never_preempts is None and second.never_preempts is None:
        return None
    columns = [
        np.zeros(len(t), dtype=np.bool_) if t.never_preempts is None else t.never_preempts for t in (first, second)
    ]
    return np.concatenate(columns)


def device_mask(devices: Sequence[int]) -> int:
    """Bit set of device numbers, as in `PodTable.devices`."""
    mask = 0
    for device in devices:
        mask |= 1 << device
    return mask


def device_numbers(mask: int) -> tuple[int, ...]:
    """Device numbers of a bit set, ascending."""
    return tuple(d for d in range(int(mask).bit_length()) if mask >> d & 1)
