"""Incremental builder of the snapshot: it holds the objects of a cluster and converts only what changed.

Manifests and live clusters both use it, so an object means the same in both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster.demand import ThroughputProfile
from cluster.errors import Mistake
from cluster.nodes import NodeTable
from cluster.pods import PodTable
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from cluster.workloads import ModelService as Service
from controller.api import gang, gpu_type, model_profile, model_service
from controller.api.gang import Gang as GangObject
from controller.api.kind import Kind
from controller.kube.structs import Node, Pod
from controller.objects.findings import Findings
from controller.objects.read import Read
from controller.snapshot.capacity import with_instances_off_spot
from controller.snapshot.fact import Fact
from controller.snapshot.node_affinity import matches_node_names
from controller.snapshot.nodes import NodeRow, TypeIndex, node_row, node_table, types_from
from controller.snapshot.pod_table import Dangling, PodColumns, PodView
from controller.snapshot.pods import pod_row
from controller.snapshot.scalers import with_scalers
from controller.snapshot.services import profiles_from, valid_services, with_instances_counted


@dataclass(frozen=True, slots=True, eq=False)
class BuiltSnapshot:
    """Snapshot, with the objects that it leaves out because they are inconsistent."""

    snapshot: Snapshot
    mistakes: tuple[Mistake, ...]
    """Errors of objects that contradict themselves or others; the snapshot leaves out what they concern."""
    dangling: tuple[Dangling, ...]
    """Pods that refer to a node, gang or service that does not exist."""


@dataclass(frozen=True, slots=True, eq=False)
class _OwnKinds:
    """Converted objects of Tonnage's own kinds, which are few."""

    types: TypeIndex
    profiles: tuple[ThroughputProfile, ...]
    services: tuple[Service, ...]
    """Services without errors."""
    service_names: frozenset[str]
    """Names of all services: a pod of an invalid service is still its pod."""
    gangs: tuple[Read[GangObject], ...]
    findings: Findings = field(default_factory=Findings)


FACTS: tuple[Fact, ...] = (with_scalers,)
"""Facts of every snapshot, from files and from a cluster. They do not include GPU types, profiles, services and gangs:
the conversion of nodes and pods depends on these, so `_current_own_kinds` converts them first."""


class SnapshotBuilder:
    """Objects of a cluster, and the snapshot that they make. Not thread-safe."""

    def __init__(self, is_ours: Callable[[Pod], bool] = lambda _: True, facts: tuple[Fact, ...] = FACTS) -> None:
        """is_ours: whether a pending pod waits for Tonnage; others are left to their own scheduler."""
        self._facts = facts
        self._pods = PodColumns(is_ours)
        self._nodes: dict[str, Read[Node]] = {}
        self._node_rows: dict[str, NodeRow] = {}
        self._node_table: tuple[bool, NodeTable] | None = None
        self._own: defaultdict[Kind, dict[str, Read[Any]]] = defaultdict(dict)
        self._types = TypeIndex((), (), {})
        self._own_kinds: _OwnKinds | None = None

    def put_pod(self, read: Read[Pod]) -> None:
        self._current_own_kinds()
        self._read_pod(read)

    def _read_pod(self, read: Read[Pod]) -> None:
        if read.object.holds_nothing:
            self._pods.remove(read.name)
        else:
            self._pods.put(read, pod_row(read, self._types))

    def known_pod(self, name: str) -> Pod | None:
        """The pod as it was last put; None where there is none."""
        read = self._pods.reads.get(name)
        return read.object if read else None

    def remove_pod(self, name: str) -> None:
        self._pods.remove(name)

    def put_node(self, read: Read[Node]) -> None:
        self._current_own_kinds()
        self._read_node(read)

    def _read_node(self, read: Read[Node]) -> None:
        row = node_row(read, self._types)
        if row != self._node_rows.get(read.name):
            self._node_table = None
        self._nodes[read.name], self._node_rows[read.name] = read, row

    def remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            del self._node_rows[name]
            self._node_table = None

    def put_own(self, read: Read[Any]) -> None:
        self._own[read.kind][read.name] = read
        self._own_kinds = None

    def remove_own(self, kind: Kind, name: str) -> None:
        if self._own[kind].pop(name, None) is not None:
            self._own_kinds = None

    def build(self, at_s: float, observed_at_s: Mapping[str, float] | None = None) -> BuiltSnapshot:
        """Snapshot of the current objects. Only those that changed since the last call are converted."""
        own = self._current_own_kinds()
        nodes = self._nodes_table()
        view = self._pods.view(nodes, tuple(read.name for read in own.gangs), own.service_names)
        snapshot = Snapshot(
            at_s=at_s,
            gpu_types=own.types.types,
            nodes=nodes,
            pods=view.table,
            gangs=gangs_from(own.gangs, view.table),
            services=with_instances_counted(own.services, view.table),
            profiles=own.profiles,
            observed_at_s=observed_at_s or {},
        )
        snapshot = with_instances_off_spot(snapshot)
        for add_fact in self._facts:
            snapshot = add_fact(snapshot, self.own)
        return BuiltSnapshot(snapshot, tuple(self._mistakes(own, view)), view.dangling)

    def _mistakes(self, own: _OwnKinds, view: PodView) -> Iterable[Mistake]:
        yield from (m for name in sorted(self._node_rows) for m in self._node_rows[name].mistakes)
        yield from own.findings.mistakes
        yield from view.mistakes

    def _current_own_kinds(self) -> _OwnKinds:
        if self._own_kinds is None:
            findings = Findings()
            types = types_from(self.own(gpu_type.KIND), findings)
            if types != self._types:
                self._read_again(types)
            profiles = profiles_from(self.own(model_profile.KIND), types, findings)
            services = valid_services(self.own(model_service.KIND), profiles, types, findings)
            self._own_kinds = _OwnKinds(
                types,
                profiles,
                services,
                frozenset(self._own[model_service.KIND]),
                self.own(gang.KIND),
                findings,
            )
        return self._own_kinds

    def own(self, kind: Kind) -> tuple[Read[Any], ...]:
        """Objects of one of Tonnage's kinds, sorted by name."""
        return tuple(read for _, read in sorted(self._own[kind].items()))

    def _read_again(self, types: TypeIndex) -> None:
        """Convert all nodes and pods again, because other GPU types change the meaning of labels and resources."""
        self._types = types
        for node in tuple(self._nodes.values()):
            self._read_node(node)
        for pod in tuple(self._pods.reads.values()):
            self._read_pod(pod)

    def _nodes_table(self) -> NodeTable:
        name_is_matched = self._pods.name_is_matched or any(
            matches_node_names(service.node_terms) for service in self._current_own_kinds().services
        )
        if self._node_table is None or self._node_table[0] != name_is_matched:
            self._node_table = (name_is_matched, node_table(self._node_rows, name_is_matched=name_is_matched))
        return self._node_table[1]

    def note(self, snapshot: Snapshot, findings: Findings) -> None:
        """Add notes for the reader of a plan about the objects of the last built snapshot."""
        unknown = [name for name, row in sorted(self._node_rows.items()) if row.is_of_unknown_type]
        words = "GPUs that match no GPUType: they have no price, and pods that name a type are not placed there"
        findings.note_many("Node", "GpuTypeUnknown", unknown, words)
        for note in self._current_own_kinds().findings.notes:
            findings.note(note.about, note.reason.code, note.reason.words, note.reason.figures)
        self._pods.note(snapshot.pods, findings)


def gangs_from(read: Iterable[Read[GangObject]], pods: PodTable) -> tuple[Gang, ...]:
    """Gangs of these objects, with the highest priority of their members, or their own where that is lower.

    Whoever may create a Gang may not use every PriorityClass, so a gang raises no pod above its own class.
    """
    reads = tuple(read)
    highest = np.full(len(reads), np.iinfo(np.int64).min)
    member = np.flatnonzero(pods.gang >= 0)
    np.maximum.at(highest, pods.gang[member], pods.priority[member])
    has_members = np.isin(np.arange(len(reads)), pods.gang[member])
    return tuple(
        Gang(
            name=each.name,
            min_members=each.object.spec.min_members,
            within=each.object.spec.topology.within,
            prefer_within=each.object.spec.topology.prefer_within,
            priority=_gang_priority(each.object.spec.priority, int(top) if there else 0),
        )
        for each, top, there in zip(reads, highest, has_members, strict=True)
    )


def _gang_priority(own: int | None, highest: int) -> int:
    return highest if own is None else min(own, highest)
