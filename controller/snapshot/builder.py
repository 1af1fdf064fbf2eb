"""Incremental builder of the snapshot: it holds the objects of a cluster and converts only what changed.

Manifests and live clusters both use it, so an object means the same in both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cluster.demand import ThroughputProfile
from cluster.errors import Mistake
from cluster.nodes import NodeTable
from cluster.pods import PENDING, PodTable
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, LeftOut
from cluster.workloads import ModelService as Service
from controller.api import gang, gpu_type, model_profile, model_service
from controller.api.foreign_kinds import gang_object
from controller.api.gang import Gang as GangObject
from controller.api.kind import Kind
from controller.api.labels import SCHEDULER_NAME
from controller.api.structs import Node, Pod
from controller.objects.read import Findings, Read
from controller.snapshot.capacity import with_instances_off_spot
from controller.snapshot.fact import Fact
from controller.snapshot.groups import Groups, KnownGroups
from controller.snapshot.node_affinity import matches_node_names
from controller.snapshot.nodes import NodeRow, TypeIndex, node_row, node_table, types_from
from controller.snapshot.pod_groups import Owner
from controller.snapshot.pod_table import Dangling, PodColumns, PodView
from controller.snapshot.pods import PodRow, pod_row
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

    def __init__(
        self,
        is_ours: Callable[[Pod], bool] = lambda _: True,
        facts: tuple[Fact, ...] = FACTS,
        *,
        groups_others: bool = True,
    ) -> None:
        """is_ours: whether a pending pod waits for Tonnage; others are left to their own scheduler.

        groups_others: whether groups of pods of other projects' kinds are gangs.
        """
        self._facts = facts
        self._is_ours = is_ours
        self._groups = Groups()
        self._groups_others = groups_others
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
            self.remove_pod(read.name)
        else:
            self._pods.put(read, self._with_group(read, pod_row(read, self._types)))

    def _with_group(self, read: Read[Pod], row: PodRow) -> PodRow:
        """The row, a member of its group where that is a gang for Tonnage to place."""
        if row.group is None:
            self._groups.remove_pod(read.name)
            return row
        is_member = self._groups_others and self._is_placed_here(read.object)
        self._groups.put_pod(read.name, row.group if self._groups_others else None, is_ours=is_member)
        return row if is_member else replace(row, gang="", group=None)

    def _is_placed_here(self, pod: Pod) -> bool:
        """Whether Tonnage places a pod, or did."""
        if not pod.spec.node_name:
            return self._is_ours(pod)
        return pod.metadata.annotations.node is not None or pod.spec.scheduler_name == SCHEDULER_NAME

    def put_owner(self, word: str, name: str, owner: Owner) -> None:
        """An object of another project's kind that says how many pods start together."""
        self._groups.put_owner(word, name, owner)

    def remove_owner(self, word: str, name: str) -> None:
        self._groups.remove_owner(word, name)

    def read_groups(self, words: Iterable[str]) -> None:
        """Kinds of other projects whose objects have all been put."""
        self._groups.read(words)

    def known_pod(self, name: str) -> Pod | None:
        """The pod as it was last put; None where there is none."""
        read = self._pods.reads.get(name)
        return read.object if read else None

    def remove_pod(self, name: str) -> None:
        self._pods.remove(name)
        self._groups.remove_pod(name)

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
        nodes, groups = self._nodes_table(), self._groups.known()
        gangs = (*(read.name for read in own.gangs), *(gang.name for gang in groups.gangs))
        view = self._pods.view(nodes, gangs, own.service_names, groups.gang_of)
        snapshot = Snapshot(
            at_s=at_s,
            gpu_types=own.types.types,
            nodes=nodes,
            pods=view.table,
            gangs=gangs_from(own.gangs, view.table, groups),
            services=with_instances_counted(own.services, view.table),
            profiles=own.profiles,
            observed_at_s=observed_at_s or {},
        )
        snapshot = replace(with_instances_off_spot(snapshot), left_out=tuple(self._without_gang(view)))
        for add_fact in self._facts:
            snapshot = add_fact(snapshot, self.own)
        return BuiltSnapshot(snapshot, tuple(self._mistakes(own, view)), view.dangling)

    def _without_gang(self, view: PodView) -> Iterable[LeftOut]:
        """Pods that wait for the object of their gang."""
        unreadable = self._groups.known().unreadable
        for each in view.dangling:
            if each.kind == "Gang" and not each.read.object.spec.node_name:
                kind, name = gang_object(each.name)
                if each.name in unreadable:
                    words = f"{kind} {name}, which says how many pods start together, cannot be read: a bug of Tonnage"
                    yield LeftOut(each.read.name, "GangUnreadable", words)
                else:
                    words = f"there is no {kind} {name}, which says how many pods start together"
                    yield LeftOut(each.read.name, "GangMissing", words)

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
        unread: defaultdict[str, list[str]] = defaultdict(list)
        for word, pod in self._groups.known().unread:
            unread[word].append(pod)
        for word, pods in sorted(unread.items()):
            words = f"belong to a {word} that was not read, which says how many start together: placed one by one"
            findings.note_many("Pod", "GroupNotRead", pods, words)


def gangs_from(read: Iterable[Read[GangObject]], pods: PodTable, groups: KnownGroups | None = None) -> tuple[Gang, ...]:
    """Gangs of these objects, then those of other projects, with the highest priority of their members, or their own
    where that is lower.

    Whoever may create a Gang may not use every PriorityClass, so a gang raises no pod above its own class.
    """
    reads, others = tuple(read), groups.gangs if groups else ()
    count = len(reads) + len(others)
    highest = np.full(count, np.iinfo(np.int64).min)
    member = np.flatnonzero(pods.gang >= 0)
    np.maximum.at(highest, pods.gang[member], pods.priority[member])
    has_members = np.isin(np.arange(count), pods.gang[member])
    top = [int(each) if there else 0 for each, there in zip(highest, has_members, strict=True)]
    running = np.bincount(pods.gang[member[pods.node[member] != PENDING]], minlength=count).tolist()
    members = np.bincount(pods.gang[member], minlength=count).tolist()
    own = tuple(
        after_loss(
            Gang(
                name=each.name,
                min_members=each.object.spec.min_members,
                within=each.object.spec.topology.within,
                prefer_within=each.object.spec.topology.prefer_within,
                priority=_gang_priority(each.object.spec.priority, top[row]),
            ),
            each.object,
            members[row],
            running[row],
        )
        for row, each in enumerate(reads)
    )
    return own + tuple(
        replace(each, priority=priority) for each, priority in zip(others, top[len(reads) :], strict=True)
    )


def after_loss(gang: Gang, written: GangObject, members: int, running: int) -> Gang:
    """The gang as it is after a loss, if it ran whole and runs with fewer members than it asks for.

    One that continues needs no more than it has. One that restarts is not completed, so that it is stopped whole.
    """
    asked, policy = gang.min_members, written.spec.on_member_loss
    if written.status.whole_since is None or not 0 < running < asked or policy == "Refill":
        return gang
    if policy == "Continue":
        return replace(gang, min_members=running, asked_members=asked)
    return replace(gang, min_members=max(asked, members + 1), asked_members=asked, must_restart=True)


def _gang_priority(own: int | None, highest: int) -> int:
    return highest if own is None else min(own, highest)
