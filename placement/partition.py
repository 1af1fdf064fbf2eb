"""Partition of a cluster into shards that never compete for a node, so that they can be packed in parallel.

Two nodes belong together when some pod may run on both, and so do the nodes of a gang's members. Placements, evictions
and moves in one shard leave the others unchanged, so packing the shards apart loses nothing. Where every pod may run
anywhere there is one shard. Nodes that draw through one power limit compete for its headroom, so they belong together
too.
"""

from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, IntArray, Names
from cluster.nodes import NodeTable, eligible_nodes
from cluster.pods import PENDING, PodTable
from cluster.power_floors import PowerFloors
from cluster.snapshot import Snapshot


def shares_of(snapshot: Snapshot, at_most: int) -> tuple[Snapshot, ...]:
    """Splits the cluster into at most `at_most` shards of about equal work; keeps the order of the tables.

    Each node and pod is in one shard. A pod that no node may take goes with the first.
    """
    if at_most <= 1 or len(snapshot.nodes) < 2 or not len(snapshot.pods):
        return (snapshot,)
    node_part, pod_part = _parts(snapshot)
    if not node_part.any():
        return (snapshot,)
    share = _gathered(node_part, pod_part, at_most)
    of_node = share[node_part]
    of_pod = np.where(pod_part < 0, 0, share[pod_part])
    return tuple(_only(snapshot, of_node == n, of_pod == n) for n in range(int(share.max()) + 1))


def _parts(snapshot: Snapshot) -> tuple[IntArray, IntArray]:
    """Number of the indivisible part of each node and each pod; -1 for pods that no node may take."""
    nodes, pods = snapshot.nodes, snapshot.pods
    kinds, of_node = _kinds(nodes, pods)
    limits = PowerFloors.of(snapshot)
    part = np.arange(len(kinds))
    home = np.full(len(pods), -1, dtype=np.int64)  # a kind on which the pod runs or may run

    def join(members: IntArray) -> None:
        together = np.unique(part[members])
        part[np.isin(part, together)] = together[0]

    for number, shape in enumerate(pods.shapes):
        mine = np.flatnonzero(pods.shape == number)
        if not len(mine):
            continue
        may = np.flatnonzero(eligible_nodes(shape, kinds, snapshot.gpu_type_names))
        runs = np.unique(of_node[pods.node[mine][pods.node[mine] != PENDING]])
        reached = np.union1d(may, runs)
        if len(reached):
            join(reached)
            home[mine] = reached[0]
    for gang in np.unique(pods.gang[pods.gang >= 0]):
        reached = home[(pods.gang == gang) & (home >= 0)]
        if len(reached):
            join(np.unique(reached))
    if limits is not None:
        for under in limits.nodes_under().values():
            join(np.unique(of_node[under]))
    _, dense = np.unique(part, return_inverse=True)
    return dense[of_node], np.where(home < 0, -1, dense[home])


def _kinds(nodes: NodeTable, pods: PodTable) -> tuple[NodeTable, IntArray]:
    """One node of each kind that pods can distinguish, and the kind of each node. Capacity does not matter here."""
    label_keys = sorted({r.key for shape in pods.shapes for term in shape.node_terms for r in term})
    numbers: dict[object, int] = {}
    of_node = np.empty(len(nodes), dtype=np.int64)
    first: list[int] = []
    for row in range(len(nodes)):
        labels = nodes.labels[row]
        kind = (
            int(nodes.gpu_type[row]),
            int(nodes.gpus[row]),
            bool(nodes.schedulable[row]),
            nodes.taints[row],
            tuple(labels.get(key) for key in label_keys),
        )
        number = numbers.setdefault(kind, len(numbers))
        if number == len(first):
            first.append(row)
        of_node[row] = number
    return _nodes(nodes, np.array(first, dtype=np.int64)), of_node


def _gathered(node_part: IntArray, pod_part: IntArray, at_most: int) -> IntArray:
    """Shard of each part: the largest part first, each to the shard with least work."""
    count = int(node_part.max()) + 1
    work = np.bincount(node_part, minlength=count) + np.bincount(pod_part[pod_part >= 0], minlength=count)
    has = np.zeros(min(at_most, count))
    share = np.empty(count, dtype=np.int64)
    for part in sorted(range(count), key=lambda n: (-work[n], n)):
        share[part] = int(np.argmin(has))
        has[share[part]] += work[part]
    return share


def _only(snapshot: Snapshot, with_node: BoolArray, with_pod: BoolArray) -> Snapshot:
    """Snapshot of these nodes and pods alone, with indices changed to the new rows."""
    rows, kept = np.flatnonzero(with_node), np.flatnonzero(with_pod)
    pods = snapshot.pods
    new_row = np.full(len(snapshot.nodes) + 1, PENDING, dtype=np.int64)  # the last entry is the result for PENDING
    new_row[rows] = np.arange(len(rows))
    gangs = sorted({int(gang) for gang in pods.gang[kept]} - {-1})
    new_gang = np.full(len(snapshot.gangs) + 1, -1, dtype=np.int64)
    new_gang[gangs] = np.arange(len(gangs))
    table = PodTable(
        names=Names(pods.names[int(row)] for row in kept),
        shape=pods.shape[kept],
        shapes=pods.shapes,
        node=new_row[pods.node[kept]],
        devices=pods.devices[kept],
        priority=pods.priority[kept],
        gang=new_gang[pods.gang[kept]],
        owner=tuple(pods.owner[int(row)] for row in kept),
        movable=pods.movable[kept],
    )
    return replace(
        snapshot,
        nodes=_nodes(snapshot.nodes, rows),
        pods=table,
        gangs=tuple(snapshot.gangs[gang] for gang in gangs),
    )


def _nodes(nodes: NodeTable, rows: IntArray) -> NodeTable:
    return NodeTable(
        names=Names(nodes.names[int(row)] for row in rows),
        cpu_milli=nodes.cpu_milli[rows],
        memory_bytes=nodes.memory_bytes[rows],
        gpus=nodes.gpus[rows],
        gpu_type=nodes.gpu_type[rows],
        schedulable=nodes.schedulable[rows],
        labels=tuple(nodes.labels[int(row)] for row in rows),
        taints=tuple(nodes.taints[int(row)] for row in rows),
    )
