"""Problem of a batch: pending pods by class, and free capacity by kind of idle node and group of active nodes.

Four planners of Tonnage solve four problems, and their figures cannot be compared:

- the packing engine (`placement/engine/packer.py`): where does *this* pod cost least, given what is expected to come?
  Online.
- the allocation bound (`placement/prices/allocation_bound.py`): how much GPU can a demand get at most? It makes the
  engine's prices.
- the mix (`placement/mix/planner.py`): how many instances of which GPU type serve a service? It makes pods.
- the batch (this package): which nodes must run so that *all pending pods* start, at least dollars an hour?

Sets       c: classes (pods of one shape), k: kinds (idle nodes that are alike), g: groups (nodes in use that may host
           the same classes), p: patterns (how many pods of each class one node of a kind runs), r: resources
Data       d_c: pending pods;  u_c: dollars an hour for leaving one out;  usd_k: dollars an hour of a node;
           N_k: nodes of the kind;  ask_cr, room_kr, room_gr: request and free amount of each resource
Variables  λ_p ≥ 0 whole: nodes of kind k(p) that run pattern p;  z_cg ≥ 0 whole: pods on nodes that are in use anyway;
           s_c ≥ 0: pods left out
Objective  min Σ_p usd_k(p) λ_p + Σ_c u_c s_c
Subject to Σ_p a_cp λ_p + Σ_g z_cg + s_c ≥ d_c      demand; its dual π_c is the price of a pod
           Σ_{p of k} λ_p ≤ N_k                      nodes of a kind
           Σ_c ask_cr z_cg ≤ room_gr                 capacity of a group, all its nodes together (a relaxation)

A node in use is paid for already, so its free capacity costs nothing. Gangs do not occur: that they start whole, and
near each other, only makes plans more expensive. The optimum of this program without them is therefore a lower bound on
every plan.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from cluster.capacity import Free
from cluster.nodes import NodeFilter
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.engine.packer import filters_of
from placement.packing.gangs import domain_sums, has_in_all

CORE_USD_PER_HOUR, GIB_USD_PER_HOUR = 0.03, 0.004
"""Price of a node by its CPU, per core, and memory: it costs this or its GPUs, whichever is more. Chosen: about what
clouds charge for a general server."""


@dataclass(frozen=True, slots=True)
class KindKey:
    """Key of a kind of idle nodes, independent of its number in one problem; memory between problems uses it."""

    gpu_type: str
    """Empty: no GPUs, or of unknown type."""
    gpus: int
    cpu_milli: int
    """Free CPU of one node."""
    memory_bytes: int
    """Free memory of one node."""
    usd_per_hour: float


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """All pending pods and all free capacity. Classes are in the order of `shapes`."""

    shapes: tuple[PodShape, ...]
    pods: IntArray
    """d_c, shape (classes,)."""
    left_out_usd: FloatArray
    """u_c, shape (classes,): more than the price of the nodes that may have to start for this pod."""
    ask: FloatArray
    """Shape (classes, resources): cores, GiB, GPUs and, where GPUs are shared, two counts that no way of sharing
    devices exceeds (`device_counts`)."""
    eligible: BoolArray
    """Nodes where a class may run, whatever is free. Shape (classes, nodes)."""
    node_usd: FloatArray
    """Price per hour of every node, also of those in use, in dollars. Shape (nodes,)."""
    kind: IntArray
    """Kind of each idle node that can host some class, else -1. Shape (nodes,)."""
    kinds: tuple[KindKey, ...]
    kind_nodes: IntArray
    """N_k, shape (kinds,)."""
    kind_usd: FloatArray
    """usd_k, shape (kinds,)."""
    kind_room: FloatArray
    """Shape (kinds, resources)."""
    kind_copies: IntArray
    """Maximum number of pods of one class on an empty node of a kind. Shape (classes, kinds)."""
    group: IntArray
    """Group of each node in use that can host some class, else -1. Shape (nodes,)."""
    group_room: FloatArray
    """Shape (groups, resources), all nodes of a group together."""
    group_copies: IntArray
    """Maximum number of pods of one class on all nodes of a group, with nothing else added. Shape (classes, groups)."""
    in_use: BoolArray
    """Nodes that are paid for whatever is planned. Shape (nodes,)."""
    largest_copies: IntArray
    """Maximum number of pods of a class on any single node now; 0: it starts nowhere. Shape (classes,)."""
    order: IntArray
    """Order of classes for the best fit: whole devices, many before few, then fractions, then CPU and memory.

    Large comes before small. Within one node this is best-fit decreasing onto devices, the order that decides whether a
    pattern is feasible. Shape (classes,).
    """

    def class_of(self, shapes: Sequence[PodShape]) -> IntArray:
        """Class of each of these shapes; -1 for none."""
        number = {shape: c for c, shape in enumerate(self.shapes)}
        return np.array([number.get(shape, -1) for shape in shapes], dtype=np.int64)


SYSTEM_PRIORITY = 2_000_000_000
"""Lowest priority of pods that belong to the node (network, monitoring): a node that runs nothing else is idle.
Source: Kubernetes documentation, system-cluster-critical and system-node-critical."""

GIB = 2.0**30

LEFT_OUT_FACTOR = 1.01
"""Price of leaving a pod out, in prices of the most expensive node, for each GPU that it requests (for one, when it
requests none)."""


def batch_of(snapshot: Snapshot, among: BoolArray | None = None) -> Batch:
    """Problem of a snapshot's pending pods, or of those that are `among`, shape (pods,)."""
    nodes, pods, free = snapshot.nodes, snapshot.pods, snapshot.free()
    waiting = pods.node == PENDING if among is None else (pods.node == PENDING) & among
    waits = np.bincount(pods.shape[waiting], minlength=len(pods.shapes))

    def request(row: int) -> tuple[object, ...]:
        shape = pods.shapes[row]
        amounts = (shape.gpus, shape.gpu_milli, shape.cpu_milli, shape.memory_bytes)
        return (
            *amounts,
            shape.gpu_types,
            repr(shape.node_terms),
            repr(shape.tolerations),
            shape.others,
            shape.refused_on,
        )

    count: dict[PodShape, int] = {}
    # Sorted by request, so that the order in which a table lists its shapes decides nothing.
    for row in sorted(np.flatnonzero(waits).tolist(), key=request):
        count[pods.shapes[row]] = count.get(pods.shapes[row], 0) + int(waits[row])
    shapes = tuple(count)
    allowed: dict[PodShape, BoolArray] = {}
    node_filter = NodeFilter(nodes, snapshot.gpu_type_names)
    for filters in map(filters_of, shapes):
        if filters not in allowed:
            allowed[filters] = node_filter.eligible(filters)
    eligible = np.array([allowed[filters_of(shape)] for shape in shapes], dtype=np.bool_)
    eligible = eligible.reshape(len(shapes), len(nodes))
    copies = eligible * np.array([free.copies(shape) for shape in shapes], dtype=np.int64).reshape(eligible.shape)
    usd = node_usd(snapshot)
    # An idle node runs only the node's own pods, on no GPU.
    idle, useful = np.ones(len(nodes), dtype=np.bool_), copies.any(axis=0)
    counts = (pods.node != PENDING) & ((pods.priority < SYSTEM_PRIORITY) | (pods.devices != 0))
    idle[pods.node[counts]] = False
    ask = _requests(shapes)
    room = free_room(free)[:, : ask.shape[1]]
    users = np.packbits(eligible, axis=0).T
    marks = [nodes.gpu_type, nodes.gpus, free.cpu_milli, free.memory_bytes, np.round(usd * 1e6).astype(np.int64)]
    kind = _alike(np.concatenate([np.stack(marks, axis=1), users], axis=1), idle & useful)
    rows = np.flatnonzero(idle & useful)
    first = rows[np.unique(kind[rows], return_index=True)[1]].astype(np.int64)
    names = (*snapshot.gpu_type_names, "")  # type -1: no GPUs, or of unknown type
    group = _alike(users, ~idle & useful)
    groups = int(group.max(initial=-1)) + 1
    members = [group == number for number in range(groups)]
    # Where the nodes that a pod may use are full, others must move to more expensive ones: up to one per GPU.
    dearest_usd = np.where(eligible.any(axis=0), usd, 0.0).max(initial=1.0)
    return Batch(
        shapes=shapes,
        pods=np.array(list(count.values()), dtype=np.int64),
        left_out_usd=LEFT_OUT_FACTOR * dearest_usd * np.array([max(1, s.gpus) for s in shapes], dtype=np.float64),
        ask=ask,
        eligible=eligible,
        node_usd=usd,
        kind=kind,
        kinds=tuple(
            KindKey(
                gpu_type=names[int(nodes.gpu_type[node])],
                gpus=int(nodes.gpus[node]),
                cpu_milli=int(free.cpu_milli[node]),
                memory_bytes=int(free.memory_bytes[node]),
                usd_per_hour=float(usd[node]),
            )
            for node in first.tolist()
        ),
        kind_nodes=np.bincount(kind[kind >= 0], minlength=len(first)).astype(np.int64),
        kind_usd=usd[first],
        kind_room=room[first],
        kind_copies=copies[:, first],
        group=group,
        group_room=np.array([room[m].sum(axis=0) for m in members]).reshape(groups, ask.shape[1]),
        group_copies=np.array([copies[:, m].sum(axis=1) for m in members], np.int64).reshape(groups, len(shapes)).T,
        in_use=~idle,
        largest_copies=copies.max(axis=1, initial=0),
        order=_order_of_dealing(shapes, ask, eligible, room[first]),
    )


def _order_of_dealing(
    shapes: Sequence[PodShape], ask: FloatArray, eligible: BoolArray, kind_room: FloatArray
) -> IntArray:
    size = (ask / np.maximum(kind_room.mean(axis=0), 1e-9)).max(axis=1) if len(kind_room) else ask[:, 0]

    def rank(c: int) -> tuple[object, ...]:
        shape = shapes[c]
        return not shape.is_whole_gpu, -shape.gpus, -shape.gpu_milli, int(eligible[c].sum()), -float(size[c]), c

    return np.array(sorted(range(len(shapes)), key=rank), dtype=np.int64)


def node_usd(snapshot: Snapshot) -> FloatArray:
    """Price per hour of each node in dollars: its GPUs, or its CPU and memory, whichever is more."""
    nodes = snapshot.nodes
    per_gpu = np.array([*(kind.price_per_hour for kind in snapshot.gpu_types), 0.0])[nodes.gpu_type]
    host = nodes.cpu_milli / 1000 * CORE_USD_PER_HOUR + nodes.memory_bytes / GIB * GIB_USD_PER_HOUR
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


def _alike(rows: Array, among: BoolArray) -> IntArray:
    """Number per row, equal where rows are, -1 where not among them. Numbered in sorted order, not in the table's."""
    number = np.full(len(rows), -1, dtype=np.int64)
    if among.any():
        number[among] = np.unique(rows[among], axis=0, return_inverse=True)[1].reshape(-1)
    return number


def complete_gangs(snapshot: Snapshot) -> BoolArray:
    """Pending pods, without gangs that have too few members to start anywhere. Shape (pods,)."""
    pods, gangs = snapshot.pods, snapshot.gangs
    members = np.bincount(pods.gang[pods.gang >= 0], minlength=len(gangs) + 1)
    few = np.array([members[g] < gang.min_members for g, gang in enumerate(gangs)] + [False], dtype=np.bool_)
    asked: BoolArray = (pods.node == PENDING) & ~few[pods.gang]  # gang -1, none, is the last entry
    return asked


def startable_pods(snapshot: Snapshot, batch: Batch, among: BoolArray) -> BoolArray:
    """The pods among these that some plan could start in the free resources. Shape (pods,).

    A pod that no plan places adds the same price to every plan. Counted, it would make every relative gap look small,
    and the search for cheaper nodes would stop before it began. Each rule here is a proof, never a failed attempt: a
    pod that is ruled out fits on no node beside what runs now, and a gang that is ruled out cannot start whole.

    batch: the problem of these pods.
    """
    pods = snapshot.pods
    possible = np.append(batch.largest_copies > 0, False)  # the last is the answer for shapes without a class, -1
    fits: BoolArray = among & possible[batch.class_of(pods.shapes)[pods.shape]]
    gangs = [gang for gang in np.unique(pods.gang[among]).tolist() if gang >= 0]
    if not gangs:
        return fits
    whole, places = fits.copy(), _Places(snapshot, batch)
    order = np.argsort(pods.gang, kind="stable")
    sorted_gangs = pods.gang[order]
    for gang in gangs:
        members = order[slice(*np.searchsorted(sorted_gangs, (gang, gang + 1)))]
        if not places.hold(gang, members, members[fits[members]]):
            whole[members] = False
    return whole


class _Places:
    """Free resources by domain of each topology label."""

    def __init__(self, snapshot: Snapshot, batch: Batch) -> None:
        self.snapshot, self.batch = snapshot, batch
        self._class_of = batch.class_of(snapshot.pods.shapes)
        self._free = snapshot.free()
        self._copies = cache(lambda c: self._free.copies(batch.shapes[c]) * batch.eligible[c])
        everywhere = np.zeros(len(snapshot.nodes), dtype=np.int64)
        self._domain = cache(lambda label: snapshot.nodes.domain(label) if label else everywhere)
        """Domain of each node under a label, -1 for none; without a label all nodes are one domain."""
        self._answers: dict[object, bool] = {}

    def hold(self, gang: int, members: IntArray, fitting: IntArray) -> bool:
        """Whether the gang's fitting members are enough, and some domain might hold as many as must start.

        members, fitting: rows of pods.
        """
        wanted, pods = self.snapshot.gangs[gang], self.snapshot.pods
        running = pods.node[members]
        running = running[running != PENDING]
        need = max(1, wanted.min_members - len(running))
        counts = Counter(self._class_of[pods.shape[fitting]].tolist())
        domain = self._domain(wanted.within)
        at = tuple(np.unique(domain[running]).tolist())
        question = (wanted.within, at, need, frozenset(counts.items()))
        if question not in self._answers:
            inside = np.where(np.isin(domain, at), domain, -1) if at and wanted.within else domain
            self._answers[question] = self._any_holds(inside, counts, need)
        return self._answers[question]

    def _any_holds(self, domain: IntArray, counts: Mapping[int, int], need: int) -> bool:
        """Whether a domain might hold `need` of these pods: by class, and by each resource of the smallest of them.

        counts: pods by class.
        """
        if not counts:
            return False
        shapes = [self.batch.shapes[c] for c, count in counts.items() for _ in range(count)]
        fit = [np.minimum(count, domain_sums(self._copies(c), domain)) for c, count in counts.items()]
        eligible = np.asarray(self.batch.eligible[list(counts)].any(axis=0), dtype=np.bool_)
        return bool(((np.sum(fit, axis=0) >= need) & has_in_all(self._free, eligible, domain, shapes, need)).any())
