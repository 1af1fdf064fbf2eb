"""Snapshot from manifests, with all cross-checks between the objects and notes for the reader."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import numpy as np

from cluster.errors import UNREADABLE, Mistake, meant
from cluster.quotas import NamespaceQuota
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import LeftOut
from controller.api import model_service
from controller.api.core_v1 import NODE, POD
from controller.api.foreign_kinds import gang_object
from controller.api.labels import GANG_LABEL, SERVICE_LABEL
from controller.api.rule import Path
from controller.api.structs import object_from
from controller.objects.manifests import Manifests
from controller.objects.read import Findings, Note, Read
from controller.snapshot import pod_table, scalers
from controller.snapshot.builder import FACTS, BuiltSnapshot, SnapshotBuilder
from controller.snapshot.pods import NOT_UNDERSTOOD
from controller.snapshot.quotas import CountedDevices, ResourceQuota, admitted, quota_from, with_shares
from controller.snapshot.teams import with_team_limits


@dataclass(frozen=True, slots=True)
class Observed:
    """Snapshot with notes on how it was built."""

    snapshot: Snapshot
    notes: tuple[Note, ...] = ()


def snapshot_from(
    manifests: Manifests,
    *,
    at_s: float = 0.0,
    facts: scalers.Facts = FACTS,
    is_dump: bool = False,
    with_strangers: bool = False,
) -> Observed:
    """Snapshot of the cluster that these manifests describe.

    is_dump: whether they are a part of what a live cluster has, so that pods may refer to what was left out.
    with_strangers: whether running pods without Tonnage's marks are those of another scheduler; else all are Tonnage's.

    Raises ConfigError with every contradiction between them: references to missing objects, pods without any node,
    demand beyond every profile. In files such a contradiction is an error. In a live cluster, where objects come and go
    one by one, it is normal, and the snapshot leaves out what it concerns, with a note: so it is for objects of files
    that come from a cluster, which have a uid.
    """
    findings = Findings(manifests.notes)
    builder = builder_from(manifests, facts, findings)
    built = builder.build(at_s)
    left_out = [*built.snapshot.left_out, *manifests.unread]
    left_out += _left_out(manifests, built, findings, is_dump=is_dump)
    alive = [read for read in manifests.pods if not read.object.holds_nothing]
    if alive and not manifests.nodes:
        # Their fleet was forgotten. Services without nodes are valid: what to buy?
        findings.mistake(
            alive[0].mistake((), f"there is no Node for {len(alive)} pod(s)", "add the nodes of the fleet")
        )
    findings.stop_on_mistakes()
    quotas = tuple(_quotas(manifests, findings))
    findings.stop_on_mistakes()
    snapshot = replace(built.snapshot, left_out=tuple(left_out))
    if not with_strangers:
        snapshot = replace(snapshot, pods=replace(snapshot.pods, strangers=None))
    if quotas:
        snapshot, quotas = admitted(snapshot, quotas, {read.name: read for read in manifests.pods})
        resources = {each.name: each.object.spec.resource_name for each in manifests.gpu_types}
        snapshot = with_shares(snapshot, quotas, CountedDevices(resources))
    snapshot = with_team_limits(snapshot)
    builder.note(snapshot, findings)
    note_snapshot(snapshot, findings)
    return Observed(snapshot, findings.notes)


def builder_from(manifests: Manifests, facts: scalers.Facts, findings: Findings) -> SnapshotBuilder:
    """Builder that holds the objects of these manifests."""
    builder = SnapshotBuilder(facts=facts)
    for own in manifests.own:
        builder.put_own(own.kind, own.name, own)
    for owner in manifests.owners:
        builder.groups.put_owner(*owner)
    for node in manifests.nodes:
        builder.put_node(node.name, node)
    for pod in manifests.pods:
        builder.put_pod(pod.name, pod)
    for kind, (struct, put) in builder.beside.items():
        for each in manifests.beside(kind):
            try:
                put(each.name, object_from(each.content, struct))
            except msgspec.ValidationError as error:
                place = each.document.place(f"{kind}/{each.name}")
                findings.refuse(each, Mistake(place, f"cannot be read: {error}"))
    return builder


def _left_out(manifests: Manifests, built: BuiltSnapshot, findings: Findings, *, is_dump: bool) -> Iterator[LeftOut]:
    """Pods and services that the snapshot leaves out because they, or what they refer to, are not as they should be.

    Where a cluster has them so, they are noted, and otherwise mistakes of their author.
    """
    # Objects that a cluster has as they are; looked up only where something is wrong.
    is_wrong = bool(built.mistakes or built.dangling)
    seen = {read.subject: read for read in manifests.all if is_seen(read)} if is_wrong else {}
    same: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for mistake in built.mistakes:
        parts = mistake.place.split(", ")
        read = next((seen[part] for part in parts if part in seen), None)
        if read is None:
            findings.mistake(mistake)
            continue
        path = "".join(parts[parts.index(read.subject) + 1 :])
        words = f"{path} {mistake.problem}; {mistake.remedy}".strip("; ")
        same[read.kind.name, words].append(read.name)
        if waits(read):
            yield LeftOut(read.name, NOT_UNDERSTOOD, f"not placed, since {words}", kind=read.kind.name)
    for (kind, words), names in same.items():
        findings.note_many(kind, "LeftOut", names, f"cannot be used as written: {words}")
    gone: defaultdict[str, list[str]] = defaultdict(list)
    said = {each.pod for each in built.snapshot.left_out}
    for each, mistake in _dangling(manifests, built):
        if not is_dump and each.read.subject not in seen:
            findings.mistake(mistake)
            continue
        gone[each.kind].append(each.read.name)
        if not is_dump and waits(each.read) and each.read.name not in said:
            yield LeftOut(each.read.name, f"{each.kind}Missing", mistake.problem)
    for kind, names in sorted(gone.items()):
        words = f"refer to a {kind} that the dump leaves out: those that run count, those that wait do not"
        if kind == "Node":
            words = "are on a node that the dump leaves out: they hold nothing"
        findings.note_many("Pod", "LeftOut", names, words)


def _quotas(manifests: Manifests, findings: Findings) -> Iterator[NamespaceQuota]:
    for each in manifests.beside("ResourceQuota"):
        try:
            quota = quota_from(object_from(each.content, ResourceQuota))
        except UNREADABLE as error:
            place = each.document.place(f"ResourceQuota/{each.name}")
            findings.refuse(each, Mistake(place, f"cannot be read: {error}"))
            continue
        if quota.unread:
            words = f"has scopes that are not understood ({', '.join(quota.unread)}): it bounds nothing"
            findings.note(f"ResourceQuota/{each.name}", "ScopeNotHeeded", words)
        yield quota


def is_seen(read: Read[Any]) -> bool:
    """Whether a cluster has an object as it is: it has a uid, or a status that no author writes."""
    return read.is_from_cluster or read.kind is NODE or (read.kind is POD and read.object.status.phase == "Running")


def waits(read: Read[Any]) -> bool:
    """Whether an object asks for devices that it does not have: a pod without a node, or a service."""
    return not read.object.spec.node_name if read.kind is POD else read.kind is model_service.KIND


def _dangling(manifests: Manifests, built: BuiltSnapshot) -> Iterator[tuple[pod_table.Dangling, Mistake]]:
    """References of pods to a node, gang or service that does not exist, each with its error."""
    known = {kind.name: [read.name for read in reads] for kind, reads in manifests.by_kind.items()}
    paths: dict[str, Path] = {
        "Node": ("spec", "nodeName"),
        "Gang": ("metadata", "labels", GANG_LABEL),
        "ModelService": ("metadata", "labels", SERVICE_LABEL),
    }

    @cache
    def remedy(kind: str, namespace: str, name: str) -> str:
        prefix = f"{namespace}/" if namespace else ""
        return meant(name, (each.removeprefix(prefix) for each in known.get(kind, ()) if each.startswith(prefix)))

    for each in built.dangling:
        full = gang_object(each.name)[1] if each.kind == "Gang" else each.name
        namespace, _, name = full.rpartition("/")
        problem = f"there is no {each.kind} {name!r}" + (f" in {namespace}" if namespace else "")
        yield each, each.read.mistake(paths[each.kind], problem, remedy(each.kind, namespace, name))


def note_snapshot(snapshot: Snapshot, findings: Findings) -> None:
    """Add notes for the reader of a plan that follow from the snapshot as a whole."""
    pods, nodes, free = snapshot.pods, snapshot.nodes, snapshot.free()
    for number, gang in enumerate(snapshot.gangs):
        names = [pods.names[row] for row in np.flatnonzero(pods.gang == number).tolist()]
        there = len(names)
        if missing := gang.missing(names):
            of_roles = f" (missing: {missing})" if gang.groups else ""
            words = f"{there} of its {gang.min_members} members exist{of_roles}: none can start before the others exist"
            figures: dict[str, float] = {"members": there, "min_members": gang.min_members}
            findings.note(f"Gang/{gang.name}", "GangIncomplete", words, figures)
    short = {"cpu_milli": free.cpu_milli, "memory_bytes": free.memory_bytes}
    if free.gpu_milli.shape[1]:
        short["gpu_milli"] = free.gpu_milli.min(axis=1)
    # Of pods that request more devices than their node has, the free columns cannot show what is missing.
    short["gpus"] = np.zeros(len(nodes), dtype=np.int64)
    for row in np.flatnonzero(pods.node != PENDING):
        node, asked = pods.node[row], pods.shapes[pods.shape[row]].gpus
        short["gpus"][node] = min(short["gpus"][node], nodes.gpus[node] - asked)
    for row in np.flatnonzero(np.any([left < 0 for left in short.values()], axis=0)):
        figures = {name: float(-left[row]) for name, left in short.items() if left[row] < 0}
        words = f"its pods hold more than it has ({', '.join(figures)}): no pod that asks for it is added there"
        findings.note(f"Node/{nodes.names[int(row)]}", "OverCommitted", words, figures)
