"""GPU types and nodes as columns, and what the spec of a pod demands of nodes: labels, fields and tolerations."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal, get_args

import numpy as np

from cluster import workloads
from cluster.arrays import Names, column
from cluster.errors import Mistake
from cluster.nodes import HOSTNAME_LABEL, NODE_NAME_FIELD, NodeTable, NodeTaint
from cluster.workloads import MAX_DEVICES_PER_NODE, OWN_NODE, PODS, GpuType, Operator, Requirement, Terms, Toleration
from controller.api import notation
from controller.api.gpu_type import GPUType, GPUTypeSpec
from controller.api.structs import Node, NodeConstraints, SelectorRequirement
from controller.objects.accelerators import is_device
from controller.objects.read import Findings, Read

NOWHERE: Terms = ((Requirement(HOSTNAME_LABEL, "In"),),)
"""Alternatives that no node meets: no value is one of none."""
_OPERATORS: Mapping[str, Operator] = {name: name for name in get_args(Operator)}
MOST_ALTERNATIVES = 16_384
"""Maximum number of requirements and values that two sets are joined to. Chosen: a pod with eight alternatives and a
volume on each of 2,000 nodes."""


def requirement(written: SelectorRequirement) -> Requirement | None:
    """A requirement as it is written in an object; None: its operator is unknown."""
    operator = _OPERATORS.get(written.operator)
    return None if operator is None else Requirement(written.key, operator, tuple(written.values))


def joined(first: Terms, second: Terms) -> Terms | None:
    """Alternatives that meet one of each; None where they are more than are looked up (`MOST_ALTERNATIVES`)."""
    if not first or not second:
        return first or second
    # Counted before any is made, as those of a pod are.
    sizes = [sum(1 + len(each.values) for term in terms for each in term) for terms in (first, second)]
    if len(second) * sizes[0] + len(first) * sizes[1] > MOST_ALTERNATIVES:
        return None
    both = (_both((*one, *other)) for one in first for other in second)
    return tuple(dict.fromkeys(term for term in both if term is not None)) or NOWHERE


def _both(term: tuple[Requirement, ...]) -> tuple[Requirement, ...] | None:
    """The requirements with one list of values for each label, None where no node meets them."""
    found: dict[tuple[str, str, tuple[str, ...]], Requirement] = {}
    for each in term:
        is_list = each.operator == "In" and OWN_NODE not in each.values
        place = (each.key, each.operator, () if is_list else each.values)
        if is_list and place in found:
            each = Requirement(each.key, "In", tuple(v for v in found[place].values if v in frozenset(each.values)))
            if not each.values:
                return None
        found[place] = each
    if any(key == other and (operator, against) == ("In", "DoesNotExist")
           for key, operator, _ in found for other, against, _ in found):  # fmt: skip
        return None
    return tuple(found.values())


def either(alternatives: Iterable[Terms]) -> Terms:
    """Alternatives of any of these, with one list of the values of each label that is required alone."""
    listed: defaultdict[str, set[str]] = defaultdict(set)
    others: dict[tuple[Requirement, ...], None] = {}
    for terms in alternatives:
        if not terms or not all(terms):
            return ()
        for term in terms:
            if len(term) == 1 and term[0].operator == "In":
                listed[term[0].key].update(term[0].values)
            else:
                others[term] = None
    lists = ((Requirement(key, "In", tuple(sorted(values))),) for key, values in sorted(listed.items()) if values)
    return (*lists, *others) or NOWHERE


GPU_RESOURCES = ("amd.com/gpu", "nvidia.com/gpu")
"""Devices of a fleet without GPUTypes, too."""
COLUMNS = frozenset({"cpu", "memory"})
"""Resources with a column of their own; so have devices. All others are numbers."""
ANY_NUMBER = 1 << 40
"""Pods of a node whose number is in no file."""

MOST_TERMS = 512
"""Maximum number of requirements and values in node selector and affinity. Each is looked up for every plan; lists of
hosts near some data have some dozens."""
MOST_TOLERATIONS = 128
"""Maximum number of tolerations. Pods of DaemonSets that run everywhere have a dozen."""

Problem = tuple[str, str]
"""(problem, remedy) of a constraint that cannot be heeded as it is written."""


INSTANCE_TYPE = "instance-type"
"""Ending of labels that name a machine, which say less of its devices than any other."""


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """GPU types, with the labels and resources by which nodes and pods refer to them."""

    types: tuple[GpuType, ...]
    """Those of the objects, then one for each group of slices: nodes that offer several of the group."""
    resource: tuple[str, ...]
    """Extended resource that offers each type, in order of `types`; "" of a group."""
    by_label: Mapping[tuple[str, str], tuple[int, ...]]
    """Indices of the types by (label key, value)."""
    selectors: tuple[Mapping[str, str], ...] = ()
    """Labels that nodes of each type must have besides."""
    group: Mapping[int, int] = field(default_factory=dict)
    """Type → the group of types that one node may offer together, each as a resource of its own."""
    counted: frozenset[str] = frozenset()
    """Resources of such types: how many of each a node has left is counted beside its devices."""

    def named(self, name: str) -> int | None:
        return next((n for n, known in enumerate(self.types) if known.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(gpu_type.name for gpu_type in self.types)

    def is_device(self, resource: str) -> bool:
        """Whether this resource counts devices: of a type, or, in a fleet without types, of any known kind."""
        return resource in self.resource or (not self.types and (resource in GPU_RESOURCES or is_device(resource)))

    def is_counted(self, resource: str) -> bool:
        """Whether the number of each node's devices of this resource decides, because their type does not."""
        return resource in self.counted or resource not in self.resource

    def offered_as(self, resource: str) -> set[int]:
        """Types that pods which request this resource may get, with the groups of which it is a part."""
        found = {n for n, name in enumerate(self.resource) if name == resource}
        return found | {self.group[n] for n in found if n in self.group}

    def of_node(self, labels: Mapping[str, str], resource: str) -> list[int]:
        """Types that a node's devices of this resource can be; of several, those that its labels say most about."""
        found: dict[tuple[bool, int], set[int]] = {}
        for label in labels.items():
            for n in self.by_label.get(label, ()):
                selector = self.selectors[n] if self.selectors else {}
                if self.resource[n] == resource and selector.items() <= labels.items():
                    found.setdefault((label[0].endswith(INSTANCE_TYPE), -len(selector)), set()).add(n)
        return sorted(found[min(found)]) if found else []


def types_from(read: Sequence[Read[GPUType]], findings: Findings) -> TypeIndex:
    """Index of the types of these objects, without those that cannot be read."""
    by_label: dict[tuple[str, str], list[int]] = {}
    made: list[GpuType] = []
    specs: list[GPUTypeSpec] = []
    for each in read:
        spec = each.object.spec
        try:
            gpu_type = GpuType(
                name=each.object.metadata.name,
                memory_bytes=notation.whole(spec.memory),
                price_per_hour=spec.price_per_hour.usual,
                spot_price_per_hour=spec.price_per_hour.spot,
                inventory=spec.inventory,
                committed_price_per_hour=spec.price_per_hour.committed,
                share=spec.share,
                per_pod=spec.devices_per_pod,
                network_bytes_per_s=None if spec.network is None else float(spec.network),
                owned_w=owned.watts if (owned := spec.price_per_hour.owned) else 0.0,
                owned_per_kwh=owned.dollars_per_kwh if owned else 0.0,
                power_prices=tuple(
                    sorted(workloads.PowerPrice(p.from_time, p.paid(owned), p.grams_per_kwh) for p in spec.power_prices)
                ),
            )
        except Exception as error:  # noqa: BLE001 - one type must not stop the others
            findings.mistake(each.unreadable(error))
            continue
        n = len(made)
        made.append(gpu_type)
        specs.append(spec)
        for place, label in ((("nodeLabel",), spec.node_label), *(
            (("otherLabels", m), other) for m, other in enumerate(spec.other_labels)
        )):  # fmt: skip
            for m, value in enumerate(label.values):
                same = by_label.setdefault((label.key, value), [])
                alike = (spec.resource_name, spec.node_selector)
                owner = next((k for k in same if (specs[k].resource_name, specs[k].node_selector) == alike), None)
                if owner is not None:
                    problem = f"{label.key}={value} already means {made[owner].name}"
                    path = ("spec", *place, "values", m)
                    findings.mistake(each.mistake(path, problem, "a label value means one type of each resource"))
                else:
                    same.append(n)
    index = TypeIndex(
        tuple(made),
        tuple(spec.resource_name for spec in specs),
        {label: tuple(same) for label, same in by_label.items()},
        tuple(spec.node_selector for spec in specs),
    )
    return _with_groups(index)


def _with_groups(index: TypeIndex) -> TypeIndex:
    """The index with a group for all types whose devices one node may offer side by side, as MIG's strategy `mixed`."""
    members = {n: {n} for n in range(len(index.types))}
    for same in index.by_label.values():
        if len({index.resource[n] for n in same}) > 1:
            joined = set[int]().union(*(members[n] for n in same))
            members |= dict.fromkeys(joined, joined)
    types, group = list(index.types), dict[int, int]()
    for n, joined in members.items():
        if len(joined) > 1 and n not in group:
            named = index.types[max(joined, key=lambda m: (index.types[m].share, -m))]
            device = min(index.types[m].price_per_hour / index.types[m].share for m in joined)
            group |= dict.fromkeys(joined, len(types))
            types.append(GpuType(f"{named.name}{GROUPED}", named.memory_bytes, device, inventory=0))
    counted = frozenset(index.resource[n] for n in group)
    resource = (*index.resource, *[""] * (len(types) - len(index.types)))
    selectors = (*index.selectors, *[dict[str, str]()] * (len(types) - len(index.types)))
    return replace(index, types=tuple(types), resource=resource, selectors=selectors, group=group, counted=counted)


GROUPED = "+slices"
"""Ending of the name of a group of types, which no object's name has."""


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
    device_price: float = math.nan
    """Dollars per device and hour, where the type's price does not say it."""
    left_over: int = 0
    """Devices that are not planned, because no more of a node can be told apart."""
    mistakes: tuple[Mistake, ...] = ()


NO_DEVICES = (0, -1, math.nan, 0)


def node_row(read: Read[Node], types: TypeIndex) -> NodeRow:
    """Columns of a node. A cordoned, not-ready or inconsistent node is kept as unschedulable."""
    node, findings = read.object, Findings()
    cpu_milli, memory_bytes, devices = 0, 0, NO_DEVICES
    others: dict[str, int] = {}
    try:
        if not node.status.allocatable and not node.status.capacity:
            remedy = "write the allocatable cpu, memory and devices, such as nvidia.com/gpu"
            findings.mistake(read.mistake(("status", "allocatable"), "is missing", remedy))
        written = {**node.status.capacity, **node.status.allocatable}
        have = {name: notation.quantity(amount) for name, amount in written.items()}
        offered = {n: count for n in have if types.is_device(n) and (count := notation.whole(have[n]))}
        found = _devices(read, offered, types, findings)
        cpu, memory = notation.milli(have.get("cpu", Decimal(0))), notation.whole(have.get("memory", Decimal(0)))
        plain = {n for n in have if n not in COLUMNS and (not types.is_device(n) or types.is_counted(n))}
        others = {name: notation.whole(have[name]) for name in sorted(plain)}
        cpu_milli, memory_bytes, devices = cpu, memory, found
    except ValueError as error:
        findings.mistake(read.mistake(("status", "allocatable"), str(error)))
    except Exception as error:  # noqa: BLE001 - one node must not stop the others
        findings.mistake(read.unreadable(error))
    gpus, gpu_type, device_price, left_over = devices
    return NodeRow(
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        gpus=gpus,
        gpu_type=gpu_type,
        device_price=device_price,
        left_over=left_over,
        schedulable=node.is_ready and not node.spec.unschedulable and not findings.mistakes,
        cordoned=node.is_ready and node.spec.unschedulable and not findings.mistakes,
        others=others,
        labels=node.metadata.labels,
        taints=tuple(NodeTaint(t.key, t.value, t.effect) for t in node.spec.taints),
        mistakes=tuple(findings.mistakes),
    )


def _devices(
    read: Read[Node], offered: Mapping[str, int], types: TypeIndex, findings: Findings
) -> tuple[int, int, float, int]:
    """`gpus`, `gpu_type`, `device_price` and `left_over` of a node with these numbers of devices, by resource."""
    if not offered:
        return NO_DEVICES
    here, labels = ("status", "allocatable"), read.object.metadata.labels
    known: dict[str, int] = {}
    for resource in offered:
        if found := types.of_node(labels, resource):
            known[resource] = found[0]
        if len(found) > 1:
            both = " and ".join(types.names[n] for n in found)
            findings.mistake(read.mistake(("metadata", "labels"), f"mean two GPU types, {both}", "a node has one type"))
    groups = {types.group.get(n, n) if len(known) > 1 else n for n in known.values()}
    # Devices of several resources are one column where each is counted beside it.
    strange = [r for r in offered if r not in known and not types.is_counted(r)]
    if len(groups) > 1 or (len(offered) > 1 and strange):
        both = " and ".join(offered)
        findings.mistake(read.mistake(here, f"offers {both}", "a node has GPUs of one kind"))
    counted = {resource: offered[resource] for resource in known or offered}
    resource, count = next(iter(counted)), sum(counted.values())
    price, all_of_them = math.nan, count
    if not known:
        meant = sorted({n for label in labels.items() for n in types.by_label.get(label, ())})
        if meant and types.of_node(labels, types.resource[meant[0]]) and not types.is_counted(resource):
            problem = f"offers {resource}, but {types.names[meant[0]]} is offered as {types.resource[meant[0]]}"
            remedy = "correct spec.resourceName of the GPUType, or the node's label"
            findings.mistake(read.mistake(here, problem, remedy))
    elif len(known) > 1:
        group = types.types[next(iter(groups))]
        physical = math.ceil(sum(types.types[n].share * offered[r] for r, n in known.items()) - 1e-6)
        price = physical * group.price_per_hour / count
    if count > MAX_DEVICES_PER_NODE:
        if not known:
            remedy = f"write a GPUType for them (tonnage gputypes --from-cluster); {MAX_DEVICES_PER_NODE} are planned"
            findings.mistake(read.mistake((*here, resource), f"is {count}", remedy))
        per_device = types.types[next(iter(groups))].price_per_hour if math.isnan(price) and known else price
        price, count = per_device * count / MAX_DEVICES_PER_NODE, MAX_DEVICES_PER_NODE
    return count, next(iter(groups)) if known else -1, price, all_of_them - count


def node_table(rows: Mapping[str, NodeRow], *, name_is_matched: bool) -> NodeTable:
    """All nodes, sorted by name.

    name_is_matched: whether the affinity of any pod matches nodes by name.
    """
    names = sorted(rows)
    each = [rows[name] for name in names]
    prices = column((row.device_price for row in each), np.float64)
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
        device_price=None if np.isnan(prices).all() else prices,
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
