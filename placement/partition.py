"""Partition of a cluster into shards that never compete for a node, so that they can be packed in parallel."""

from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.nodes import NodeFilter
from cluster.power_floors import PowerFloors
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import PodShape, is_pinned
from placement.engine.packer import filters_of


def shares_of(snapshot: Snapshot, at_most: int) -> tuple[Snapshot, ...]:
    """Splits the cluster into at most `at_most` shards of about equal work; keeps the order of the tables.

    Two nodes belong together when some pod may run on both, and so do the nodes of a gang's members, and nodes that
    draw through one power limit. Placements, evictions and moves in one shard leave the others unchanged, so packing
    them apart loses nothing. Each node and pod is in one shard. A pod that no node may take goes with the first.
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


def share_like(snapshot: Snapshot, share: Snapshot) -> Snapshot:
    """Nodes of the snapshot that the share has, with the pods on them and those of the share that wait."""
    with_node = share.nodes.names.rows(snapshot.nodes.names) >= 0
    waits_there = share.pods.names.rows(snapshot.pods.names) >= 0
    on_node = np.append(with_node, False)[snapshot.pods.node]
    return _only(snapshot, with_node, np.where(snapshot.pods.node == PENDING, waits_there, on_node))


def _parts(snapshot: Snapshot) -> tuple[IntArray, IntArray]:
    """Number of the indivisible part of each node and each pod; -1 for pods that no node may take."""
    pods = snapshot.pods
    if any(shape.beside.is_bound for shape in pods.shapes):  # rules between pods join whatever they reach
        return np.zeros(len(snapshot.nodes), dtype=np.int64), np.zeros(len(pods), dtype=np.int64)
    # Groups of pods that may use the same nodes, whatever is free. Pods pinned to where they run are in none.
    numbers: dict[PodShape, int] = {}
    of_shape = np.array(
        [
            -1 if is_pinned(shape.node_terms) else numbers.setdefault(filters_of(shape), len(numbers))
            for shape in pods.shapes
        ],
        dtype=np.int64,
    )
    of_pod, known = of_shape[pods.shape], tuple(numbers)
    free = np.flatnonzero(of_pod >= 0)
    groups = [free[rows] for rows in _rows_by_number(of_pod[free])]
    node_filter = NodeFilter(snapshot.nodes, snapshot.gpu_type_names)
    eligible = np.zeros((len(groups), len(snapshot.nodes)), dtype=np.bool_)
    for number, members in enumerate(groups):
        eligible[number] = node_filter.eligible(known[of_pod[members[0]]])
    # Kinds of nodes where the same groups may run, in order of appearance. A node that no group may use is a kind of
    # its own: pods on it can go nowhere else, and no pod comes.
    _, first, back = np.unique(np.packbits(eligible, axis=0).T, axis=0, return_index=True, return_inverse=True)
    alike = np.where(eligible.any(axis=0), first[back.reshape(-1)], np.arange(len(snapshot.nodes)))
    kinds, of_node = np.unique(alike, return_inverse=True)
    kind_of_pod = np.append(of_node, -1)[pods.node]  # the last entry is the result for PENDING
    joined = _Joined(len(kinds))
    home = kind_of_pod.copy()  # a kind on which the pod runs or may run
    for members, may in zip(groups, eligible, strict=True):
        reached = np.unique(np.append(of_node[may], kind_of_pod[members][kind_of_pod[members] >= 0]))
        if len(reached):
            joined.join(reached)
            home[members] = reached[0]
    in_gang = np.flatnonzero((pods.gang >= 0) & (home >= 0))
    for rows in _rows_by_number(pods.gang[in_gang]):
        joined.join(np.unique(home[in_gang[rows]]))
    if (limits := PowerFloors.of(snapshot)) is not None:
        for under in limits.nodes_under().values():
            joined.join(np.unique(of_node[under]))
    part = joined.parts()
    return part[of_node], np.where(home < 0, -1, part[home])


def _rows_by_number(numbers: IntArray) -> list[IntArray]:
    """Positions of each number, in ascending order of the numbers."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []


class _Joined:
    """Kinds that were joined into parts."""

    def __init__(self, kinds: int) -> None:
        self._part = np.arange(kinds)

    def join(self, kinds: IntArray) -> None:
        """Joins the parts of these kinds, which are distinct."""
        if len(kinds) < 2:
            return
        together = np.unique(self._part[kinds])
        if len(together) > 1:
            self._part[np.isin(self._part, together)] = together[0]

    def parts(self) -> IntArray:
        """Number of the part of each kind, from 0 up."""
        return np.unique(self._part, return_inverse=True)[1]


def _gathered(node_part: IntArray, pod_part: IntArray, at_most: int) -> IntArray:
    """Shard of each part, assigned from the largest part on, each to the shard with least work.

    Shards are numbered in the order of their first nodes, so that one keeps its number when pods come and go: what is
    learned of a shard is kept under its number.
    """
    count = int(node_part.max()) + 1
    work = np.bincount(node_part, minlength=count) + np.bincount(pod_part[pod_part >= 0], minlength=count)
    has = np.zeros(min(at_most, count))
    share = np.empty(count, dtype=np.int64)
    for part in sorted(range(count), key=lambda n: (-work[n], n)):
        share[part] = int(np.argmin(has))
        has[share[part]] += work[part]
    _, first, number = np.unique(share[node_part], return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    named = np.full(int(share.max()) + 1, 0, dtype=np.int64)
    named[share[node_part]] = rank[number.reshape(-1)]
    return named[share]


def _only(snapshot: Snapshot, with_node: BoolArray, with_pod: BoolArray) -> Snapshot:
    """Snapshot of these nodes and pods alone, with indices changed to the new rows."""
    rows, kept = np.flatnonzero(with_node), np.flatnonzero(with_pod)
    nodes, pods = snapshot.nodes, snapshot.pods
    new_row = np.full(len(nodes) + 1, PENDING, dtype=np.int64)  # the last entry is the result for PENDING
    new_row[rows] = np.arange(len(rows))
    gangs = sorted({int(gang) for gang in pods.gang[kept]} - {-1})
    new_gang = np.full(len(snapshot.gangs) + 1, -1, dtype=np.int64)
    new_gang[gangs] = np.arange(len(gangs))
    return replace(
        snapshot,
        nodes=nodes.only(rows),
        pods=replace(pods.only(kept), node=new_row[pods.node[kept]], gang=new_gang[pods.gang[kept]]),
        gangs=tuple(snapshot.gangs[gang] for gang in gangs),
    )
