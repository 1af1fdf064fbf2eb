"""Sums per training step: computing time of each rank, transfer time of each span."""

import numpy as np

from cluster.arrays import FloatArray, IntArray
from health.analysis.matching import Matched

KEPT = 128
"""Steps that are kept: the longest window and the steps of its baseline."""


class StepSums:
    """Ring of the last steps' sums."""

    def __init__(self, ranks: int, span: IntArray) -> None:
        """span: shape (paths,), number of each path's span."""
        self._compute_s = np.zeros((KEPT, ranks))
        self._span = span
        self._transfer_s = np.zeros((KEPT, int(span.max(initial=-1)) + 1))
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

    def _advance(self, newest: int, oldest: int) -> None:
        if self._first < 0:
            self._first = oldest
            self._newest = oldest - 1
        if newest <= self._newest:
            return
        fresh = np.arange(max(self._newest + 1, newest - KEPT + 1), newest + 1) % KEPT
        self._compute_s[fresh], self._transfer_s[fresh], self._begun_s[fresh] = 0.0, 0.0, np.inf
        self._newest = newest

    def compute_s(self, first: int, last: int) -> FloatArray:
        """Shape (steps, ranks) of steps first..last."""
        return np.asarray(self._compute_s[self._slots(first, last)])

    def transfer_s(self, first: int, last: int) -> FloatArray:
        """Shape (steps, spans) of steps first..last."""
        return np.asarray(self._transfer_s[self._slots(first, last)])

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
