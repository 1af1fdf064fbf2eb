"""Deals seats to classes, node by node, and knows at the end what sits where: every rung fills one."""

from collections.abc import Sequence

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.snapshot import Free
from placement.batch.node_capacity import Dealt, Room
from placement.batch.problem import Batch


def order_of_dealing(batch: Batch) -> IntArray:
    """Classes as they fit best: whole devices, many before few, then shares, large before small, then CPU and memory.

    Within one node this is best-fit decreasing onto devices, the order by which a pattern is called feasible.
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


_NONE = Dealt(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class Table:
    """The seats of a batch while they are dealt, on a room that shrinks with them."""

    def __init__(self, batch: Batch, free: Free) -> None:
        self.batch = batch
        self.room = Room(free, batch.in_use)
        self.left = batch.pods.copy()
        """Pods without a seat, shape (classes,)."""
        self.order = order_of_dealing(batch)
        self.content = np.zeros((len(batch.kind), len(batch.shapes)), dtype=np.int64)
        """Pods of each class that got a seat on each node, shape (nodes, classes)."""
        self._dealt: list[list[Dealt]] = [[] for _ in batch.shapes]
        totals = np.array([free.cpu_milli.clip(min=0).mean(), free.memory_bytes.clip(min=0).mean(), 0.0])
        totals[2] = free.gpu_milli.clip(min=0).sum(axis=1).mean()
        self._scale: FloatArray = 1.0 / np.maximum(totals, 1.0)

    def seat(self, c: int, nodes: IntArray, counts: IntArray) -> int:
        """So many pods of class c on each of these nodes, as far as pods wait and there is room; how many it was.

        nodes: all different, the first are served first.
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
        """Best fit for up to `most` waiting pods of a class: nodes that run first, the tightest of them before others,
        then idle ones by dollars per pod that they could take; how many found a seat."""
        wanted = int(self.left[c]) if most is None else min(most, int(self.left[c]))
        able = self.batch.eligible[c] if among is None else self.batch.eligible[c] & among
        nodes = np.flatnonzero(able) if wanted else np.zeros(0, dtype=np.int64)
        copies = self.room.copies(self.batch.shapes[c], nodes)
        nodes, copies = nodes[copies > 0], copies[copies > 0]
        order = self.preference(nodes, copies, wanted)
        return self.seat(c, nodes[order], _first(copies[order], wanted))

    def preference(self, nodes: IntArray, copies: IntArray, wanted: int) -> IntArray:
        """The order in which nodes are filled with pods of one class. Ties go to the table's order."""
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
        """The seats of a class so far, in the order in which they were dealt."""
        if len(self._dealt[c]) > 1:
            parts = self._dealt[c]
            self._dealt[c] = [
                Dealt(np.concatenate([p.node for p in parts]), np.concatenate([p.devices for p in parts]))
            ]
        return self._dealt[c][0] if self._dealt[c] else _NONE

    def take_back(self, c: int, which: Sequence[int] | IntArray) -> None:
        """Seats of a class, given by their numbers in `seats(c)`, are free again and their pods wait again."""
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
        """Take back all seats on a node, or those of one class."""
        for each in np.flatnonzero(self.content[node]).tolist() if c is None else [c]:
            self.take_back(each, np.flatnonzero(self.seats(each).node == node))

    def copy(self) -> "Table":
        """A table that goes its own way from here."""
        twin = Table.__new__(Table)
        twin.batch, twin.order, twin._scale = self.batch, self.order, self._scale
        twin.room = Room(self.room.free, self.room.running)
        twin.left, twin.content = self.left.copy(), self.content.copy()
        twin._dealt = [list(parts) for parts in self._dealt]
        return twin

    @property
    def usd_per_hour(self) -> float:
        """What the nodes cost that run because of these seats, and what is left out: the objective."""
        opened = self.room.running & ~self.batch.in_use
        return float(self.batch.node_usd[opened].sum() + self.batch.left_out_usd @ self.left)


def _first(counts: IntArray, most: int) -> IntArray:
    """Counts cut so that they add up to at most `most`, the first ones kept."""
    if int(counts.sum()) <= most:
        return counts
    before = np.cumsum(counts) - counts
    cut: IntArray = np.clip(most - before, 0, counts)
    return cut


def deal_by_best_fit(batch: Batch, free: Free) -> Table:
    """The first rung: best-fit decreasing by the class. Always feasible, never far from what a scheduler would do.

    10,000 pods of 25 shapes on 1,000 nodes: see docs/planning.md for the measured time.
    """
    table = Table(batch, free)
    table.fit_all()
    return table
