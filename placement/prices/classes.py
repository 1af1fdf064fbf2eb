"""Classes of pods and kinds of nodes: few groups of similar ones, which is all that prices and bounds need."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, column
from cluster.nodes import NodeTable
from cluster.workloads import PodShape


@dataclass(frozen=True, slots=True, order=True)
class PodClass:
    """Properties of a shape that matter for the worth of free resources: memory, labels and taints are left out."""

    cpu_milli: int
    gpus: int
    gpu_milli: int
    gpu_types: tuple[str, ...] = ()

    @property
    def gpu_demand(self) -> float:
        """GPUs that a pod of the class requests in total, fractions included."""
        return self.gpus * self.gpu_milli / 1000


def class_of(shape: PodShape) -> PodClass:
    """Class of a shape. GPU types mean nothing for a pod without GPUs, so they are dropped there."""
    return PodClass(shape.cpu_milli, shape.gpus, shape.gpu_milli, shape.gpu_types if shape.gpus else ())


@dataclass(frozen=True, slots=True, eq=False)
class ClassShares:
    """Expected classes, each with its fraction of the pods."""

    classes: tuple[PodClass, ...]
    share: FloatArray
    """Shape (classes,), adds up to 1 (or is empty)."""
    pods: float = math.inf
    """Number of observed pods that support the fractions; infinite where these are known."""

    @property
    def gpu_demand(self) -> FloatArray:
        """GPUs that one pod of each class requests, shape (classes,)."""
        return np.array([c.gpu_demand for c in self.classes], dtype=np.float64)

    @property
    def mean_gpu_demand(self) -> float:
        """GPUs that the average pod requests; 0 when there are no classes."""
        return float(self.share @ self.gpu_demand)


def shares_from(weights: Iterable[tuple[PodClass, float]], pods: float = math.inf) -> ClassShares:
    """Fractions in proportion to weights (counts, for example). A class that occurs twice is added up.

    pods: number of observations behind the weights; infinite where the fractions are known.
    """
    total: dict[PodClass, float] = {}
    for pod_class, weight in weights:
        total[pod_class] = total.get(pod_class, 0.0) + weight
    # Sorted, so that equal mixes give bit-equal prices whatever the order in which they were counted.
    classes = tuple(sorted(c for c, weight in total.items() if weight > 0))
    share = np.array([total[c] for c in classes], dtype=np.float64)
    return ClassShares(classes, column(share / max(share.sum(), 1e-300), np.float64), pods)


def shares_of(shapes: Iterable[PodShape]) -> ClassShares:
    """Fractions of a known population, for example of a whole trace."""
    return shares_from((class_of(shape), 1.0) for shape in shapes)


@dataclass(frozen=True, slots=True, eq=False)
class FleetKinds:
    """Groups of similar nodes with GPUs. Each column has one entry per kind."""

    gpu_type_names: tuple[str, ...]
    gpu_type: IntArray
    """Index into `gpu_type_names`."""
    gpus: IntArray
    """Devices of one node."""
    cpu_milli: IntArray
    """CPU of one node (of the largest one where `merged` joined several), for the widest table that is needed."""
    nodes: IntArray
    """Number of nodes of the kind."""
    total_cpu_milli: IntArray
    """CPU of all nodes of the kind together."""

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def total_gpus(self) -> IntArray:
        """Devices of each kind, all its nodes together."""
        return self.nodes * self.gpus

    @property
    def capacity_gpus(self) -> int:
        """Devices of the whole fleet."""
        return int(self.total_gpus.sum())

    @property
    def widest_cpu_milli(self) -> int:
        """CPU of the largest node with GPUs; 1 in a fleet without any."""
        return int(self.cpu_milli.max(initial=1))

    @property
    def widest_gpus(self) -> int:
        """Devices of the widest node; 1 in a fleet without any."""
        return int(self.gpus.max(initial=1))


MOST_KINDS = 48
"""Number of kinds above which kinds are merged: the linear programs stay under a second, and a merged bound is still a
bound."""


def kinds_of(nodes: NodeTable, gpu_type_names: tuple[str, ...]) -> FleetKinds:
    """Kinds of a fleet. Nodes without GPUs are left out: no GPU is allocated there.

    Nodes that differ only in CPU are merged when there are more than MOST_KINDS kinds.
    """
    rows = np.flatnonzero((nodes.gpus > 0) & (nodes.gpu_type >= 0))
    key = np.stack([nodes.gpu_type[rows], nodes.gpus[rows], nodes.cpu_milli[rows]], axis=1)
    if len(np.unique(key, axis=0)) > MOST_KINDS:
        key = key[:, :2]
    unique, kind = np.unique(key, axis=0, return_inverse=True)
    kind, count = kind.reshape(-1), len(unique)
    richest = np.zeros(count, dtype=np.int64)
    np.maximum.at(richest, kind, nodes.cpu_milli[rows])
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, kind, nodes.cpu_milli[rows])
    return FleetKinds(
        gpu_type_names=gpu_type_names,
        gpu_type=unique[:, 0].astype(np.int64),
        gpus=unique[:, 1].astype(np.int64),
        cpu_milli=richest,
        nodes=np.bincount(kind, minlength=count).astype(np.int64),
        total_cpu_milli=total,
    )


def changed_share(before: FleetKinds, now: FleetKinds) -> float:
    """GPUs of nodes that came, went or changed, as a fraction of all GPUs now."""
    was, is_now = _gpus_by_kind(before), _gpus_by_kind(now)
    changed = sum(abs(was.get(kind, 0) - is_now.get(kind, 0)) for kind in was.keys() | is_now.keys())
    return changed / max(now.capacity_gpus, 1)


def _gpus_by_kind(kinds: FleetKinds) -> dict[tuple[int, int, int], int]:
    """GPUs of all nodes with a GPU type, a number of GPUs and an amount of CPU."""
    keys = zip(kinds.gpu_type.tolist(), kinds.gpus.tolist(), kinds.cpu_milli.tolist(), strict=True)
    return dict(zip(keys, kinds.total_gpus.tolist(), strict=True))


def allowed_types(classes: Sequence[PodClass], gpu_type_names: Sequence[str]) -> BoolArray:
    """Whether a class may use a GPU type. Shape (classes, GPU types)."""
    return np.array(
        [[not c.gpu_types or name in c.gpu_types for name in gpu_type_names] for c in classes], dtype=np.bool_
    ).reshape(len(classes), len(gpu_type_names))


def hosting_kinds(classes: Sequence[PodClass], kinds: FleetKinds) -> BoolArray:
    """Whether an empty node of a kind can host a pod of a class. Shape (classes, kinds)."""
    allowed = allowed_types(classes, kinds.gpu_type_names)[:, kinds.gpu_type]
    gpus = np.array([c.gpus for c in classes], dtype=np.int64)
    cpu = np.array([c.cpu_milli for c in classes], dtype=np.int64)
    fits: BoolArray = allowed & (gpus[:, None] <= kinds.gpus) & (cpu[:, None] <= kinds.cpu_milli)
    return fits
