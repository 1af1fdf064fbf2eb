"""Assignment table: pods per class and node while a batch is planned, with the free capacity that shrinks with them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.capacity import Free
from cluster.workloads import PodShape
from placement.batch.problem import Batch
from placement.engine.ledger import left_after, tightest_devices


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """Placements of pods of one class, in the order of dealing."""

    node: IntArray
    """Shape (seats,)."""
    devices: IntArray
    """Bit masks, shape (seats,)."""


_NONE = Dealt(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def _joined(parts: Sequence[Dealt]) -> Dealt:
    return Dealt(np.concatenate([p.node for p in parts]), np.concatenate([p.devices for p in parts]))


def deal(free: Free, shape: PodShape, nodes: IntArray, counts: IntArray) -> Dealt:
    """Charges `counts` pods of a shape to these nodes, which are all different and have the resources."""
    nodes, counts = nodes[counts > 0], counts[counts > 0]
    for _, amount, left in free.asked(shape):
        left[nodes] -= counts * amount
    if not shape.gpus:
        return Dealt(np.repeat(nodes, counts), np.zeros(int(counts.sum()), dtype=np.int64))
    seats = [_NONE]
    for turn in range(int(counts.max(initial=0))):  # one pod on each node
        here = nodes[counts > turn]
        left_milli = free.gpu_milli[here]
        if shape.gpus > 1 and not shape.is_whole_gpu:
            # Devices with most left: that keeps fractions of several devices possible for as long as they are.
            roomiest = (-left_milli).argsort(axis=1, kind="stable")[:, : shape.gpus]
            devices: IntArray = np.left_shift(1, roomiest).sum(axis=1)
        else:
            devices = tightest_devices(shape, left_milli)
        free.gpu_milli[here] = left_after(shape, left_milli, devices)
        seats.append(Dealt(here, devices))
    return _joined(seats)


class Table:
    """Placements of a batch while they are dealt, with the free capacity that shrinks with them."""

    def __init__(self, batch: Batch, free: Free) -> None:
        self.batch = batch
        self.free = free.copy()
        self.running = batch.in_use.copy()
        """Nodes that are active; shape (nodes,)."""
        self.left = batch.pods.copy()
        """Pods without a placement, shape (classes,)."""
        self.content = np.zeros((len(batch.kind), len(batch.shapes)), dtype=np.int64)
        """Placed pods of each class on each node, shape (nodes, classes)."""
        self._dealt: list[list[Dealt]] = [[] for _ in batch.shapes]
        totals = np.array([free.cpu_milli.clip(min=0).mean(), free.memory_bytes.clip(min=0).mean(), 0.0])
        totals[2] = free.gpu_milli.clip(min=0).sum(axis=1).mean()
        self._scale: FloatArray = 1.0 / np.maximum(totals, 1.0)

    def seat(self, c: int, nodes: IntArray, counts: IntArray) -> int:
        """Places up to `counts` pods of class c on each of these nodes, as far as they fit. Returns the number placed.

        nodes: all different; the first are served first.
        """
        counts = np.minimum(counts, self.free.copies(self.batch.shapes[c], nodes))
        counts = _first(counts, int(self.left[c]))
        if not counts.any():
            return 0
        dealt = deal(self.free, self.batch.shapes[c], nodes, counts)
        self.running[dealt.node] = True
        self._dealt[c].append(dealt)
        self.content[nodes, c] += counts
        self.left[c] -= len(dealt.node)
        return len(dealt.node)

    def fit(self, c: int, most: int | None = None, among: BoolArray | None = None) -> int:
        """Best fit for up to `most` pending pods of a class. Returns the number placed.

        Active nodes come first, the tightest of them before others, then idle ones by dollars per pod that they could
        take.
        """
        wanted = int(self.left[c]) if most is None else min(most, int(self.left[c]))
        able = self.batch.eligible[c] if among is None else self.batch.eligible[c] & among
        nodes = np.flatnonzero(able) if wanted else np.zeros(0, dtype=np.int64)
        copies = self.free.copies(self.batch.shapes[c], nodes)
        nodes, copies = nodes[copies > 0], copies[copies > 0]
        order = self.preference(nodes, copies, wanted)
        return self.seat(c, nodes[order], _first(copies[order], wanted))

    def preference(self, nodes: IntArray, copies: IntArray, wanted: int) -> IntArray:
        """Order in which nodes are filled with pods of one class. Ties follow the table's order."""
        idle = ~self.running[nodes]
        per_pod = np.where(idle, self.batch.node_usd[nodes] / np.minimum(copies, max(wanted, 1)), 0.0)
        # What is left, in units of an average node: the least is the best fit.
        tightness = (
            self.free.cpu_milli[nodes] * self._scale[0]
            + self.free.memory_bytes[nodes] * self._scale[1]
            + self.free.gpu_milli[nodes].clip(min=0).sum(axis=1) * self._scale[2]
        )
        order: IntArray = np.lexsort((tightness, per_pod, idle))
        return order

    def fit_all(self, among: BoolArray | None = None) -> None:
        """Best fit for every class, in the order of dealing."""
        for c in self.batch.order.tolist():
            if self.left[c]:
                self.fit(c, among=among)

    def seats(self, c: int) -> Dealt:
        """Placements of a class until now, in the order of dealing."""
        if len(self._dealt[c]) > 1:
            self._dealt[c] = [_joined(self._dealt[c])]
        return self._dealt[c][0] if self._dealt[c] else _NONE

    def take_back(self, c: int, numbers: Sequence[int] | IntArray) -> None:
        """Frees placements of a class, given by their numbers in `seats(c)`; their pods are pending again."""
        seats = self.seats(c)
        gone = np.zeros(len(seats.node), dtype=np.bool_)
        gone[np.asarray(numbers, dtype=np.int64)] = True
        which = np.zeros(int(gone.sum()), dtype=np.int64)
        self.free.charge_all(self.batch.shapes[c : c + 1], which, seats.node[gone], seats.devices[gone], -1)
        self._dealt[c] = [Dealt(seats.node[~gone], seats.devices[~gone])]
        self.left[c] += int(gone.sum())
        left = np.unique(seats.node[gone])
        self.content[:, c] -= np.bincount(seats.node[gone], minlength=len(self.content))
        self.running[left] = self.batch.in_use[left] | self.content[left].any(axis=1)

    def vacate(self, node: int, c: int | None = None) -> None:
        """Frees all placements on a node, or those of one class."""
        for each in np.flatnonzero(self.content[node]).tolist() if c is None else [c]:
            self.take_back(each, np.flatnonzero(self.seats(each).node == node))

    def copy(self) -> "Table":
        """Independent copy of the table."""
        twin = Table.__new__(Table)
        twin.batch, twin._scale = self.batch, self._scale
        twin.free, twin.running = self.free.copy(), self.running.copy()
        twin.left, twin.content = self.left.copy(), self.content.copy()
        twin._dealt = [list(parts) for parts in self._dealt]
        return twin

    @property
    def usd_per_hour(self) -> float:
        """Objective: price per hour of the nodes that these placements start, and of the pods left out."""
        return self.node_usd + self.left_out_usd

    @property
    def node_usd(self) -> float:
        """Price per hour of the nodes that these placements start."""
        return float(self.batch.node_usd[self.running & ~self.batch.in_use].sum())

    @property
    def left_out_usd(self) -> float:
        """Price per hour of the pods left out."""
        return float(self.batch.left_out_usd @ self.left)


def _first(counts: IntArray, most: int) -> IntArray:
    """Counts cut so that they add up to at most `most`; the first ones are kept."""
    if int(counts.sum()) <= most:
        return counts
    before = np.cumsum(counts) - counts
    cut: IntArray = np.clip(most - before, 0, counts)
    return cut


def deal_by_best_fit(batch: Batch, free: Free) -> Table:
    """First stage: best-fit decreasing by class. Always feasible, never far from a scheduler's result.

    10,000 pods of 25 shapes on 1,000 nodes: see docs/planning.md for the measured time.
    """
    table = Table(batch, free)
    table.fit_all()
    return table
