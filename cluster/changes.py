"""Snapshot after one change: a service scaled, a target resized, a claim released, a node tainted or cordoned."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from cluster import autoscaling, demand, errors, nodes, workloads
from cluster.snapshot import PENDING, PodTable, Snapshot


def scaled(snapshot: Snapshot, name: str, instances: Mapping[workloads.InstanceType, int]) -> Snapshot:
    """The snapshot with the wanted instances of a service: new ones are pending, the last in table order are removed.

    Pending instances are removed before running ones, so that scaling down disturbs as little as possible.
    Raises ActionError when there is no service `name`.
    """
    service = next((s for s in snapshot.services if s.name == name), None)
    if service is None:
        raise errors.ActionError(f"scaling {name}: there is no such service; observe again")
    for instance_type, wanted in instances.items():
        snapshot = _with_instances(snapshot, service, instance_type, wanted)
    replicas = {**(service.replicas or {}), **instances}
    now = replace(service, replicas=replicas)
    return replace(snapshot, services=tuple(now if s.name == name else s for s in snapshot.services))


def _with_instances(
    snapshot: Snapshot, service: workloads.ModelService, instance_type: workloads.InstanceType, wanted: int
) -> Snapshot:
    pods = snapshot.pods
    prefix = f"{service.name}-{instance_type.name.lower().replace('/', '-')}-"
    mine = service_pods(pods, service.name, instance_type)
    if len(mine) > wanted:
        goers = sorted(mine, key=lambda row: (pods.node[row] == PENDING, row), reverse=True)[: len(mine) - wanted]
        return replace(snapshot, pods=without_pods(pods, goers))
    free_names = (name for n in range(len(pods) + wanted) if (name := f"{prefix}{n}") not in pods.names)
    new = [next(free_names) for _ in range(wanted - len(mine))]
    count, shape = len(new), service.instance_shape(instance_type)
    columns = {"priority": np.full(count, service.priority), "owner": (service.name,) * count}
    fresh_pods = PodTable.waiting(new, np.zeros(count, dtype=np.int64), (shape,), **columns)
    return replace(snapshot, pods=pods.plus(fresh_pods))


def service_pods(pods: PodTable, service: str, instance_type: workloads.InstanceType) -> list[int]:
    """Rows of a service's instances of one type, pending or running, in table order."""
    types = [instance_type_of(shape) for shape in pods.shapes]
    return [row for row, owner in enumerate(pods.owner) if owner == service and types[pods.shape[row]] == instance_type]


def instance_type_of(shape: workloads.PodShape) -> workloads.InstanceType | None:
    """Type of an instance whose pod has this shape; None for a pod that may run on several GPU types, or needs none."""
    if len(shape.gpu_types) != 1:
        return None
    return workloads.InstanceType(shape.gpu_types[0], shape.gpus, workloads.requires_spot(shape.node_terms), shape.pool)


def without_pods(pods: PodTable, rows: Iterable[int]) -> PodTable:
    """The table without these rows; the others keep their order."""
    stays = np.ones(len(pods), dtype=np.bool_)
    stays[list(rows)] = False
    return pods.only(np.flatnonzero(stays))


def with_expected(snapshot: Snapshot, expected: Iterable[demand.ExpectedDemand]) -> Snapshot:
    """The snapshot with these demands in place of those in the services' specs, beside the requests that may wait;
    unknown services are ignored."""
    known = {each.service: each for each in expected}
    services = []
    for service in snapshot.services:
        if own := known.get(service.part_of or service.name):
            asked = replace(own.demand, rate_per_s=own.demand.rate_per_s + service.deferred_per_s)
            service = replace(service, demand=asked, start_share=own.start_share)
        services.append(service)
    return replace(snapshot, services=tuple(services))


def resized(snapshot: Snapshot, policy: str, replicas: int, at_s: float | None = None) -> Snapshot:
    """The snapshot with the wanted replicas of a policy's target. New ones are ordered, the last ordered leave first.

    at_s: instant of the change; by default that of the snapshot. Raises ActionError where the target was not observed.
    """
    scaler = next((each for each in snapshot.scalers if each.name == policy), None)
    if scaler is None or scaler.replicas is None:
        raise errors.ActionError(f"scaling by {policy}: there is no such policy, or its target was not observed")
    at_s, before = snapshot.at_s if at_s is None else at_s, scaler.replicas
    added = replicas - before.wanted
    if added == 0:
        return snapshot
    # Kubernetes removes replicas that are not ready first.
    ready = min(before.ready, replicas)
    more = [at_s] * min(added, autoscaling.MOST_ORDERED)
    ordered = (*before.ordered_at_s, *more)[: max(0, replicas - ready)]
    now = replace(before, wanted=replicas, ready=ready, ordered_at_s=ordered)
    # To the second, as a status keeps it: a change that is known from there already counts once.
    change = (float(int(at_s)), added)
    changes = scaler.changes if change in scaler.changes else (*scaler.changes, change)
    changed = replace(scaler, replicas=now, changes=changes)
    return replace(snapshot, scalers=tuple(changed if each is scaler else each for each in snapshot.scalers))


def idle_claim(snapshot: Snapshot, name: str) -> workloads.IdleClaim | None:
    return next((each for each in snapshot.idle_claims if each.name == name), None)


def released(snapshot: Snapshot, name: str) -> Snapshot:
    """The snapshot after a claim's devices are free. Its pods stay pending.

    Raises ActionError when there is no such idle claim.
    """
    claim = idle_claim(snapshot, name)
    if claim is None:
        raise errors.ActionError(f"releasing claim {name}: there is no such idle claim; observe again")
    holder = snapshot.pods.names.row(claim.holder)
    pods = snapshot.pods if holder is None else without_pods(snapshot.pods, [holder])
    return replace(snapshot, pods=pods, idle_claims=tuple(each for each in snapshot.idle_claims if each is not claim))


def cordoned(snapshot: Snapshot, node: str) -> Snapshot:
    """Snapshot with this node unschedulable. Raises ActionError when there is no such node."""
    row = snapshot.nodes.names.row(node)
    if row is None:
        raise errors.ActionError(f"cordoning {node}: there is no such node; observe again")
    schedulable = snapshot.nodes.schedulable.copy()
    schedulable[row] = False
    return replace(snapshot, nodes=replace(snapshot.nodes, schedulable=schedulable))


UNHEALTHY_TAINT = "tonnage.dev/unhealthy"
"""Taint of a node in quarantine; its value is `incident.generation`."""
PROBATION_TAINT = "tonnage.dev/probation"
"""Taint of a node that was in quarantine and takes only pods that tolerate this; value likewise."""
OUR_TAINTS = (UNHEALTHY_TAINT, PROBATION_TAINT)


def taint_on(snapshot: Snapshot, node: str, key: str) -> nodes.NodeTaint | None:
    """The taint of this key on a node; None where it has none, or is not there."""
    row = snapshot.nodes.names.row(node)
    return None if row is None else next((each for each in snapshot.nodes.taints[row] if each.key == key), None)


def tainted(snapshot: Snapshot, node: str, key: str, value: str | None) -> Snapshot:
    """The snapshot with a NoSchedule taint on a node, where ours replace each other; with None, without its key.

    Raises ActionError when there is no such node.
    """
    row = snapshot.nodes.names.row(node)
    if row is None:
        raise errors.ActionError(f"tainting {node}: there is no such node; observe again")
    taints = list(snapshot.nodes.taints)
    gone = OUR_TAINTS if value is not None and key in OUR_TAINTS else (key,)
    kept = tuple(each for each in taints[row] if each.key not in gone)
    taints[row] = kept if value is None else (*kept, nodes.NodeTaint(key, value))
    return replace(snapshot, nodes=replace(snapshot.nodes, taints=tuple(taints)))
