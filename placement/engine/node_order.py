"""Order in which equal nodes are taken, so that neither chance nor the names of nodes decide."""

import numpy as np

from cluster.arrays import IntArray
from cluster.nodes import NAMING_LABELS, NodeTable
from cluster.snapshot import Snapshot


def content_rank(snapshot: Snapshot, seed: int | None = None) -> IntArray:
    """Rank for each node that depends on its properties and its load, not on its name.

    Sorted by GPU type, GPUs, CPU, memory, labels, taints, then free resources, the fullest first. Nodes that are equal
    in all of this are interchangeable, so their order in the table makes no observable difference.

    seed: shuffles the ranks, the same way whatever the names; None leaves them sorted.
    Returns shape (nodes,), a permutation.
    """
    # 20,000 nodes without labels: 0.06 s.
    nodes, free = snapshot.nodes, snapshot.free()
    type_names = [kind.name for kind in snapshot.gpu_types]
    type_rank = np.array([*(sorted(type_names).index(name) for name in type_names), -1])[nodes.gpu_type]
    left = np.sort(free.gpu_milli, axis=1)
    least_important_first = (
        free.memory_bytes,
        free.cpu_milli,
        *left.T[::-1],
        _marks_rank(nodes),
        nodes.memory_bytes,
        nodes.cpu_milli,
        nodes.gpus,
        type_rank,
    )
    rank = np.empty(len(nodes), dtype=np.int64)
    positions = np.arange(len(nodes)) if seed is None else np.random.default_rng(seed).permutation(len(nodes))
    rank[np.lexsort(least_important_first)] = positions
    return rank


def _marks_rank(nodes: NodeTable) -> IntArray:
    """Number per node that orders nodes by labels and taints; equal where both are equal."""
    marks = [
        (
            tuple(sorted(item for item in labels.items() if item[0] not in NAMING_LABELS)),
            tuple(sorted((taint.key, taint.value, taint.effect) for taint in taints)),
        )
        for labels, taints in zip(nodes.labels, nodes.taints, strict=True)
    ]
    ranks = {mark: number for number, mark in enumerate(sorted(set(marks)))}
    return np.array([ranks[mark] for mark in marks], dtype=np.int64)
