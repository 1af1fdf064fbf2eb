"""GPU types and nodes as columns, and what the spec of a pod demands of nodes: labels, fields and tolerations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, get_args

import numpy as np

from cluster.arrays import Names, column
from cluster.errors import Mistake
from cluster.nodes import HOSTNAME_LABEL, NODE_NAME_FIELD, NodeTable, NodeTaint
from cluster.workloads import MAX_GPUS_PER_NODE, OWN_NODE, PODS, GpuType, Operator, Requirement, Terms, Toleration
from controller.api import notation
from controller.api.gpu_type import GPUType
from controller.api.structs import Node, NodeConstraints
from controller.objects.read import Findings, Read
from controller.snapshot.node_terms import NOWHERE, requirement

GPU_RESOURCES = ("amd.com/gpu", "nvidia.com/gpu")
COLUMNS = frozenset({"cpu", "memory", *GPU_RESOURCES})
"""Resources with a meaning and a column of their own; all others are numbers."""
ANY_NUMBER = 1 << 40
"""Pods of a node whose number is in no file."""

MOST_TERMS = 512
"""Maximum number of requirements and values in node selector and affinity. Each is looked up for every plan; lists of
hosts near some data have some dozens."""
MOST_TOLERATIONS = 128
"""Maximum number of tolerations. Pods of DaemonSets that run everywhere have a dozen."""

Problem = tuple[str, str]
"""(problem, remedy) of a constraint that cannot be heeded as it is written."""


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
    """Index of the types of these objects, without those that cannot be read."""
    by_label: dict[tuple[str, str], int] = {}
    made: list[GpuType] = []
    valid: list[Read[GPUType]] = []
    for each in read:
        spec = each.object.spec
        try:
            gpu_type = GpuType(
                name=each.object.metadata.name,
                memory_bytes=notation.whole(spec.memory),
                price_per_hour=spec.price_per_hour.on_demand,
                spot_price_per_hour=spec.price_per_hour.spot,
                inventory=spec.inventory,
            )
        except Exception as error:  # noqa: BLE001 - one type must not stop the others
            findings.mistake(each.unreadable(error))
            continue
        made.append(gpu_type)
        valid.append(each)
    for n, each in enumerate(valid):
        label = each.object.spec.node_label
        for m, value in enumerate(label.values):
            owner = by_label.setdefault((label.key, value), n)
            if owner != n:
                path = ("spec", "nodeLabel", "values", m)
                problem = f"{label.key}={value} already means {valid[owner].name}"
                findings.mistake(each.mistake(path, problem, "a label value means one type"))
    return TypeIndex(tuple(made), tuple(each.object.spec.resource_name for each in valid), by_label)


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
    taints: tuple[NodeTaint, ...]
    cordoned: bool = False
    """Whether a cordon alone makes it unschedulable."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Allocatable amounts of every other resource, by name."""
    mistakes: tuple[Mistake, ...] = ()

    @property
    def is_of_unknown_type(self) -> bool:
        return self.gpus > 0 and self.gpu_type < 0


def node_row(read: Read[Node], types: TypeIndex) -> NodeRow:
    """Columns of a node. A cordoned, not-ready or inconsistent node is kept as unschedulable."""
    node, findings = read.object, Findings()
    cpu_milli, memory_bytes, gpus, gpu_type = 0, 0, 0, -1
    others: dict[str, int] = {}
    try:
        if not node.status.allocatable and not node.status.capacity:
            remedy = "write the allocatable cpu, memory and nvidia.com/gpu"
            findings.mistake(read.mistake(("status", "allocatable"), "is missing", remedy))
        written = {**node.status.capacity, **node.status.allocatable}
        have = {name: notation.quantity(amount) for name, amount in written.items()}
        devices = _devices(read, have, types, findings)
        cpu, memory = notation.milli(have.get("cpu", Decimal(0))), notation.whole(have.get("memory", Decimal(0)))
        others = {name: notation.whole(amount) for name, amount in have.items() if name not in COLUMNS}
        cpu_milli, memory_bytes, (gpus, gpu_type) = cpu, memory, devices
    except ValueError as error:
        findings.mistake(read.mistake(("status", "allocatable"), str(error)))
    except Exception as error:  # noqa: BLE001 - one node must not stop the others
        findings.mistake(read.unreadable(error))
    return NodeRow(
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        gpus=gpus,
        gpu_type=gpu_type,
        schedulable=node.is_ready and not node.spec.unschedulable and not findings.mistakes,
        cordoned=node.is_ready and node.spec.unschedulable and not findings.mistakes,
        others=others,
        labels=node.metadata.labels,
        taints=tuple(NodeTaint(t.key, t.value, t.effect) for t in node.spec.taints),
        mistakes=tuple(findings.mistakes),
    )


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
        others={
            name: column((row.others.get(name, ANY_NUMBER if name == PODS else 0) for row in each), np.int64)
            for name in sorted({name for row in each for name in row.others})
        },
        cordoned=column((row.cordoned for row in each), np.bool_) if any(row.cordoned for row in each) else None,
    )


def terms_of(spec: NodeConstraints) -> tuple[Terms, list[Problem]]:
    """Alternatives of which a node must meet one: each is the node selector and one term of the affinity.

    None of them where there are more than are looked up. A term without any requirement matches no node, and the API
    server takes it. Source: core/v1, NodeSelectorTerm.
    """
    required = spec.affinity.node_affinity.required
    written = [(*t.match_expressions, *t.match_fields) for t in required.node_selector_terms] if required else []
    # Counted before any is made: each alternative has the whole selector, so a selector and terms of a few thousand
    # entries each make millions.
    count = 2 * len(spec.node_selector) * max(1, len(written))
    count += sum(1 + len(each.values) for term in written for each in term)
    if count > MOST_TERMS:
        return (), [(f"has {count} requirements and values", f"write at most {MOST_TERMS}")]
    selector = tuple(Requirement(key, "In", (value,)) for key, value in sorted(spec.node_selector.items()))
    if required is None:
        return (selector,) if selector else (), []
    problems: list[Problem] = []
    terms: list[tuple[Requirement, ...]] = []
    for term in filter(None, written):
        own = list(selector)
        for each in term:
            made = requirement(each)
            if made is None:
                problems.append((f"uses the operator {each.operator!r}", f"known: {', '.join(get_args(Operator))}"))
            own.append(made or Requirement(each.key, "DoesNotExist", tuple(each.values)))
        terms.append(tuple(own))
    return tuple(terms) or NOWHERE, problems


def tolerations_of(spec: NodeConstraints) -> tuple[tuple[Toleration, ...], list[Problem]]:
    """Tolerations with a known operator; any other tolerates nothing here. None, where there are too many."""
    if len(spec.tolerations) > MOST_TOLERATIONS:
        return (), [(f"has {len(spec.tolerations)} tolerations", f"write at most {MOST_TOLERATIONS}")]
    known: dict[str, Literal["Equal", "Exists"]] = {"Equal": "Equal", "Exists": "Exists"}
    found = (Toleration(t.key, known[t.operator], t.value, t.effect) for t in spec.tolerations if t.operator in known)
    return tuple(found), []


def pinned_where_it_runs(terms: Terms, node: str) -> Terms:
    """Terms of a pod that runs on this node, with a requirement of this one node in the same words on every node.

    A DaemonSet and placement mode `gate` pin a pod by the node's name, people and local volumes by its hostname. A
    requirement on the hostname that all alternatives contain was met when the pod was bound, so it is this node's.
    """
    pins = {
        r
        for r in (set(terms[0]).intersection(*terms) if terms else ())
        if r.operator == "In" and len(r.values) == 1
        if r.key == HOSTNAME_LABEL or (r.key, *r.values) == (NODE_NAME_FIELD, node)
    }
    if not pins:
        return terms
    return tuple(tuple(Requirement(r.key, "In", (OWN_NODE,)) if r in pins else r for r in term) for term in terms)


def matches_node_names(terms: Terms) -> bool:
    """Whether they match nodes by name, as those of a DaemonSet's pending pods do."""
    return any(r.key == NODE_NAME_FIELD and r.values != (OWN_NODE,) for term in terms for r in term)
