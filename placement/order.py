"""In which order equal nodes are taken, so that neither chance nor the naming of nodes decides."""

import numpy as np

from cluster.arrays import IntArray
from cluster.snapshot import Snapshot

_NAMING_LABELS = frozenset({"kubernetes.io/hostname"})
"""Labels that only repeat a node's name."""


def content_rank(snapshot: Snapshot, seed: int | None = None) -> IntArray:
    """A rank for each node that follows from what the node is and what runs there, not from its name.

    Sorted by GPU type, GPUs, CPU, memory, labels, taints, then what is free, the fullest first. Nodes that are alike in
    all of this are interchangeable, so their table order decides nothing that anybody could notice.
    seed: shuffles the ranks, the same way whatever the names; None leaves them sorted.
    Returns shape (nodes,), a permutation.
    """
    nodes, free = snapshot.nodes, snapshot.free()
    in_use = np.sort(free.gpu_milli, axis=1)

    def content(row: int) -> tuple[object, ...]:
        gpu_type = int(nodes.gpu_type[row])
        return (
            snapshot.gpu_types[gpu_type].name if gpu_type >= 0 else "",
            *(int(column[row]) for column in (nodes.gpus, nodes.cpu_milli, nodes.memory_bytes)),
            sorted(item for item in nodes.labels[row].items() if item[0] not in _NAMING_LABELS),
            sorted((taint.key, taint.value, taint.effect) for taint in nodes.taints[row]),
            in_use[row].tolist(),
            int(free.cpu_milli[row]),
            int(free.memory_bytes[row]),
        )

    ranked = sorted(range(len(nodes)), key=content)
    positions = np.arange(len(nodes)) if seed is None else np.random.default_rng(seed).permutation(len(nodes))
    rank = np.empty(len(nodes), dtype=np.int64)
    rank[ranked] = positions
    return rank
