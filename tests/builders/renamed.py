"""The same fleet with other names of its nodes."""

from dataclasses import replace

import numpy as np

from cluster.arrays import Names, column
from cluster.snapshot import PENDING, Snapshot


def with_renamed_nodes(snapshot: Snapshot, seed: int) -> Snapshot:
    """Deals the nodes' names out at random and sorts the table by name again."""
    nodes = snapshot.nodes
    dealt = np.random.default_rng(seed).permutation(len(nodes))
    names = [nodes.names[int(row)] for row in dealt]  # node `row` is now called names[row]
    order = sorted(range(len(nodes)), key=names.__getitem__)
    now_at = np.empty(len(nodes), dtype=np.int64)
    now_at[order] = np.arange(len(nodes))
    pods = snapshot.pods
    moved = np.where(pods.node == PENDING, PENDING, now_at[pods.node]) if len(nodes) else pods.node
    return replace(
        snapshot,
        nodes=replace(nodes.only(np.array(order, dtype=np.int64)), names=Names(names[row] for row in order)),
        pods=replace(pods, node=column(moved, np.int64)),
    )
