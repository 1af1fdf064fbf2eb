"""Builder of a batch problem from a snapshot: classes, kinds and groups instead of pods and nodes."""

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from cluster.nodes import NodeFilter
from cluster.snapshot import PENDING, Free, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.batch.node_capacity import copies_in
from placement.batch.problem import Batch, HostPrice, KindKey
from placement.engine.packer import filters_of

SYSTEM_PRIORITY = 2_000_000_000
"""Lowest priority of pods that belong to the node (network, monitoring): a node that runs nothing else is idle.
Source: Kubernetes documentation, system-cluster-critical and system-node-critical."""

GIB = 2.0**30

LEFT_OUT_FACTOR = 1.01
"""Price of leaving a pod out, in prices of the most expensive node, for each GPU that it requests (for one, when it
requests none)."""


def batch_of(snapshot: Snapshot, price: HostPrice | None = None, among: BoolArray | None = None) -> Batch:
    """Problem of a snapshot's pending pods, or of those that are `among`, shape (pods,)."""
    pods = snapshot.pods
    waiting = pods.node == PENDING if among is None else (pods.node == PENDING) & among
    waits = np.bincount(pods.shape[waiting], minlength=len(pods.shapes))
    count: dict[PodShape, int] = {}
    # Sorted by request, so that the order in which a table lists its shapes decides nothing.
    for row in sorted(np.flatnonzero(waits).tolist(), key=lambda row: _request_key(pods.shapes[row])):
        count[pods.shapes[row]] = count.get(pods.shapes[row], 0) + int(waits[row])
    shapes = tuple(count)
    free = snapshot.free()
    eligible = _eligible(shapes, snapshot)
    copies = eligible * np.array([copies_in(shape, free) for shape in shapes], dtype=np.int64).reshape(eligible.shape)
    usd = node_usd(snapshot, price or HostPrice())
    idle, useful = _idle(snapshot), copies.any(axis=0)
    ask = _requests(shapes)
    room = free_room(free)[:, : ask.shape[1]]
    kind, first = _kinds(snapshot, free, usd, eligible, idle & useful)
    group = _alike(np.packbits(eligible, axis=0).T, ~idle & useful)
    groups = int(group.max(initial=-1)) + 1
    members = [group == number for number in range(groups)]
    return Batch(
        shapes=shapes,
        pods=np.array(list(count.values()), dtype=np.int64),
        left_out_usd=_left_out_usd(shapes, np.where(eligible.any(axis=0), usd, 0.0).max(initial=1.0)),
        ask=ask,
        eligible=eligible,
        node_usd=usd,
        kind=kind,
        kinds=tuple(_key(snapshot, free, usd, int(node)) for node in first),
        kind_nodes=np.bincount(kind[kind >= 0], minlength=len(first)).astype(np.int64),
        kind_usd=usd[first],
        kind_room=room[first],
        kind_copies=copies[:, first],
        group=group,
        group_room=np.array([room[m].sum(axis=0) for m in members]).reshape(groups, ask.shape[1]),
        group_copies=np.array([copies[:, m].sum(axis=1) for m in members], np.int64).reshape(groups, len(shapes)).T,
        in_use=~idle,
        largest_copies=copies.max(axis=1, initial=0),
    )


def node_usd(snapshot: Snapshot, price: HostPrice) -> FloatArray:
    """Price per hour of each node in dollars: its GPUs, or its CPU and memory, whichever is more."""
    nodes = snapshot.nodes
    per_gpu = np.array([*(kind.price_per_hour for kind in snapshot.gpu_types), 0.0])[nodes.gpu_type]
    host = nodes.cpu_milli / 1000 * price.core_usd_per_hour + nodes.memory_bytes / GIB * price.gib_usd_per_hour
    dollars: FloatArray = np.maximum(nodes.gpus * per_gpu, host)
    return dollars


def device_counts(gpus: IntArray, gpu_milli: IntArray) -> FloatArray:
    """Two measures of GPU pods of which no device holds more than 1, in any way of sharing. Shape (..., 2).

    A fraction of more than a half counts 1, of a half 1/2; one of more than 2/3 counts 1, of more than 1/3 1/2.
    Source: dual feasible functions u^(1) and u^(2), Fekete and Schepers, Mathematical Programming 91 (2001).
    """
    halves = np.where(2 * gpu_milli > WHOLE_GPU_MILLI, 1.0, np.where(2 * gpu_milli == WHOLE_GPU_MILLI, 0.5, 0.0))
    thirds = np.where(gpu_milli == WHOLE_GPU_MILLI, 1.0, 3 * gpu_milli // WHOLE_GPU_MILLI / 2)
    counts: FloatArray = gpus[..., None] * np.stack([halves, thirds], axis=-1)
    return counts


def _left_out_usd(shapes: tuple[PodShape, ...], dearest_usd: float) -> FloatArray:
    """Price of leaving out one pod of each shape.

    Where the nodes that a pod may use are full, others must move to more expensive ones: up to one per GPU.
    """
    return LEFT_OUT_FACTOR * dearest_usd * np.array([max(1, shape.gpus) for shape in shapes], dtype=np.float64)


def _request_key(shape: PodShape) -> tuple[object, ...]:
    return (
        *(shape.gpus, shape.gpu_milli, shape.cpu_milli, shape.memory_bytes, shape.gpu_types),
        *(repr(shape.node_terms), repr(shape.tolerations)),
    )


def _requests(shapes: tuple[PodShape, ...]) -> FloatArray:
    """Shape (classes, 5), or (classes, 3) where no GPU is shared: the device counts then equal the GPUs."""
    cpu, memory, gpus, milli = (
        np.array([(s.cpu_milli, s.memory_bytes, s.gpus, s.gpu_milli) for s in shapes], dtype=np.int64).reshape(-1, 4).T
    )
    plain = np.stack([cpu / 1000, memory / GIB, gpus * milli / WHOLE_GPU_MILLI], axis=1)
    if not ((gpus > 0) & (milli < WHOLE_GPU_MILLI)).any():
        return plain
    return np.concatenate([plain, device_counts(gpus, milli)], axis=1)


def free_room(free: Free) -> FloatArray:
    """Free amount of each resource, shape (nodes, 5). A device that is used in part still counts 1."""
    left = free.gpu_milli.clip(min=0)
    devices = (left > 0).sum(axis=1).astype(np.float64)
    cpu, memory = free.cpu_milli.clip(min=0) / 1000, free.memory_bytes.clip(min=0) / GIB
    return np.stack([cpu, memory, left.sum(axis=1) / WHOLE_GPU_MILLI, devices, devices], axis=1)


def _eligible(shapes: tuple[PodShape, ...], snapshot: Snapshot) -> BoolArray:
    known: dict[PodShape, BoolArray] = {}
    node_filter = NodeFilter(snapshot.nodes, snapshot.gpu_type_names)
    rows = []
    for shape in shapes:
        filters = filters_of(shape)
        if filters not in known:
            known[filters] = node_filter.eligible(filters)
        rows.append(known[filters])
    return np.array(rows, dtype=np.bool_).reshape(len(shapes), len(snapshot.nodes))


def _idle(snapshot: Snapshot) -> BoolArray:
    """Nodes that run only the node's own pods, on no GPU."""
    pods = snapshot.pods
    counts = (pods.node != PENDING) & ((pods.priority < SYSTEM_PRIORITY) | (pods.devices != 0))
    idle = np.ones(len(snapshot.nodes), dtype=np.bool_)
    idle[pods.node[counts]] = False
    return idle


def _kinds(
    snapshot: Snapshot, free: Free, usd: FloatArray, eligible: BoolArray, among: BoolArray
) -> tuple[IntArray, IntArray]:
    """Kind of each node (-1 where not among them) and the first node of each kind."""
    nodes = snapshot.nodes
    columns = [nodes.gpu_type, nodes.gpus, free.cpu_milli, free.memory_bytes, np.round(usd * 1e6).astype(np.int64)]
    kind = _alike(np.concatenate([np.stack(columns, axis=1), np.packbits(eligible, axis=0).T], axis=1), among)
    rows = np.flatnonzero(among)
    _, first = np.unique(kind[rows], return_index=True)
    return kind, rows[first].astype(np.int64)


def _alike(rows: Array, among: BoolArray) -> IntArray:
    """Number per row, equal where rows are, -1 where not among them. Numbered in sorted order, not in the table's."""
    number = np.full(len(rows), -1, dtype=np.int64)
    if among.any():
        number[among] = np.unique(rows[among], axis=0, return_inverse=True)[1].reshape(-1)
    return number


def _key(snapshot: Snapshot, free: Free, usd: FloatArray, node: int) -> KindKey:
    gpu_type = int(snapshot.nodes.gpu_type[node])
    return KindKey(
        gpu_type=snapshot.gpu_type_names[gpu_type] if gpu_type >= 0 else "",
        gpus=int(snapshot.nodes.gpus[node]),
        cpu_milli=int(free.cpu_milli[node]),
        memory_bytes=int(free.memory_bytes[node]),
        usd_per_hour=float(usd[node]),
    )
