"""Scaling of a service in a snapshot: the pods that it gains or loses."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from cluster.arrays import Names
from cluster.errors import ActionError
from cluster.pods import PENDING, PodTable
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType, ModelService, PodShape, requires_spot


def scaled(snapshot: Snapshot, name: str, instances: Mapping[InstanceType, int]) -> Snapshot:
    """The snapshot with the wanted instances of a service: new ones are pending, the last in table order are removed.

    Pending instances are removed before running ones, so that scaling down disturbs as little as possible.
    Raises ActionError when there is no service `name`.
    """
    service = next((s for s in snapshot.services if s.name == name), None)
    if service is None:
        raise ActionError(f"scaling {name}: there is no such service; observe again")
    for instance_type, wanted in instances.items():
        snapshot = _with_instances(snapshot, service, instance_type, wanted)
    replicas = {**(service.replicas or {}), **instances}
    now = replace(service, replicas=replicas, scaled_at_s=snapshot.at_s)
    return replace(snapshot, services=tuple(now if s.name == name else s for s in snapshot.services))


def _with_instances(snapshot: Snapshot, service: ModelService, instance_type: InstanceType, wanted: int) -> Snapshot:
    pods = snapshot.pods
    prefix = f"{service.name}-{instance_type.name.lower()}-"
    mine = service_pods(pods, service.name, instance_type)
    if len(mine) > wanted:
        goers = sorted(mine, key=lambda row: (pods.node[row] == PENDING, row), reverse=True)[: len(mine) - wanted]
        return replace(snapshot, pods=without_pods(pods, goers))
    free_names = (name for n in range(len(pods) + wanted) if (name := f"{prefix}{n}") not in pods.names)
    new = [next(free_names) for _ in range(wanted - len(mine))]
    count = len(new)
    fresh_pods = PodTable(
        names=Names(new),
        shape=np.zeros(count, dtype=np.int64),
        shapes=(service.instance_shape(instance_type),),
        node=np.full(count, PENDING),
        devices=np.zeros(count, dtype=np.int64),
        priority=np.full(count, service.priority),
        gang=np.full(count, -1),
        owner=(service.name,) * count,
        movable=np.ones(count, dtype=bool),
    )
    return replace(snapshot, pods=pods.plus(fresh_pods))


def service_pods(pods: PodTable, service: str, instance_type: InstanceType) -> list[int]:
    """Rows of a service's instances of one type, pending or running, in table order."""
    types = [instance_type_of(shape) for shape in pods.shapes]
    return [row for row, owner in enumerate(pods.owner) if owner == service and types[pods.shape[row]] == instance_type]


def instance_type_of(shape: PodShape) -> InstanceType | None:
    """Type of an instance whose pod has this shape; None for a pod that may run on several GPU types, or needs none."""
    if len(shape.gpu_types) != 1:
        return None
    return InstanceType(shape.gpu_types[0], shape.gpus, requires_spot(shape.node_terms))


def without_pods(pods: PodTable, rows: Iterable[int]) -> PodTable:
    """The table without these rows; the others keep their order."""
    gone = set(rows)
    keep = np.array([row for row in range(len(pods)) if row not in gone], dtype=np.int64)
    return PodTable(
        names=Names(pods.names[row] for row in keep),
        shape=pods.shape[keep],
        shapes=pods.shapes,
        node=pods.node[keep],
        devices=pods.devices[keep],
        priority=pods.priority[keep],
        gang=pods.gang[keep],
        owner=tuple(pods.owner[row] for row in keep),
        movable=pods.movable[keep],
        never_preempts=pods.never_preempt_at(keep),
    )
