"""Patterns of pods on nodes, and their memory between problems: columns, and ceilings with their prices."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import PodShape
from placement.batch.problem import Batch, KindKey

Counts = tuple[tuple[PodShape, int], ...]
"""Pods per shape on one node, without zeros."""

COLUMNS_PER_KIND = 40
"""Columns kept per kind, the likeliest to be useful again. 24 classes on 9 kinds have 25 in an optimum."""

MOST_PROOFS = 3
"""Number of price sets whose ceilings are kept; the best of them counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Patterns of one problem."""

    pattern: IntArray
    """Shape (columns, classes)."""
    kind: IntArray
    """Shape (columns,)."""

    def plus(self, pattern: IntArray, kind: IntArray) -> "Columns":
        """These patterns added, without duplicates."""
        return distinct(np.concatenate([self.pattern, pattern]), np.concatenate([self.kind, kind]))

    def __len__(self) -> int:
        return len(self.kind)


def distinct(pattern: IntArray, kind: IntArray) -> Columns:
    """Each pattern of a kind once, in order of first occurrence; empty ones not at all."""
    rows = np.concatenate([kind[:, None], pattern], axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    first = np.sort(first)
    first = first[pattern[first].any(axis=1)]
    return Columns(pattern[first], kind[first])


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """Ceilings under one set of prices, with the shapes and kinds they are about."""

    shapes: tuple[PodShape, ...]
    kinds: tuple[KindKey, ...]
    pod_usd: FloatArray
    """Shape (shapes,)."""
    ceiling: FloatArray
    """Shape (kinds,)."""
    most: IntArray
    """Maximum pods of a shape in a pattern when the ceiling was proven. Shape (shapes, kinds)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a planner between problems, as plain data.

    The same problem with the same memory has the same result, in any process. Losing it costs only time.
    """

    columns: Mapping[KindKey, tuple[Counts, ...]] = field(default_factory=dict)
    proofs: tuple[Proof, ...] = ()


def recalled(memory: Memory, batch: Batch) -> Columns:
    """Columns of a memory that apply here: with existing shapes and kinds, and fitting."""
    number = {shape: c for c, shape in enumerate(batch.shapes)}
    pattern, kind = [], []
    for k, key in enumerate(batch.kinds):
        for counts in memory.columns.get(key, ()):
            row = [0] * len(number)
            for shape, count in counts:
                if shape in number:
                    row[number[shape]] = count
            pattern.append(row)
            kind.append(k)
    patterns = np.array(pattern, dtype=np.int64).reshape(len(kind), len(number))
    kinds = np.array(kind, dtype=np.int64)
    fits = (patterns <= batch.kind_copies.T[kinds]).all(axis=1)
    return distinct(patterns[fits], kinds[fits])


def remembered(batch: Batch, columns: Columns, proofs: tuple[Proof, ...], pod_usd: FloatArray) -> Memory:
    """Memory of the most valuable columns of each kind under these prices, shape (classes,), and of proofs."""
    kept: dict[KindKey, list[Counts]] = {}
    worth = columns.pattern @ pod_usd
    for k, key in enumerate(batch.kinds):
        mine = np.flatnonzero(columns.kind == k)
        for row in mine[np.argsort(-worth[mine], kind="stable")][:COLUMNS_PER_KIND].tolist():
            pattern = columns.pattern[row].tolist()
            counts = tuple((shape, count) for shape, count in zip(batch.shapes, pattern, strict=True) if count)
            kept.setdefault(key, []).append(counts)
    return Memory({key: tuple(patterns) for key, patterns in kept.items()}, proofs[:MOST_PROOFS])


def aligned_proof(proof: Proof, batch: Batch) -> tuple[FloatArray, FloatArray]:
    """Prices and ceilings of a proof in the order of this problem; infinite where it has none for a kind.

    Shapes that it does not know are worth nothing under its prices, so they raise no ceiling. A kind that may now run
    more pods of a shape than a pattern had when the ceiling was proven has none.
    """
    shape_row = {shape: row for row, shape in enumerate(proof.shapes)}
    kind_row = {key: row for row, key in enumerate(proof.kinds)}
    twice = len(kind_row) < len(proof.kinds) or len(set(batch.kinds)) < len(batch.kinds)
    c = np.array([shape_row.get(shape, -1) for shape in batch.shapes], dtype=np.int64)
    k = np.array([-1 if twice else kind_row.get(key, -1) for key in batch.kinds], dtype=np.int64)
    pod_usd = np.append(proof.pod_usd, 0.0)[c]
    ceiling = np.append(proof.ceiling, np.inf)[k]
    most = np.pad(proof.most, ((0, 1), (0, 1)))[c][:, k]
    more = (pod_usd > 0)[:, None] & (np.minimum(batch.kind_copies, batch.pods[:, None]) > most)
    return pod_usd, np.where(more.any(axis=0), np.inf, ceiling)
