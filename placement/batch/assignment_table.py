"""Assignment table: pods per class and node while a batch is planned, with the free capacity that shrinks with them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.snapshot import Free
from cluster.workloads import PodShape
from placement.batch.problem import Batch, copies_in
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


class FreeCapacity:
    """Free resources and activity of each node; both change as pods are placed."""

    def __init__(self, free: Free, running: BoolArray) -> None:
        others = {name: left.copy() for name, left in free.others.items()}
        self.free = Free(free.cpu_milli.copy(), free.memory_bytes.copy(), free.gpu_milli.copy(), others)
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
        for name, left in self.free.others.items():
            left[nodes] -= counts * shape.asks(name)
        self.running[nodes] = True
        if not shape.gpus:
            return Dealt(np.repeat(nodes, counts), np.zeros(int(counts.sum()), dtype=np.int64))
        seats = [_NONE]
        for turn in range(int(counts.max(initial=0))):  # one pod on each node
            here = nodes[counts > turn]
            left = self.free.gpu_milli[here]
            if shape.gpus > 1 and not shape.is_whole_gpu:
                # Devices with most left: that keeps fractions of several devices possible for as long as they are.
                roomiest = (-left).argsort(axis=1, kind="stable")[:, : shape.gpus]
                devices: IntArray = np.left_shift(1, roomiest).sum(axis=1)
            else:
                devices = tightest_devices(shape, left)
            self.free.gpu_milli[here] = left_after(shape, left, devices)
            seats.append(Dealt(here, devices))
        return _joined(seats)

    def give_back(self, shape: PodShape, seats: Dealt) -> None:
        """Returns placements. Nodes stay active: the caller knows whether anything else runs there."""
        np.add.at(self.free.cpu_milli, seats.node, shape.cpu_milli)
        np.add.at(self.free.memory_bytes, seats.node, shape.memory_bytes)
        for name, left in self.free.others.items():
            np.add.at(left, seats.node, shape.asks(name))
        held = seats.devices[:, None] >> np.arange(self.free.gpu_milli.shape[1]) & 1
        np.add.at(self.free.gpu_milli, seats.node, held * shape.gpu_milli)


def order_of_dealing(batch: Batch) -> IntArray:
    """Order of classes for the best fit: whole devices, many before few, then fractions, then CPU and memory.

    Large comes before small. Within one node this is best-fit decreasing onto devices, the order that decides whether a
    pattern is feasible.
    """
    size = (
        (batch.ask / np.maximum(batch.kind_room.mean(axis=0), 1e-9)).max(axis=1)
        if len(batch.kinds)
        else batch.ask[:, 0]
    )
    shapes = batch.shapes
    return np.array(
        sorted(
            range(len(shapes)),
            key=lambda c: (
                not shapes[c].is_whole_gpu,
                -shapes[c].gpus,
                -shapes[c].gpu_milli,
                int(batch.eligible[c].sum()),
                -float(size[c]),
                c,
            ),
        ),
        dtype=np.int64,
    )


class Table:
    """Placements of a batch while they are dealt, with the free capacity that shrinks with them."""

    def __init__(self, batch: Batch, free: Free) -> None:
        self.batch = batch
        self.room = FreeCapacity(free, batch.in_use)
        self.left = batch.pods.copy()
        """Pods without a placement, shape (classes,)."""
        self.order = order_of_dealing(batch)
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
        counts = np.minimum(counts, self.room.copies(self.batch.shapes[c], nodes))
        counts = _first(counts, int(self.left[c]))
        if not counts.any():
            return 0
        dealt = self.room.deal(self.batch.shapes[c], nodes, counts)
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
        copies = self.room.copies(self.batch.shapes[c], nodes)
        nodes, copies = nodes[copies > 0], copies[copies > 0]
        order = self.preference(nodes, copies, wanted)
        return self.seat(c, nodes[order], _first(copies[order], wanted))

    def preference(self, nodes: IntArray, copies: IntArray, wanted: int) -> IntArray:
        """Order in which nodes are filled with pods of one class. Ties follow the table's order."""
        idle = ~self.room.running[nodes]
        per_pod = np.where(idle, self.batch.node_usd[nodes] / np.minimum(copies, max(wanted, 1)), 0.0)
        order: IntArray = np.lexsort((self.room.tightness(nodes, self._scale), per_pod, idle))
        return order

    def fit_all(self, among: BoolArray | None = None) -> None:
        """Best fit for every class, in the order of dealing."""
        for c in self.order.tolist():
            if self.left[c]:
                self.fit(c, among=among)

    def seats(self, c: int) -> Dealt:
        """Placements of a class until now, in the order of dealing."""
        if len(self._dealt[c]) > 1:
            self._dealt[c] = [_joined(self._dealt[c])]
        return self._dealt[c][0] if self._dealt[c] else _NONE

    def take_back(self, c: int, which: Sequence[int] | IntArray) -> None:
        """Frees placements of a class, given by their numbers in `seats(c)`; their pods are pending again."""
        seats = self.seats(c)
        gone = np.zeros(len(seats.node), dtype=np.bool_)
        gone[np.asarray(which, dtype=np.int64)] = True
        self.room.give_back(self.batch.shapes[c], Dealt(seats.node[gone], seats.devices[gone]))
        self._dealt[c] = [Dealt(seats.node[~gone], seats.devices[~gone])]
        self.left[c] += int(gone.sum())
        left = np.unique(seats.node[gone])
        self.content[:, c] -= np.bincount(seats.node[gone], minlength=len(self.content))
        self.room.running[left] = self.batch.in_use[left] | self.content[left].any(axis=1)

    def vacate(self, node: int, c: int | None = None) -> None:
        """Frees all placements on a node, or those of one class."""
        for each in np.flatnonzero(self.content[node]).tolist() if c is None else [c]:
            self.take_back(each, np.flatnonzero(self.seats(each).node == node))

    def copy(self) -> "Table":
        """Independent copy of the table."""
        twin = Table.__new__(Table)
        twin.batch, twin.order, twin._scale = self.batch, self.order, self._scale
        twin.room = FreeCapacity(self.room.free, self.room.running)
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
        return float(self.batch.node_usd[self.room.running & ~self.batch.in_use].sum())

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
