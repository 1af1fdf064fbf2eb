"""Matching: an operation's records from all its members, joined to one operation."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from health.records.layout import Layout

MOST_PENDING = 1_000_000
"""Records that wait for the other members at most; the oldest are dropped and counted."""
_PENDING, _PENDING_OF_RANK = 20_000, 400
"""The same of a small job, and for each rank: four seconds of 100 operations a second."""
_PENDING_BYTES = 100
"""Memory for each, with what a look at all of them takes."""
_INDEX_BITS, _SEQ_BITS = 14, 24
"""Members of a path, and operations of it that may be under way at once: enough bits are left for 33 M paths."""
_SEQ_MASK = (1 << _SEQ_BITS) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """Records of finished operations of several ranks; shape (records,) each."""

    path: IntArray
    seq: IntArray
    index: IntArray
    """Place of the rank among the path's ranks; a send's sender is 0."""
    rank: IntArray
    step: IntArray
    enter_s: FloatArray
    exit_s: FloatArray

    def __getitem__(self, chosen: IntArray | BoolArray) -> "Finished":
        return Finished(*(column[chosen] for column in self.columns()))

    def columns(self) -> tuple[Array, ...]:
        """All fields, in their order."""
        return (self.path, self.seq, self.index, self.rank, self.step, self.enter_s, self.exit_s)


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Operations whose members have all reported; shape (operations,) each."""

    path: IntArray
    step: IntArray
    transfer_s: FloatArray
    """Time that the transfer took once the last member had arrived.

    A send's holds the error of the two clocks, and may be negative: with the sends back it cancels, as in a round trip.
    """


class Matcher:
    """Operations that some members have reported and others not yet."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        none, none_s = np.zeros(0, np.int64), np.zeros(0)
        self._pending = Finished(none, none, none, none, none, none_s, none_s)
        self._most_pending = most_pending(layout.ranks)
        sender, receiver = layout.pair_codes // layout.ranks, layout.pair_codes % layout.ranks
        self._back = layout.pair_paths(receiver, sender) - len(layout.groups)
        """Number of the pair that sends back; negative where none does."""
        self._took_s = np.full(len(sender), np.inf)
        """Shortest time from the send of each pair to the end of its receive, by their clocks, since the last call of
        `align`."""
        self._ahead_s = np.zeros(len(sender))
        """How far each pair's receiver's clock is ahead of its sender's."""
        self.dropped = 0

    @property
    def pending_bytes(self) -> int:
        """Memory for the records that wait."""
        return _PENDING_BYTES * len(self._pending.path)

    def match(self, fresh: Finished) -> Matched:
        """Operations that these records complete."""
        both = zip(self._pending.columns(), fresh.columns(), strict=True)
        rows = Finished(*(np.concatenate(pair) for pair in both))
        key = (rows.path << (_INDEX_BITS + _SEQ_BITS)) | ((rows.seq & _SEQ_MASK) << _INDEX_BITS) | rows.index
        order = np.argsort(key, kind="stable")
        rows = rows[order[np.diff(key[order], prepend=-1) != 0]]
        operation = (rows.path << _SEQ_BITS) | (rows.seq & _SEQ_MASK)
        first = np.flatnonzero(np.diff(operation, prepend=-1))
        count = np.diff(first, append=len(operation))
        whole = count >= self._layout.sizes[rows.path[first]] if len(first) else np.zeros(0, np.bool_)
        done = np.repeat(whole, count)
        waiting = rows[~done]
        excess = len(waiting.path) - self._most_pending
        if excess > 0:
            waiting = waiting[np.sort(np.argsort(waiting.step, kind="stable")[excess:])]
            self.dropped += excess
        self._pending = waiting
        return self._measured(rows[done], count[whole])

    def _measured(self, rows: Finished, count: IntArray) -> Matched:
        first = np.cumsum(count) - count
        if not len(first):
            nothing = np.zeros(0, np.int64)
            return Matched(nothing, nothing, np.zeros(0))
        path = rows.path[first]
        transfer_s = np.asarray(np.minimum.reduceat(rows.exit_s - rows.enter_s, first))
        sends = path >= len(self._layout.groups)
        sent, pair = first[sends], path[sends] - len(self._layout.groups)
        enter_s, exit_s = rows.enter_s[sent], rows.exit_s[sent + 1]
        np.minimum.at(self._took_s, pair, exit_s - enter_s)
        transfer_s[sends] = exit_s - np.maximum(enter_s + self._ahead_s[pair], rows.enter_s[sent + 1])
        return Matched(path, rows.step[first], transfer_s)

    def align(self) -> None:
        """Puts the clocks of each pair that sends both ways beside each other, by the shortest sends since the last
        call: half the difference of both is that of the clocks. Where they contradict each other, as after a step of a
        clock, nothing changes."""
        back_s = np.where(self._back >= 0, self._took_s[self._back], np.inf)
        known = np.isfinite(self._took_s) & np.isfinite(back_s)
        known[known] = self._took_s[known] + back_s[known] >= 0
        self._ahead_s[known] = (self._took_s[known] - back_s[known]) / 2
        self._took_s = np.full_like(self._took_s, np.inf)


def most_pending(ranks: int) -> int:
    """Records of a job that may wait for the other members."""
    return min(MOST_PENDING, _PENDING + _PENDING_OF_RANK * ranks)


def most_pending_bytes(ranks: int) -> int:
    return _PENDING_BYTES * most_pending(ranks)


KEPT = 128
"""Steps that are kept: the longest window and the steps of its baseline."""


class StepSums:
    """Ring of the last steps' sums."""

    def __init__(self, ranks: int, span: IntArray) -> None:
        """span: shape (paths,), number of each path's span."""
        self._compute_s = np.zeros((KEPT, ranks))
        self._span = span
        self._transfer_s = np.zeros((KEPT, int(span.max(initial=-1)) + 1))
        self._taken = np.zeros((KEPT, ranks), np.float32)
        """Bytes that each rank exchanged in operations whose sizes differ between members."""
        self._exchanges = np.zeros(self._transfer_s.shape[1], np.bool_)
        """Spans of such operations."""
        self._begun_s = np.full((KEPT,), np.inf)
        self._newest = -1
        self._first = -1
        self.front = np.full(ranks, -1, np.int64)
        """Newest step of each rank."""

    @property
    def complete(self) -> int:
        """Newest step that every rank has left behind; -1 before the first."""
        return int(self.front.min()) - 1

    def add_compute(self, rank: IntArray, step: IntArray, gap_s: FloatArray, enter_s: FloatArray) -> None:
        """gap_s: computing time before an operation; enter_s: its aligned enter."""
        if not len(step):
            return
        self._advance(int(step.max()), int(step.min()))
        kept = step > self._newest - KEPT
        np.add.at(self._compute_s, (step[kept] % KEPT, rank[kept]), gap_s[kept])
        np.minimum.at(self._begun_s, step[kept] % KEPT, enter_s[kept])
        np.maximum.at(self.front, rank, step)

    def add_transfers(self, matched: Matched) -> None:
        kept = matched.step > self._newest - KEPT
        np.add.at(
            self._transfer_s, (matched.step[kept] % KEPT, self._span[matched.path[kept]]), matched.transfer_s[kept]
        )

    def add_taken(self, rank: IntArray, step: IntArray, path: IntArray, size: IntArray) -> None:
        """size: size class of operations whose sizes differ between members, as tokens of experts do."""
        kept = step > self._newest - KEPT
        np.add.at(self._taken, (step[kept] % KEPT, rank[kept]), np.exp2((size[kept] - 1) / 8))
        self._exchanges[self._span[path]] = True

    def _advance(self, newest: int, oldest: int) -> None:
        if self._first < 0:
            self._first = oldest
            self._newest = oldest - 1
        if newest <= self._newest:
            return
        fresh = np.arange(max(self._newest + 1, newest - KEPT + 1), newest + 1) % KEPT
        self._compute_s[fresh], self._transfer_s[fresh], self._begun_s[fresh] = 0.0, 0.0, np.inf
        self._taken[fresh] = 0.0
        self._newest = newest

    def load(self, first: int, last: int) -> FloatArray:
        """Shape (steps, ranks) of steps first..last: bytes over the median rank's of the step where they are more; else
        1. Computing that grows no faster than these is the data's."""
        taken = self._taken[self._slots(first, last)]
        if not self._exchanges.any():
            return np.ones_like(taken)
        usual = [float(np.median(each[each > 0])) if each.any() else 1.0 for each in taken]
        return np.asarray(np.maximum(taken / np.array(usual)[:, None], 1.0))

    def compute_s(self, first: int, last: int) -> FloatArray:
        """Shape (steps, ranks) of steps first..last, as with the median rank's bytes."""
        return np.asarray(self._compute_s[self._slots(first, last)] / self.load(first, last))

    def transfer_s(self, first: int, last: int) -> FloatArray:
        """Shape (steps, spans) of steps first..last, likewise: who takes most keeps the others waiting."""
        made = np.array(self._transfer_s[self._slots(first, last)])
        made[:, self._exchanges] /= self.load(first, last).max(axis=1, keepdims=True)
        return made

    def length_s(self, first: int, last: int) -> float:
        """Median length of steps first..last."""
        begun = self._begun_s[self._slots(first, last + 1)]
        return float(np.median(np.diff(begun[np.isfinite(begun)]))) if len(begun) > 1 else 0.0

    def oldest(self) -> int:
        """Oldest step that is still kept."""
        return max(self._first, self._newest - KEPT + 1)

    @staticmethod
    def _slots(first: int, last: int) -> IntArray:
        return np.arange(first, last + 1) % KEPT
