"""Pods as columns: what each asks, where it runs, what it belongs to."""

from collections.abc import Mapping, Sequence

import numpy as np

from cluster.arrays import Names, column
from cluster.nodes import NodeTable
from cluster.pods import PENDING, PodTable, device_mask
from cluster.workloads import PodShape
from controller.api.metadata import GANG_LABEL, MOVABLE_ANNOTATION, SERVICE_LABEL
from controller.api.pod import Pod
from controller.asked import requested, shape_from
from controller.devices_held import Running, devices_held
from controller.findings import Findings
from controller.fleet_from import GPU_RESOURCES, TypeIndex
from controller.manifests import Read
from controller.mistakes import meant

SYSTEM_PRIORITY = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The two priority classes that every cluster has. Source: Kubernetes documentation, "Guaranteed scheduling"."""

_HEEDED = {"cpu", "memory", "ephemeral-storage", *GPU_RESOURCES}


def pods_from(
    read: Sequence[Read[Pod]],
    nodes: NodeTable,
    types: TypeIndex,
    gangs: Mapping[str, int],
    services: Sequence[str],
    findings: Findings,
) -> PodTable:
    """All pods that are pending or hold resources.

    gangs: name → index in the snapshot; services: names, both `namespace/name`.
    """
    alive = [each for each in read if not each.object.holds_nothing]
    shapes: dict[PodShape, int] = {}
    numbers = [shapes.setdefault(shape_from(each, types, findings), len(shapes)) for each in alive]
    known = tuple(shapes)
    where = [_node(each, nodes, findings) for each in alive]
    running = [
        Running(each, known[number], node, int(nodes.gpus[node]))
        for each, number, node in zip(alive, numbers, where, strict=True)
        if node != PENDING and known[number].gpus
    ]
    held = devices_held(running, findings)
    owners = tuple(_owner(each, services, findings) for each in alive)
    astray = [
        each.name
        for each, number, owner in zip(alive, numbers, owners, strict=True)
        if owner and len(known[number].gpu_types) != 1
    ]
    words = "are instances of a service but name no single GPU type: their service does not count them"
    findings.note_many("Pod", "InstanceTypeUnknown", astray, words)
    _note_what_is_not_heeded([each for each, node in zip(alive, where, strict=True) if node == PENDING], findings)
    return PodTable(
        names=Names(each.name for each in alive),
        shape=column(numbers, np.int64),
        shapes=known,
        node=column(where, np.int64),
        devices=column((device_mask(held.get(each.name, ())) for each in alive), np.int64),
        priority=column(priorities(alive, findings), np.int64),
        gang=column((_gang(each, gangs, findings) for each in alive), np.int64),
        owner=owners,
        movable=column((_movable(each, owner, findings) for each, owner in zip(alive, owners, strict=True)), np.bool_),
    )


def _node(read: Read[Pod], nodes: NodeTable, findings: Findings) -> int:
    name = read.object.spec.node_name
    if not name:
        return PENDING
    row = nodes.names.row(name)
    if row is None:
        problem = f"there is no Node {name!r}"
        findings.mistake(read.mistake(("spec", "nodeName"), problem, meant(name, nodes.names)))
        return PENDING
    return row


def _gang(read: Read[Pod], gangs: Mapping[str, int], findings: Findings) -> int:
    label = read.object.metadata.labels.get(GANG_LABEL)
    if label is None:
        return -1
    namespace = read.object.metadata.namespace
    number = gangs.get(f"{namespace}/{label}")
    if number is None:
        path = ("metadata", "labels", GANG_LABEL)
        here = [name.partition("/")[2] for name in gangs if name.startswith(f"{namespace}/")]
        findings.mistake(read.mistake(path, f"there is no Gang {label!r} in {namespace}", meant(label, here)))
        return -1
    return number


def _owner(read: Read[Pod], services: Sequence[str], findings: Findings) -> str:
    label = read.object.metadata.labels.get(SERVICE_LABEL)
    if label is None:
        return ""
    namespace = read.object.metadata.namespace
    if f"{namespace}/{label}" not in services:
        path = ("metadata", "labels", SERVICE_LABEL)
        here = [name.partition("/")[2] for name in services if name.startswith(f"{namespace}/")]
        findings.mistake(read.mistake(path, f"there is no ModelService {label!r} in {namespace}", meant(label, here)))
    return f"{namespace}/{label}"


def _movable(read: Read[Pod], owner: str, findings: Findings) -> bool:
    """An instance of a service is, because its service starts another; any other pod only when it says so."""
    written = read.object.metadata.annotations.get(MOVABLE_ANNOTATION)
    if written not in (None, "true", "false"):
        path = ("metadata", "annotations", MOVABLE_ANNOTATION)
        findings.mistake(read.mistake(path, f"is {written!r}", 'write "true" or "false"'))
    return bool(owner) if written is None else written == "true"


def priorities(read: Sequence[Read[Pod]], findings: Findings) -> list[int]:
    """The priority of each pod, as admission wrote it there; a class that was not resolved counts as 0, with a note."""
    unresolved = [
        each.name
        for each in read
        if each.object.spec.priority is None
        and each.object.spec.priority_class_name
        and each.object.spec.priority_class_name not in SYSTEM_PRIORITY
    ]
    findings.note_many("Pod", "PriorityUnresolved", unresolved, "have a priorityClassName but no priority: taken as 0")
    return [priority_of(each.object) for each in read]


def priority_of(pod: Pod) -> int:
    if pod.spec.priority is not None:
        return pod.spec.priority
    return SYSTEM_PRIORITY.get(pod.spec.priority_class_name, 0)


def _note_what_is_not_heeded(pending: Sequence[Read[Pod]], findings: Findings) -> None:
    """Conditions that kube-scheduler would heed and this plan does not: it must not look as if it did."""
    near = [
        each.name
        for each in pending
        if each.object.spec.affinity.pod_affinity.required or each.object.spec.affinity.pod_anti_affinity.required
    ]
    findings.note_many(
        "Pod", "PodAffinityNotHeeded", near, "require pod affinity or anti-affinity, which is not heeded"
    )
    spread = [
        each.name
        for each in pending
        if any(c.when_unsatisfiable == "DoNotSchedule" for c in each.object.spec.topology_spread_constraints)
    ]
    findings.note_many("Pod", "SpreadNotHeeded", spread, "have topology spread constraints, which are not heeded")
    by_resource: dict[str, list[str]] = {}
    for each in pending:
        for resource, amount in requested(each.object).items():
            if amount and resource not in _HEEDED:
                by_resource.setdefault(resource, []).append(each.name)
    for resource, names in sorted(by_resource.items()):
        findings.note_many("Pod", "ResourceNotHeeded", names, f"ask for {resource}, which is not heeded")
