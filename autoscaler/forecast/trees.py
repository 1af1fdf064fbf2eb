"""Regression trees as plain arrays: what a booster learned, evaluated with numpy alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.arrays import FloatArray

_BLOCK = 128
"""Rows that are evaluated together, so that what is looked up stays in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Equally large ensembles of binary trees; the value of each is the sum of one leaf per tree.

    All nodes lie in one array, 9 bytes each. A leaf points to itself, so that after `depth` steps every row stands at
    its leaf, whichever way it compares.
    """

    ensembles: int
    depth: int
    roots: NDArray[np.int32]
    """Shape (trees,), node at which each tree starts; the trees of an ensemble lie together."""
    feature: NDArray[np.uint8]
    """Shape (nodes,), column that a node compares."""
    threshold: NDArray[np.float32]
    """Shape (nodes,): a row goes left where its value is at most this. For a leaf: what it adds."""
    children: NDArray[np.int16]
    """Shape (2 × nodes,), left and right next node of each, counted from the root of the tree."""

    def values(self, rows: NDArray[np.float32]) -> FloatArray:
        """Value of each ensemble for each row, shape (rows, ensembles). rows: shape (rows, columns), without NaN."""
        blocks = [self._block(rows[first : first + _BLOCK]) for first in range(0, len(rows), _BLOCK)]
        return np.concatenate(blocks) if blocks else np.empty((0, self.ensembles))

    def _block(self, rows: NDArray[np.float32]) -> FloatArray:
        flat, trees = rows.ravel(), len(self.roots)
        start = np.repeat(np.arange(len(rows), dtype=np.int32) * rows.shape[1], trees)
        roots = np.tile(self.roots, len(rows))
        at = roots
        for _ in range(self.depth):
            goes_right = flat.take(start + self.feature.take(at)) > self.threshold.take(at)
            at = roots + self.children.take(2 * at + goes_right)
        leaves = self.threshold.take(at).reshape(len(rows), self.ensembles, -1)
        return np.asarray(leaves.sum(-1, dtype=np.float64))

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in (self.roots, self.feature, self.threshold, self.children))


def trees_from(ensembles: Sequence[Sequence[Mapping[str, Any]]]) -> Trees:
    """Trees of the `tree_structure` documents that LightGBM dumps, those of each ensemble in their order."""
    nodes: list[tuple[int, float, int, int]] = []
    roots: list[int] = []
    depth = 0
    for ensemble in ensembles:
        for document in ensemble:
            roots.append(len(nodes))
            depth = max(depth, _add(document, nodes, len(nodes)))
    feature, threshold, left, right = zip(*nodes, strict=True)
    return Trees(
        len(ensembles),
        depth,
        np.array(roots, dtype=np.int32),
        np.array(feature, dtype=np.uint8),
        np.array(threshold, dtype=np.float32),
        np.stack([left, right], -1).astype(np.int16).ravel(),
    )


def _add(document: Mapping[str, Any], nodes: list[tuple[int, float, int, int]], root: int) -> int:
    """Adds a node and what is below it; returns the height of its tree."""
    place = len(nodes)
    if "leaf_value" in document:
        nodes.append((0, float(document["leaf_value"]), place - root, place - root))
        return 0
    nodes.append((0, 0.0, 0, 0))
    left = len(nodes)
    heights = [_add(document["left_child"], nodes, root)]
    right = len(nodes)
    heights.append(_add(document["right_child"], nodes, root))
    nodes[place] = (int(document["split_feature"]), float(document["threshold"]), left - root, right - root)
    return 1 + max(heights)
