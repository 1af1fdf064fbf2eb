"""Pulse of a job: the last heartbeat of each rank, what it waits in, and how far each member of a path has come."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from health.records.layout import Layout
from tonnage.records import Kind

IN_FLIGHT = 4
"""Operations in flight that are followed per rank, the oldest."""
_RECENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Operations in flight at the last heartbeats; shape (waits,) each."""

    rank: IntArray
    path: IntArray
    seq: IntArray
    enter_s: FloatArray
    """Local clock."""
    age_s: FloatArray
    """Until now, if nothing changed since the heartbeat."""


class Pulse:
    """State of all heartbeats."""

    def __init__(self, layout: Layout) -> None:
        ranks = layout.ranks
        self._layout = layout
        self.seen_s = np.full(ranks, -np.inf)
        """Arrival of the last heartbeat, the analyser's clock."""
        self._began_s = np.inf
        """Arrival of the first records: a rank that was never heard is silent since then."""
        self.beat_s = np.full(ranks, -np.inf)
        """Instant of the last heartbeat, local clock."""
        self.phase = np.zeros(ranks, np.int64)
        self.idle_s = np.zeros(ranks)
        """Time since the last exit, at the heartbeat."""
        self.ended = np.zeros(ranks, np.bool_)
        self.entered = np.zeros(len(layout.members), np.int64)
        """Sequence number of the last operation that each member of each path entered."""
        self._advanced_s = np.full(len(layout.members), -np.inf)
        """Arrival of the record by which each `entered` was learnt."""
        self._path = np.full((ranks, IN_FLIGHT), -1, np.int64)
        self._seq = np.zeros((ranks, IN_FLIGHT), np.int64)
        self._enter_s = np.zeros((ranks, IN_FLIGHT))
        self._age_s = np.zeros((ranks, IN_FLIGHT))
        self._gaps_s: list[float] = []
        self._lately_s = np.zeros(len(layout.sizes))

    def learn_gaps(self, gap_s: FloatArray) -> None:
        """Remembers how long the longest gaps of a batch were."""
        if len(gap_s):
            self._gaps_s.append(float(np.quantile(gap_s, 0.99)))
            del self._gaps_s[:-_RECENT]

    @property
    def typical_gap_s(self) -> float:
        """99th percentile of computing times between operations, of late."""
        return float(np.median(self._gaps_s)) if self._gaps_s else 0.0

    def progressed(self, slot: IntArray, seq: IntArray, now_s: float) -> None:
        """slot: places in the layout's `members`; the operation was entered there."""
        self._advanced_s[slot[seq > self.entered[slot]]] = now_s
        np.maximum.at(self.entered, slot, seq)

    def complete_s(self, path: int) -> float:
        """Arrival of the word of the last member that entered the path's newest operation."""
        return float(self._advanced_s[self._layout.starts[path] : self._layout.starts[path + 1]].max())

    def learn_transfers(self, path: IntArray, transfer_s: FloatArray) -> None:
        """Remembers how long each path's transfers took of late."""
        self._lately_s[path] = np.maximum(transfer_s, 0.8 * self._lately_s[path])

    def lately_s(self, path: int) -> float:
        return float(self._lately_s[path])

    def beat(
        self,
        rows: Array,
        rank: IntArray,
        path: IntArray,
        index: IntArray,
        seq: IntArray,
        at_s: FloatArray,
        now_s: float,
    ) -> None:
        """rows: BEAT records, each followed by its IN_FLIGHT records; path, index, seq: of the latter."""
        self._began_s = min(self._began_s, now_s)
        is_beat = rows["kind"] == Kind.BEAT
        beats = np.flatnonzero(is_beat)
        if not len(beats):
            return
        last = np.full(self._layout.ranks, -1, np.int64)
        last[rank[beats]] = beats  # the newest of several in one batch wins: they are in order
        fresh = last[last >= 0]
        here = rank[fresh]
        self.seen_s[here], self.beat_s[here] = now_s, at_s[fresh]
        self.phase[here], self.idle_s[here] = rows["phase"][fresh], rows["for_ns"][fresh] * 1e-9
        self._path[here] = -1
        own_beat = np.maximum(np.cumsum(is_beat) - 1, 0)
        place = np.arange(len(rows)) - beats[own_beat] - 1
        kept = ~is_beat & (place >= 0) & (place < IN_FLIGHT) & (path >= 0)
        kept &= last[rank] == beats[own_beat]
        where, column = rank[kept], place[kept]
        self._path[where, column], self._seq[where, column] = path[kept], seq[kept]
        self._enter_s[where, column], self._age_s[where, column] = at_s[kept], rows["for_ns"][kept] * 1e-9
        self.progressed(self._layout.starts[path[kept]] + index[kept], seq[kept], now_s)

    def silent_s(self, now_s: float) -> FloatArray:
        """Time since each rank's last heartbeat arrived, or since the first records did."""
        return np.asarray(now_s - np.maximum(self.seen_s, self._began_s))

    def waiting(self, now_s: float) -> Waiting:
        rank, column = np.nonzero(self._path >= 0)
        age_s = self._age_s[rank, column] + np.minimum(now_s - self.seen_s[rank], 60.0)
        return Waiting(rank, self._path[rank, column], self._seq[rank, column], self._enter_s[rank, column], age_s)

    def in_operation(self) -> BoolArray:
        """Whether each rank was in an operation at its last heartbeat."""
        return np.asarray((self._path >= 0).any(axis=1))
