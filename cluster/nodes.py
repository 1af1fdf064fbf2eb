"""Nodes as columns, and the nodes that a pod's shape may run on at all."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, Names, rows_of
from cluster.workloads import PodShape, Requirement, Terms, Toleration

Labels = Mapping[str, str]

HOSTNAME_LABEL = "kubernetes.io/hostname"
NODE_NAME_FIELD = "metadata.name"
"""Pseudo-label with the node's name, for affinities that match this field (the only one that core/v1 allows).

It is added only where some affinity uses it: otherwise names would needlessly make every node different."""
NAMING_LABELS = frozenset({HOSTNAME_LABEL, NODE_NAME_FIELD})
"""Labels that only repeat a node's name."""


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """Taint that keeps pods away unless they tolerate it, with the meaning of core/v1 Taint."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


CORDON = NodeTaint("node.kubernetes.io/unschedulable")
"""Taint that stands for a cordon: a pod that tolerates it may start there.

Source: kube-scheduler's filter NodeUnschedulable."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Node that takes no new pods for now, because its kubelet refused some."""

    node: str
    until_s: float
    """Seconds since the epoch."""
    refusals: int
    why: str
    """Reason of the last refusal, in the kubelet's word."""


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
    taints: tuple[tuple[NodeTaint, ...], ...]
    others: Mapping[str, IntArray] = field(default_factory=dict)
    """Allocatable amount of every other resource that some node has, by name. Each pod takes one of `pods`; nodes whose
    number of pods is not known have no limit."""
    cordoned: BoolArray | None = None
    """Nodes that are not schedulable by a cordon alone, which a pod may tolerate; None: no node is cordoned."""
    volume_limits: Mapping[str, IntArray] = field(default_factory=dict)
    """Most volumes of a driver that may be attached to each node, by driver."""
    device_price: FloatArray | None = None
    """Dollars per device and hour where the type's price does not say it, as on nodes with slices of several sizes; not
    a number elsewhere. None: nowhere."""

    def __len__(self) -> int:
        return len(self.names)

    def only(self, rows: IntArray) -> "NodeTable":
        """The table of these rows, in their order."""
        return NodeTable(**{each.name: rows_of(getattr(self, each.name), rows) for each in fields(self)})

    def domain(self, label: str) -> IntArray:
        """Topology domain of each node under a label: equal numbers share a value; -1 where the label is not set."""
        numbers: dict[str, int] = {}
        return np.array(
            [-1 if label not in ls else numbers.setdefault(ls[label], len(numbers)) for ls in self.labels],
            dtype=np.int64,
        )


KEPT_BYTES = 32 * 2**20
"""Memory for remembered matches of labels, in bytes, one a node: 160,000 constraints on 200 nodes, 1,600 on 20,000."""


class LabelMatches:
    """Nodes whose labels satisfy the constraints of pods: each constraint is evaluated once while labels are the same.

    It may be kept from plan to plan, so that pods that wait cost little in the next. Results are the same without it.
    """

    def __init__(self, labels: tuple[Labels, ...]) -> None:
        self._labels = labels
        self._columns: dict[str | None, tuple[IntArray, dict[str | None, int]]] = {}
        """Number of each node's value by label, and the number of each value, None where a node does not have it. Under
        None: any label that no node has, since whoever creates pods may name as many as they like."""
        self._on_nodes: frozenset[str] | None = None
        """Labels that some node has; None: not looked up yet."""
        self._known: dict[Terms, BoolArray] = {}
        self._before: dict[Terms, BoolArray] = {}
        self.evaluated = 0
        """Requirements that were evaluated so far, as the work that remembering saves."""

    def for_next(self, labels: tuple[Labels, ...]) -> "LabelMatches":
        """Matches for a later table of nodes: these, without what was not asked since the last call, or new ones."""
        if labels != self._labels:
            return LabelMatches(labels)
        self._before, self._known = self._known, {}
        return self

    def meets_terms(self, terms: Terms) -> BoolArray:
        """Nodes whose labels satisfy one of the alternatives; all, where there are none. Do not write to it."""
        found = self._known.get(terms)
        if found is None:
            found = self._before.get(terms)
            if found is None:
                found = np.full(len(self._labels), not terms)
                for term in terms:
                    one = np.ones(len(self._labels), dtype=np.bool_)
                    for requirement in term:
                        one &= self._meets(requirement)
                        if not one.any():  # other requirements of this alternative change nothing
                            break
                    found |= one
                found.setflags(write=False)
            if len(self._known) * len(self._labels) < KEPT_BYTES:
                self._known[terms] = found
        return found

    def _meets(self, requirement: Requirement) -> BoolArray:
        self.evaluated += 1
        if self._on_nodes is None:
            self._on_nodes = frozenset[str]().union(*self._labels)
        key = requirement.key
        known = key if key in self._on_nodes else None
        if known not in self._columns:
            seen: dict[str | None, int] = {}
            codes = [seen.setdefault(labels.get(key), len(seen)) for labels in self._labels]
            self._columns[known] = np.array(codes, dtype=np.int64), seen
        of_node, numbers = self._columns[known]
        if requirement.operator in ("In", "NotIn"):
            is_in = requirement.operator == "In"
            met = np.full(len(numbers), not is_in)
            met[[numbers[value] for value in requirement.values if value in numbers]] = is_in
            return met[of_node]
        each = [meets({} if v is None else {requirement.key: v}, requirement) for v in numbers]
        return np.array(each, dtype=np.bool_)[of_node]


class NodeFilter:
    """Constraints of shapes, evaluated on all nodes at once, each of them once for every distinct value on the nodes.

    It holds the columns of the labels that were asked for, so one instance serves many shapes.
    """

    def __init__(self, nodes: NodeTable, gpu_type_names: tuple[str, ...], matches: LabelMatches | None = None) -> None:
        """matches: of the last plan; None: nothing is known."""
        self._nodes = nodes
        self._gpu_type_names = gpu_type_names
        self.matches = LabelMatches(nodes.labels) if matches is None else matches.for_next(nodes.labels)
        self._taints: tuple[IntArray, tuple[tuple[NodeTaint, ...], ...]] | None = None

    def eligible(self, shape: PodShape) -> BoolArray:
        """Nodes that a pod of this shape may run on, whatever is free there: type, labels, taints, cordon, refusals.

        Returns shape (nodes,). Does not check capacity, but that the node has as much in all.
        """
        allowed: BoolArray = self._nodes.gpus >= shape.gpus
        for name, amount in shape.others:
            allowed &= self._nodes.others[name] >= amount if name in self._nodes.others else False
        for _, passes in self.filters(shape):
            allowed &= passes
        return allowed

    def filters(self, shape: PodShape) -> Iterator[tuple[str, BoolArray]]:
        """What may keep such a pod off a node whatever is free, by name, with the nodes where it does not; in the order
        in which a node that fails several is named. Do not write to the arrays."""
        schedulable, cordoned = self._nodes.schedulable, self._nodes.cordoned
        if cordoned is not None and tolerates(shape.tolerations)(CORDON):
            schedulable = schedulable | cordoned
        yield "cordoned", schedulable
        if shape.gpu_types:
            wanted = [n for n, name in enumerate(self._gpu_type_names) if name in shape.gpu_types]
            yield "gpu_type", np.isin(self._nodes.gpu_type, wanted)
        yield "selector", self.matches.meets_terms(shape.node_terms)
        yield "taint", self.tolerated(shape.tolerations)
        if shape.refused_on:  # nodes where others refused a pod of this shape
            accepted = np.ones(len(self._nodes), dtype=np.bool_)
            rows = self._nodes.names.rows(shape.refused_on)
            accepted[rows[rows >= 0]] = False
            yield "refused", accepted

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> BoolArray:
        """Nodes all of whose taints a pod with these tolerations tolerates."""
        if self._taints is None:
            numbers: dict[tuple[NodeTaint, ...], int] = {}
            codes = [numbers.setdefault(taints, len(numbers)) for taints in self._nodes.taints]
            self._taints = np.array(codes, dtype=np.int64), tuple(numbers)
        of_node, distinct = self._taints
        is_tolerated = tolerates(tolerations)
        return np.array([all(map(is_tolerated, taints)) for taints in distinct], dtype=np.bool_)[of_node]


def tolerates(tolerations: tuple[Toleration, ...]) -> Callable[[NodeTaint], bool]:
    """Whether a taint keeps no pod with these tolerations away."""
    # Without looking at each toleration: a tenant decides how many there are.
    by_key = {(t.key, t.effect) for t in tolerations if t.operator == "Exists"}
    by_value = {(t.key, t.value, t.effect) for t in tolerations if t.operator == "Equal"}

    def is_tolerated(taint: NodeTaint) -> bool:
        if taint.effect == "PreferNoSchedule":
            return True
        return any(
            ("", effect) in by_key or (taint.key, effect) in by_key or (taint.key, taint.value, effect) in by_value
            for effect in ("", taint.effect)
        )

    return is_tolerated


def eligible_nodes(shape: PodShape, nodes: NodeTable, gpu_type_names: tuple[str, ...]) -> BoolArray:
    """Nodes that a pod of one shape may run on; for many shapes, `NodeFilter` is quicker."""
    return NodeFilter(nodes, gpu_type_names).eligible(shape)


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
        case "Gt" | "Lt":
            # The API server accepts any text as the bound. As for kube-scheduler, no label exceeds one that is not an
            # integer.
            have, bound = _integer(value), _integer(next(iter(requirement.values), None))
            if have is None or bound is None:
                return False
            return have > bound if requirement.operator == "Gt" else have < bound


def _integer(value: str | None) -> int | None:
    """Integer as the API server reads 64 bits: no spaces, no thousands of digits."""
    return int(value) if value is not None and _INTEGER.fullmatch(value) else None


_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
