"""Incremental builder of the snapshot: it holds the objects of a cluster and converts only what changed.

Manifests and live clusters both use it, so an object means the same in both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cluster import demand, disruption, errors
from cluster.nodes import NodeTable
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import (
    MAX_DEVICES_PER_NODE,
    SPOT_LABELS,
    Gang,
    LeftOut,
    ModelService as Service,
    PodShape,
    is_spot,
    on_capacity,
)
from controller.api import (
    core_v1,
    foreign_kinds,
    gang,
    gpu_type,
    labels,
    model_profile,
    model_service,
    scaling_policy,
    storage,
    structs,
    team,
)
from controller.api.gang import Gang as GangObject
from controller.api.kind import Kind
from controller.objects.catalogue import read_catalogue
from controller.objects.read import Findings, GroupOwner, Read, put
from controller.snapshot.group_kinds import GANG, group_of
from controller.snapshot.held import with_held_seats
from controller.snapshot.nodes import NodeRow, TypeIndex, matches_node_names, node_row, node_table, types_from
from controller.snapshot.pod_groups import Groups, life_of
from controller.snapshot.pod_rules import Budgets, budgets_of, covered_by
from controller.snapshot.pod_table import NO_NAMESPACES, Dangling, PodColumns, PodView
from controller.snapshot.pods import PodRow, pod_row, with_needs
from controller.snapshot.scalers import Facts, with_scalers
from controller.snapshot.services import profiles_from, valid_services, with_batches, with_instances_counted
from controller.snapshot.teams import teams_from
from controller.snapshot.volumes import VolumeIndex, VolumeNeeds


@dataclass(frozen=True, slots=True, eq=False)
class BuiltSnapshot:
    """Snapshot, with the objects that it leaves out because they are inconsistent."""

    snapshot: Snapshot
    mistakes: tuple[errors.Mistake, ...]
    """Errors of objects that contradict themselves or others; the snapshot leaves out what they concern."""
    dangling: tuple[Dangling, ...]
    """Pods that refer to a node, gang or service that does not exist."""


@dataclass(frozen=True, slots=True, eq=False)
class _OwnKinds:
    """Converted objects of Tonnage's own kinds, which are few."""

    profiles: tuple[demand.ThroughputProfile, ...]
    services: tuple[Service, ...]
    """Services without errors."""
    findings: Findings = field(default_factory=Findings)


FACTS: Facts = ((model_service.KIND, with_batches), (scaling_policy.KIND, with_scalers))
"""Facts of every snapshot, from files and from a cluster. They do not include GPU types, profiles, services and gangs:
the conversion of nodes and pods depends on these, so `_current_own_kinds` converts them first."""


class SnapshotBuilder:
    """Objects of a cluster, and the snapshot that they make. Not thread-safe."""

    def __init__(
        self,
        is_ours: Callable[[structs.Pod], bool] = lambda _: True,
        facts: Facts = FACTS,
        *,
        groups_others: bool = True,
    ) -> None:
        """is_ours: whether a pending pod waits for Tonnage; others are left to their own scheduler.

        groups_others: whether groups of pods of other projects' kinds are gangs.
        """
        self._facts = facts
        self._is_ours = is_ours
        self.groups = Groups()
        self._groups_others = groups_others
        self._pods = PodColumns()
        self._budgets: Budgets = {}
        self._known_budgets: tuple[PodView | None, tuple[disruption.DisruptionBudget, ...]] = (None, ())
        """The view of pods for which they were matched last, and those that cover some."""
        self.volumes = VolumeIndex()
        self._with_volumes: dict[str, tuple[Read[structs.Pod], PodRow, VolumeNeeds]] = {}
        """Pods that use volumes, with their rows without what these need, and that."""
        self._volumes_version = 0
        self._limited: tuple[object, NodeTable] | None = None
        """What the table of nodes with the limits of volumes was made of, and that."""
        self._holders: dict[str, str] = {}
        """Pods that hold seats, with what their annotations say."""
        self._namespaces: Mapping[str, Mapping[str, str]] = NO_NAMESPACES
        self._nodes: dict[str, Read[structs.Node]] = {}
        self._node_rows: dict[str, NodeRow] = {}
        self._node_table: tuple[bool, NodeTable] | None = None
        self._own: defaultdict[Kind, dict[str, Read[Any]]] = defaultdict(dict)
        self._types = TypeIndex((), (), {})
        self._own_kinds: _OwnKinds | None = None

    def put_pod(self, name: str, read: Read[structs.Pod] | None) -> None:
        self._current_own_kinds()
        self._read_pod(name, read)

    def _read_pod(self, name: str, read: Read[structs.Pod] | None) -> None:
        life = "gone" if read is None else life_of(read.object)
        self.groups.put_done(name, group_of(read.object) if read is not None and life == "done" else None)
        self._with_volumes.pop(name, None)
        self._holders.pop(name, None)
        if read is None or life in ("done", "gone"):
            self._pods.remove(name)
            self.groups.put_pod(name, None)
            return
        pod, row = read.object, pod_row(read, self._types)
        if pod.metadata.annotations.held_seats is not None:
            self._holders[name] = pod.metadata.annotations.held_seats
        if life == "ending":  # it holds what it has until it is gone, and no member may start beside it for one
            row = replace(row, gang="", group=None)
        is_ours = self._is_ours(pod)
        # It is a member of its group where that is a gang that Tonnage places, or did.
        is_of_gang = row.group is not None and row.group.word == GANG
        is_read = is_of_gang or self._groups_others
        is_member = is_of_gang or (is_read and (pod.was_placed if pod.spec.node_name else is_ours))
        self.groups.put_pod(name, row.group if is_read else None, is_ours=is_member)
        if row.group is not None and not is_member:
            row = replace(row, gang="", group=None)
        if row.volumes:
            needs = self._needs_of(read, row)
            self._with_volumes[name] = read, row, needs
            row = with_needs(row, needs)
        self._pods.put(read, row, is_ours=is_ours)

    def shape_of(self, pod: structs.Pod) -> PodShape:
        """Shape of a pod that need not be among those that were put."""
        self._current_own_kinds()
        row, meta = pod_row(Read(pod, core_v1.POD), self._types), pod.metadata
        if row.volumes:
            row = with_needs(row, self.volumes.needs(meta.namespace, meta.name, row.volumes, uid=meta.uid, binds=False))
        return row.shape

    def _needs_of(self, read: Read[structs.Pod], row: PodRow) -> VolumeNeeds:
        """What the pod's volumes ask of its node and of other pods."""
        meta, binds = read.object.metadata, read.object.spec.scheduler_name == labels.SCHEDULER_NAME
        return self.volumes.needs(meta.namespace, meta.name, row.volumes, uid=meta.uid, binds=binds)

    def _follow_volumes(self) -> None:
        """Read the pods again whose volumes ask something else than before."""
        if self._volumes_version == self.volumes.version:
            return
        self._volumes_version = self.volumes.version
        for name, (read, row, before) in self._with_volumes.items():
            needs = self._needs_of(read, row)
            if needs is not before and needs != before:
                self._with_volumes[name] = read, row, needs
                self._pods.put(read, with_needs(row, needs), is_ours=self._is_ours(read.object))

    def known_pod(self, name: str) -> structs.Pod | None:
        """The pod as it was last put; None where there is none."""
        read = self._pods.reads.get(name)
        return read.object if read else None

    @property
    def beside(self) -> Mapping[str, tuple[type[Any], Callable[[str, Any], None]]]:
        """Objects that matter to where pods run, beside pods, nodes and our own, by kind: form, and where they go."""
        return {
            "Namespace": (structs.Namespace, self.put_namespace),
            "PodDisruptionBudget": (structs.BudgetObject, self.put_budget),
            "PersistentVolumeClaim": (storage.VolumeClaimObject, self.volumes.put_claim),
            "PersistentVolume": (storage.VolumeObject, self.volumes.put_volume),
            "StorageClass": (storage.StorageClass, self.volumes.put_storage_class),
            "CSINode": (storage.CsiNode, self.volumes.put_csi_node),
        }

    def put_budget(self, name: str, budget: structs.BudgetObject | None) -> None:
        """A PodDisruptionBudget; name: `namespace/name`."""
        put(self._budgets, name, None if budget is None else (budget, covered_by(name, budget)))
        self._known_budgets = None, ()

    def put_namespace(self, name: str, namespace: structs.Namespace | None) -> None:
        """A namespace, by whose labels rules between pods may select it; the API server adds its name to them."""
        known, own = dict(self._namespaces), {"kubernetes.io/metadata.name": name}
        if put(known, name, None if namespace is None else {**own, **namespace.metadata.labels}):
            self._namespaces = known

    def put_node(self, name: str, read: Read[structs.Node] | None) -> None:
        self._current_own_kinds()
        put(self._nodes, name, read)
        if put(self._node_rows, name, None if read is None else node_row(read, self._types)):
            self._node_table = None

    def put_own(self, kind: Kind, name: str, read: Read[Any] | None) -> None:
        put(self._own[kind], name, read)
        self._own_kinds = None
        if kind is gang.KIND:
            spec = None if read is None else read.object.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
            self.groups.put_owner(GANG, name, None if spec is None else GroupOwner(spec, {}))

    def build(self, at_s: float, observed_at_s: Mapping[str, float] | None = None) -> BuiltSnapshot:
        """Snapshot of the current objects. Only those that changed since the last call are converted."""
        own, groups = self._current_own_kinds(), self.groups.known()
        self._follow_volumes()
        name_is_matched = self._pods.name_is_matched or any(
            matches_node_names(service.node_terms) for service in own.services
        )
        if self._node_table is None or self._node_table[0] != name_is_matched:
            self._node_table = (name_is_matched, node_table(self._node_rows, name_is_matched=name_is_matched))
        nodes = self._node_table[1]
        if self.volumes.version:  # with their limits; the same object while neither changed
            state = (nodes, self.volumes.limits_state)
            if self._limited is None or self._limited[0] != state:
                limits = self.volumes.limits(nodes.names, nodes.labels)
                self._limited = state, replace(nodes, volume_limits=limits) if limits else nodes
            nodes = self._limited[1]
        gangs = tuple(gang.name for gang in groups.gangs)
        # Those with errors, too: a pod of such a service is still its pod.
        services = frozenset(self._own[model_service.KIND]).union(s.name for s in own.services if s.part_of)
        view = self._pods.view(nodes, gangs, services, groups.gang_of, self._namespaces)
        if self._budgets and self._known_budgets[0] is not view:
            self._known_budgets = view, budgets_of(self._budgets, self._pods.members_of)
        snapshot = Snapshot(
            at_s=at_s,
            gpu_types=tuple(each.at(at_s) for each in self._types.types),
            nodes=nodes,
            pods=view.table,
            gangs=gangs_from(
                groups.gangs, view.table, {name: read.object for name, read in self._own[gang.KIND].items()}
            ),
            services=with_instances_counted(own.services, view.table) if own.services else (),
            profiles=own.profiles,
            observed_at_s=observed_at_s or {},
            budgets=self._known_budgets[1],
        )
        of_teams = Findings()
        if self._own[team.KIND]:
            teams = teams_from(self.own(team.KIND), self._namespaces, self._types, of_teams)
            snapshot = replace(snapshot, teams=teams)
        left_out = list(view.withheld)
        for each in view.dangling:
            if each.kind == "Gang" and not each.read.object.spec.node_name:
                kind, name = foreign_kinds.gang_object(each.name)
                code, words = "GangMissing", f"there is no {kind} {name}, which says how many pods start together"
                if each.name in groups.unreadable:
                    code = "GangUnreadable"
                    words = f"{kind} {name}, which says how many pods start together, cannot be read: a bug of Tonnage"
                left_out.append(LeftOut(each.read.name, code, words))
        snapshot = replace(with_instances_off_spot(snapshot), left_out=tuple(left_out))
        if self._holders:
            snapshot = with_held_seats(snapshot, self._holders, self._pods.reads)
        for of_kind, add_fact in self._facts:
            snapshot = add_fact(snapshot, self.own(of_kind)) if self._own[of_kind] else snapshot
        of_nodes = (mistake for name in sorted(self._node_rows) for mistake in self._node_rows[name].mistakes)
        of_objects = (*own.findings.mistakes, *of_teams.mistakes, *view.mistakes)
        return BuiltSnapshot(snapshot, (*of_nodes, *of_objects), view.dangling)

    def _current_own_kinds(self) -> _OwnKinds:
        if self._own_kinds is None:
            findings = Findings()
            types = types_from(self.own(gpu_type.KIND), findings)
            if types != self._types:
                # Other GPU types change the meaning of the labels and resources of all nodes and pods.
                self._types = types
                self._node_rows = {name: node_row(read, types) for name, read in self._nodes.items()}
                self._node_table = None
                for name, pod in tuple(self._pods.reads.items()):
                    self._read_pod(name, pod)
            profiles = profiles_from(self.own(model_profile.KIND), types, findings)
            chips = {r.name: chip for r in self.own(gpu_type.KIND) if (chip := read_catalogue(None).chip_of(r.object))}
            services = valid_services(self.own(model_service.KIND), profiles, types, findings, chips)
            self._own_kinds = _OwnKinds(profiles, services, findings)
        return self._own_kinds

    def own(self, kind: Kind) -> tuple[Read[Any], ...]:
        """Objects of one of Tonnage's kinds, sorted by name."""
        return tuple(read for _, read in sorted(self._own[kind].items()))

    def note(self, snapshot: Snapshot, findings: Findings) -> None:
        """Add notes for the reader of a plan about the objects of the last built snapshot."""
        unknown = [name for name, row in sorted(self._node_rows.items()) if row.gpus and row.gpu_type < 0]
        words = "GPUs that match no GPUType: they have no price, and pods that name a type are not placed there"
        findings.note_many("Node", "GpuTypeUnknown", unknown, words)
        many = [name for name, row in sorted(self._node_rows.items()) if row.left_over and row.gpu_type >= 0]
        words = f"offer more devices than can be told apart: {MAX_DEVICES_PER_NODE} of each are planned"
        findings.note_many("Node", "DevicesNotCounted", many, words)
        for note in self._current_own_kinds().findings.notes:
            findings.note(note.about, note.reason.code, note.reason.words, note.reason.figures)
        self._pods.note(snapshot.pods, findings)
        unread: defaultdict[str, list[str]] = defaultdict(list)
        for word, pod in self.groups.known().unread:
            unread[word].append(pod)
        for word, pods in sorted(unread.items()):
            words = f"belong to a {word} that was not read, which says how many start together: placed one by one"
            findings.note_many("Pod", "GroupNotRead", pods, words)


def gangs_from(gangs: Iterable[Gang], pods: PodTable, written: Mapping[str, GangObject]) -> tuple[Gang, ...]:
    """These gangs with the highest priority of their members, or their own where that is lower, as a loss left them.

    Whoever may create a Gang may not use every PriorityClass, so a gang raises no pod above its own class.
    """
    known = tuple(gangs)
    highest = np.full(len(known), np.iinfo(np.int64).min)
    member = np.flatnonzero(pods.gang >= 0)
    np.maximum.at(highest, pods.gang[member], pods.priority[member])
    members = np.bincount(pods.gang[member], minlength=len(known)).tolist()
    runs = member[pods.node[member] != PENDING]
    running = np.bincount(pods.gang[runs], minlength=len(known)).tolist()
    found = []
    for row, each in enumerate(known):
        top, own = int(highest[row]) if members[row] else 0, written.get(each.name)
        if own is not None and own.spec.priority is not None:
            top = min(own.spec.priority, top)
        made = replace(each, priority=top)
        if own is not None and own.status.whole_since is not None and running[row]:
            names = [pods.names[each] for each in runs[pods.gang[runs] == row].tolist()] if made.groups else ()
            lacks = made.lacks(names) if names else made.min_members - running[row]
            made = after_loss(made, own, members[row], running[row]) if lacks > 0 else made
        found.append(made)
    return tuple(found)


def after_loss(gang: Gang, written: GangObject, members: int, running: int) -> Gang:
    """The gang as it is after a loss, if it ran whole and runs with fewer members than it asks for.

    One that continues needs no more than it has. One that restarts is not completed, so that it is stopped whole.
    """
    asked, policy = gang.min_members, written.spec.on_member_loss
    if policy == "Refill":
        return gang
    if policy == "Continue":
        return replace(gang, min_members=running, asked_members=asked, groups=(), least_groups=None)
    return replace(gang, min_members=max(asked, members + 1), asked_members=asked, must_restart=True)


def with_instances_off_spot(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which services that may not use spot nodes, and their pods, are restricted to other nodes.

    Their Deployments say nothing of capacity types: it is Tonnage that chooses their nodes. A template that names a
    capacity type itself is left alone. Unchanged in a fleet without spot nodes.
    """
    if not any(map(is_spot, snapshot.nodes.labels)):
        return snapshot
    names_capacity = {
        s.name for s in snapshot.services if any(each.key in SPOT_LABELS for term in s.node_terms for each in term)
    }
    kept_off = {s.name for s in snapshot.services if not s.spot} - names_capacity
    services = tuple(
        replace(each, node_terms=on_capacity(each.node_terms, spot=False)) if each.name in kept_off else each
        for each in snapshot.services
    )
    pods = snapshot.pods
    rows = {row: int(pods.shape[row]) for row in pods.pending.tolist() if pods.owner[row] in kept_off}
    off = {
        number: replace(pods.shapes[number], node_terms=on_capacity(pods.shapes[number].node_terms, spot=False))
        for number in dict.fromkeys(rows.values())
    }
    return replace(snapshot, services=services, pods=pods.reshaped({row: off[own] for row, own in rows.items()}))
