"""The fleet from its manifests: GPU types, and nodes as columns with the type that their labels tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from cluster.arrays import Names, column
from cluster.hardware import MAX_GPUS_PER_NODE, GpuType
from cluster.nodes import NodeTable, Taint
from controller.api import quantity
from controller.api.gpu_type import GPUType
from controller.api.node import Node
from controller.findings import Findings
from controller.manifests import Read

GPU_RESOURCES = ("amd.com/gpu", "nvidia.com/gpu")

NODE_NAME_FIELD = "metadata.name"
"""Stands among the labels of nodes where a pod's affinity matches this field: core/v1 allows it for this one.

Only then, because names otherwise decide nothing."""


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """GPU types, and how nodes and pods speak of them."""

    types: tuple[GpuType, ...]
    resource: tuple[str, ...]
    """Per type: the resource that offers it."""
    by_label: Mapping[tuple[str, str], int]
    """(label key, value) → type."""

    def named(self, name: str) -> int | None:
        return next((n for n, known in enumerate(self.types) if known.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(gpu_type.name for gpu_type in self.types)


def types_from(read: Sequence[Read[GPUType]], findings: Findings) -> TypeIndex:
    by_label: dict[tuple[str, str], int] = {}
    for n, each in enumerate(read):
        label = each.object.spec.node_label
        for m, value in enumerate(label.values):
            owner = by_label.setdefault((label.key, value), n)
            if owner != n:
                path = ("spec", "nodeLabel", "values", m)
                problem = f"{label.key}={value} already means {read[owner].name}"
                findings.mistake(each.mistake(path, problem, "a label value tells one type"))
    return TypeIndex(
        types=tuple(gpu_type_from(each.object) for each in read),
        resource=tuple(each.object.spec.resource_name for each in read),
        by_label=by_label,
    )


def gpu_type_from(obj: GPUType) -> GpuType:
    spec = obj.spec
    return GpuType(
        name=obj.metadata.name,
        memory_bytes=quantity.whole(spec.memory),
        price_per_hour=spec.price_per_hour.on_demand,
        spot_price_per_hour=spec.price_per_hour.spot,
        inventory=spec.inventory,
    )


def nodes_from(
    read: Sequence[Read[Node]], types: TypeIndex, findings: Findings, *, name_is_matched: bool = False
) -> NodeTable:
    """All nodes; a cordoned or not-ready one is there, but nothing new starts on it.

    name_is_matched: whether the affinity of some pod matches nodes by name.
    """
    devices = [_devices(each, types, findings) for each in read]
    have = [_have(each, findings) for each in read]
    unknown = [each.name for each, (count, kind) in zip(read, devices, strict=True) if count and kind < 0]
    words = "GPUs that match no GPUType: they have no price, and pods that name a type stay away"
    findings.note_many("Node", "GpuTypeUnknown", unknown, words)
    return NodeTable(
        names=Names(each.name for each in read),
        cpu_milli=column((quantity.milli(h.get("cpu", Decimal(0))) for h in have), np.int64),
        memory_bytes=column((quantity.whole(h.get("memory", Decimal(0))) for h in have), np.int64),
        gpus=column((count for count, _ in devices), np.int64),
        gpu_type=column((gpu_type for _, gpu_type in devices), np.int64),
        schedulable=column((r.object.is_ready and not r.object.spec.unschedulable for r in read), np.bool_),
        labels=tuple(
            {**r.object.metadata.labels, **({NODE_NAME_FIELD: r.name} if name_is_matched else {})} for r in read
        ),
        taints=tuple(tuple(Taint(t.key, t.value, t.effect) for t in r.object.spec.taints) for r in read),
    )


def _have(read: Read[Node], findings: Findings) -> Mapping[str, Decimal]:
    """What the node lets pods have; its capacity where nobody said how much of it is allocatable."""
    status = read.object.status
    if not status.allocatable and not status.capacity:
        remedy = "write what pods may have: cpu, memory, nvidia.com/gpu"
        findings.mistake(read.mistake(("status", "allocatable"), "is missing", remedy))
    return {**status.capacity, **status.allocatable}


def _devices(read: Read[Node], types: TypeIndex, findings: Findings) -> tuple[int, int]:
    """How many devices a node has, and of which type; -1 when it has none or nobody said which."""
    node = read.object
    have = {**node.status.capacity, **node.status.allocatable}
    offered = {name: count for name in GPU_RESOURCES if (count := quantity.whole(have.get(name, Decimal(0))))}
    if not offered:
        return 0, -1
    found = sorted({n for label in node.metadata.labels.items() if (n := types.by_label.get(label)) is not None})
    if len(found) > 1:
        both = " and ".join(types.names[n] for n in found)
        findings.mistake(read.mistake(("metadata", "labels"), f"mean two GPU types, {both}", "a node has one type"))
    if len(offered) > 1:
        both = " and ".join(offered)
        findings.mistake(read.mistake(("status", "allocatable"), f"offers {both}", "a node has GPUs of one kind"))
    resource, count = next(iter(offered.items()))
    if count > MAX_GPUS_PER_NODE:
        remedy = f"count devices, {MAX_GPUS_PER_NODE} at most; share one through the annotation tonnage.dev/gpu-milli"
        findings.mistake(read.mistake(("status", "allocatable", resource), f"is {count}", remedy))
        count = MAX_GPUS_PER_NODE
    if not found:
        return count, -1
    if types.resource[found[0]] != resource:
        problem = f"offers {resource}, but {types.names[found[0]]} is offered as {types.resource[found[0]]}"
        remedy = "correct spec.resourceName of the GPUType, or the node's label"
        findings.mistake(read.mistake(("status", "allocatable"), problem, remedy))
    return count, found[0]
