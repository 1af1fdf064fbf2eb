"""Regression trees as plain arrays: what a booster learned, evaluated with numpy alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Ensemble of binary trees; its value is the sum of one leaf per tree.

    All nodes of all trees lie in one array. A leaf points to itself, so that after `depth` steps every row stands at
    its leaf.
    """

    roots: NDArray[np.int32]
    """Shape (trees,), node at which each tree starts."""
    feature: NDArray[np.int16]
    """Shape (nodes,), column that a node compares; 0 at leaves."""
    threshold: NDArray[np.float32]
    """Shape (nodes,): a row goes left where its value is at most this."""
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    """Shape (nodes,), what a leaf adds; 0 elsewhere."""
    depth: int

    def sums(self, rows: FloatArray) -> FloatArray:
        """Value of each row, shape (rows,). rows: shape (rows, columns), without NaN."""
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        place = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            goes_left = rows[place, self.feature[at]] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        return np.asarray(self.value[at].sum(-1, dtype=np.float64))

    @property
    def size_bytes(self) -> int:
        arrays = (self.roots, self.feature, self.threshold, self.left, self.right, self.value)
        return sum(array.nbytes for array in arrays)
