"""Nodes as columns, and the nodes that a pod's shape may run on at all."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray, Names
from cluster.workloads import PodShape, Requirement, Toleration

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Taint:
    """Taint that keeps pods away unless they tolerate it, with the meaning of core/v1 Taint."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """Nodes of a snapshot; every column has one entry per node, in the order of `names`."""

    names: Names
    cpu_milli: IntArray
    """Allocatable CPU, thousandths of a core."""
    memory_bytes: IntArray
    gpus: IntArray
    """Number of devices, 0 for a CPU node."""
    gpu_type: IntArray
    """Index into the snapshot's `gpu_types`; -1 where the node has no GPU or one of unknown type."""
    schedulable: BoolArray
    """False for a cordoned or NotReady node: its pods stay, and no new pod starts there."""
    labels: tuple[Labels, ...]
    taints: tuple[tuple[Taint, ...], ...]

    def __len__(self) -> int:
        return len(self.names)

    def domain(self, label: str) -> IntArray:
        """Topology domain of each node under a label: equal numbers share a value; -1 where the label is not set."""
        numbers: dict[str, int] = {}
        return np.array(
            [-1 if label not in ls else numbers.setdefault(ls[label], len(numbers)) for ls in self.labels],
            dtype=np.int64,
        )


def eligible_nodes(shape: PodShape, nodes: NodeTable, gpu_type_names: tuple[str, ...]) -> BoolArray:
    """Nodes that a pod of this shape may run on, whatever is free there: type, labels, taints, cordon.

    Returns shape (nodes,). Does not check capacity.
    """
    allowed = nodes.schedulable.copy()
    if shape.gpus and shape.gpu_types:
        wanted = [n for n, name in enumerate(gpu_type_names) if name in shape.gpu_types]
        allowed &= np.isin(nodes.gpu_type, wanted)
    if shape.gpus:
        allowed &= nodes.gpus >= shape.gpus
    for row in np.flatnonzero(allowed) if shape.node_terms or any(nodes.taints) else ():
        allowed[row] = meets_terms(nodes.labels[row], shape) and tolerates_all(nodes.taints[row], shape.tolerations)
    return allowed


def meets_terms(labels: Labels, shape: PodShape) -> bool:
    """Whether a node's labels satisfy one of the shape's alternatives (or there are none)."""
    return not shape.node_terms or any(all(meets(labels, r) for r in term) for term in shape.node_terms)


def meets(labels: Labels, requirement: Requirement) -> bool:
    """Whether labels meet a requirement, with core/v1 semantics.

    NotIn and DoesNotExist hold where the label is missing; Gt and Lt compare integers.
    """
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            have, bound = _integer(value), _bound(requirement)
            return have is not None and bound is not None and have > bound
        case "Lt":
            have, bound = _integer(value), _bound(requirement)
            return have is not None and bound is not None and have < bound


def _bound(requirement: Requirement) -> int | None:
    """Integer bound of Gt or Lt. The API server accepts any text; no label exceeds a bound that is not an integer.

    kube-scheduler behaves the same.
    """
    return _integer(requirement.values[0]) if requirement.values else None


def _integer(value: str | None) -> int | None:
    """Integer as the API server reads 64 bits: no spaces, no thousands of digits."""
    return int(value) if value is not None and _INTEGER.fullmatch(value) else None


_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def tolerates_all(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    """Whether every taint that keeps new pods away is tolerated. PreferNoSchedule keeps no pod away."""
    return all(
        taint.effect == "PreferNoSchedule" or any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value
