"""GPU types and nodes as columns; a node's GPU type follows from its labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from cluster.arrays import Names, column
from cluster.errors import Mistake
from cluster.hardware import MAX_GPUS_PER_NODE, GpuType
from cluster.nodes import NODE_NAME_FIELD, NodeTable, Taint
from controller.api import notation
from controller.api.gpu_type import GPUType
from controller.api.structs import Node
from controller.objects.read import Findings, Read

GPU_RESOURCES = ("amd.com/gpu", "nvidia.com/gpu")


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """GPU types, with the labels and resources by which nodes and pods refer to them."""

    types: tuple[GpuType, ...]
    resource: tuple[str, ...]
    """Extended resource that offers each type, in order of `types`."""
    by_label: Mapping[tuple[str, str], int]
    """Index of the type by (label key, value)."""

    def named(self, name: str) -> int | None:
        return next((n for n, known in enumerate(self.types) if known.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(gpu_type.name for gpu_type in self.types)


def types_from(read: Sequence[Read[GPUType]], findings: Findings) -> TypeIndex:
    by_label: dict[tuple[str, str], int] = {}
    made: list[GpuType] = []
    valid: list[Read[GPUType]] = []
    for each in read:
        try:
            made.append(gpu_type_from(each.object))
            valid.append(each)
        except Exception as error:  # noqa: BLE001 - one type must not stop the others
            findings.mistake(each.unreadable(error))
    for n, each in enumerate(valid):
        label = each.object.spec.node_label
        for m, value in enumerate(label.values):
            owner = by_label.setdefault((label.key, value), n)
            if owner != n:
                path = ("spec", "nodeLabel", "values", m)
                problem = f"{label.key}={value} already means {valid[owner].name}"
                findings.mistake(each.mistake(path, problem, "a label value means one type"))
    return TypeIndex(
        types=tuple(made),
        resource=tuple(each.object.spec.resource_name for each in valid),
        by_label=by_label,
    )


def gpu_type_from(obj: GPUType) -> GpuType:
    spec = obj.spec
    return GpuType(
        name=obj.metadata.name,
        memory_bytes=notation.whole(spec.memory),
        price_per_hour=spec.price_per_hour.on_demand,
        spot_price_per_hour=spec.price_per_hour.spot,
        inventory=spec.inventory,
    )


@dataclass(frozen=True, slots=True)
class NodeRow:
    """Columns of one node, and its errors."""

    cpu_milli: int
    memory_bytes: int
    gpus: int
    gpu_type: int
    """Index into the types; -1 when it has no GPU or the type is unknown."""
    schedulable: bool
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    mistakes: tuple[Mistake, ...] = ()

    @property
    def is_of_unknown_type(self) -> bool:
        return self.gpus > 0 and self.gpu_type < 0


def node_row(read: Read[Node], types: TypeIndex) -> NodeRow:
    """Columns of a node. A cordoned, not-ready or inconsistent node is kept as unschedulable."""
    node, findings = read.object, Findings()
    try:
        have = _allocatable(read, findings)
        gpus, gpu_type = _devices(read, have, types, findings)
        cpu_milli = notation.milli(have.get("cpu", Decimal(0)))
        memory_bytes = notation.whole(have.get("memory", Decimal(0)))
    except ValueError as error:
        findings.mistake(read.mistake(("status", "allocatable"), str(error)))
        gpus, gpu_type, cpu_milli, memory_bytes = 0, -1, 0, 0
    except Exception as error:  # noqa: BLE001 - one node must not stop the others
        findings.mistake(read.unreadable(error))
        gpus, gpu_type, cpu_milli, memory_bytes = 0, -1, 0, 0
    return NodeRow(
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        gpus=gpus,
        gpu_type=gpu_type,
        schedulable=node.is_ready and not node.spec.unschedulable and not findings.mistakes,
        labels=node.metadata.labels,
        taints=tuple(Taint(t.key, t.value, t.effect) for t in node.spec.taints),
        mistakes=tuple(findings.mistakes),
    )


def node_table(rows: Mapping[str, NodeRow], *, name_is_matched: bool) -> NodeTable:
    """All nodes, sorted by name.

    name_is_matched: whether the affinity of any pod matches nodes by name.
    """
    names = sorted(rows)
    each = [rows[name] for name in names]
    return NodeTable(
        names=Names(names),
        cpu_milli=column((row.cpu_milli for row in each), np.int64),
        memory_bytes=column((row.memory_bytes for row in each), np.int64),
        gpus=column((row.gpus for row in each), np.int64),
        gpu_type=column((row.gpu_type for row in each), np.int64),
        schedulable=column((row.schedulable for row in each), np.bool_),
        labels=tuple(
            {**row.labels, NODE_NAME_FIELD: name} if name_is_matched else row.labels
            for name, row in zip(names, each, strict=True)
        ),
        taints=tuple(row.taints for row in each),
    )


def _allocatable(read: Read[Node], findings: Findings) -> Mapping[str, Decimal]:
    """Allocatable resources of a node; its capacity where allocatable is missing."""
    status = read.object.status
    if not status.allocatable and not status.capacity:
        remedy = "write the allocatable cpu, memory and nvidia.com/gpu"
        findings.mistake(read.mistake(("status", "allocatable"), "is missing", remedy))
    written = {**status.capacity, **status.allocatable}
    return {name: notation.quantity(written[name]) for name in ("cpu", "memory", *GPU_RESOURCES) if name in written}


def _devices(read: Read[Node], have: Mapping[str, Decimal], types: TypeIndex, findings: Findings) -> tuple[int, int]:
    """(number of devices, index of their type) of a node; -1 when it has none or their type is unknown."""
    node = read.object
    offered = {name: count for name in GPU_RESOURCES if (count := notation.whole(have.get(name, Decimal(0))))}
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
