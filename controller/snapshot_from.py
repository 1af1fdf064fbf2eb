"""A snapshot from manifests: everything checked against everything else, and what is worth knowing said."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import IntArray
from cluster.errors import Mistake
from cluster.pods import PENDING, PodTable
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.api.gang import Gang as GangObject
from controller.asked import matches_node_names
from controller.findings import Findings
from controller.fleet_from import nodes_from, types_from
from controller.manifests import Manifests, Note, Read
from controller.pods_from import pods_from
from controller.services_from import check_services, profiles_from, service_from


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot, and what its reader should know of how it came about."""

    snapshot: Snapshot
    notes: tuple[Note, ...] = ()


def snapshot_from(manifests: Manifests, *, at_s: float = 0.0) -> Observed:
    """The cluster that these manifests describe.

    Raises ConfigError with every contradiction between them: names that do not exist, a fleet without nodes for its
    pods, demand that no profile reaches.
    """
    findings = Findings(manifests.notes)
    types = types_from(manifests.gpu_types, findings)
    name_is_matched = any(matches_node_names(read.object) for read in manifests.pods)
    nodes = nodes_from(manifests.nodes, types, findings, name_is_matched=name_is_matched)
    profiles = profiles_from(manifests.profiles, types, findings)
    check_services(manifests.services, profiles, types, findings)
    _check_fleet(manifests, findings)
    gang_rows = {read.name: row for row, read in enumerate(manifests.gangs)}
    service_names = [read.name for read in manifests.services]
    pods = pods_from(manifests.pods, nodes, types, gang_rows, service_names, findings)
    findings.stop_on_mistakes()
    snapshot = Snapshot(
        at_s=at_s,
        gpu_types=types.types,
        nodes=nodes,
        pods=pods,
        gangs=tuple(_gang(read, row, pods) for row, read in enumerate(manifests.gangs)),
        services=tuple(service_from(read, pods) for read in manifests.services),
        profiles=profiles,
    )
    _note_gangs(snapshot, findings)
    _note_overcommitted(snapshot, findings)
    return Observed(snapshot, findings.notes)


def _check_fleet(manifests: Manifests, findings: Findings) -> None:
    """Pods without any node are a fleet that was forgotten; services alone may ask what to buy."""
    alive = [read for read in manifests.pods if not read.object.holds_nothing]
    if alive and not manifests.nodes:
        problem = f"there is no Node for {len(alive)} pod(s)"
        findings.mistake(Mistake(alive[0].document.place(alive[0].who), problem, "add the nodes of the fleet"))


def _gang(read: Read[GangObject], row: int, pods: PodTable) -> Gang:
    spec = read.object.spec
    members = pods.priority[pods.gang == row]
    highest = int(members.max()) if len(members) else 0
    return Gang(
        name=read.name,
        min_members=spec.min_members,
        within=spec.topology.within,
        prefer_within=spec.topology.prefer_within,
        priority=highest if spec.priority is None else spec.priority,
    )


def _note_gangs(snapshot: Snapshot, findings: Findings) -> None:
    for row, gang in enumerate(snapshot.gangs):
        there = int((snapshot.pods.gang == row).sum())
        if there < gang.min_members:
            words = f"{there} of its {gang.min_members} members are there: none can start before the rest is"
            figures = {"members": there, "min_members": gang.min_members}
            findings.note(f"Gang/{gang.name}", "GangIncomplete", words, figures)


def _note_overcommitted(snapshot: Snapshot, findings: Findings) -> None:
    free, nodes = snapshot.free(), snapshot.nodes
    short = {"cpu_milli": free.cpu_milli, "memory_bytes": free.memory_bytes}
    if free.gpu_milli.shape[1]:
        short["gpu_milli"] = free.gpu_milli.min(axis=1)
    _add_devices_missing(short, snapshot.pods, nodes.gpus)
    for row in np.flatnonzero(np.any([left < 0 for left in short.values()], axis=0)):
        figures = {name: float(-left[row]) for name, left in short.items() if left[row] < 0}
        words = f"its pods hold more than it has ({', '.join(figures)}): nothing is added there"
        findings.note(f"Node/{nodes.names[int(row)]}", "OverCommitted", words, figures)


def _add_devices_missing(short: dict[str, IntArray], pods: PodTable, gpus: IntArray) -> None:
    """Pods that ask for more devices than their node has hold what there is, which the free columns cannot show."""
    missing = np.zeros(len(gpus), dtype=np.int64)
    for row in np.flatnonzero(pods.node != PENDING):
        node, asked = pods.node[row], pods.shapes[pods.shape[row]].gpus
        missing[node] = min(missing[node], gpus[node] - asked)
    short["gpus"] = missing
