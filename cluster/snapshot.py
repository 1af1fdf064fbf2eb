"""The cluster at one instant: immutable, columnar, and able to say what it becomes after some actions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.arrays import IntArray, Names
from cluster.demand import ThroughputProfile
from cluster.errors import ActionError
from cluster.hardware import WHOLE_GPU_MILLI, GpuType
from cluster.nodes import NodeTable
from cluster.pods import PENDING, PodTable, device_mask
from cluster.power import PowerTable
from cluster.workloads import Gang, ModelService


@dataclass(frozen=True, slots=True, eq=False)
class Free:
    """What is left on each node: a mutable copy that belongs to whoever asked for it."""

    cpu_milli: IntArray
    """Shape (nodes,)."""
    memory_bytes: IntArray
    """Shape (nodes,)."""
    gpu_milli: IntArray
    """Shape (nodes, widest node's GPUs); thousandths left of each device, 0 where there is no such device."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What was observed, with the age of each part. Deciders see nothing else."""

    at_s: float
    gpu_types: tuple[GpuType, ...]
    nodes: NodeTable
    pods: PodTable
    gangs: tuple[Gang, ...] = ()
    services: tuple[ModelService, ...] = ()
    profiles: tuple[ThroughputProfile, ...] = ()
    observed_at_s: Mapping[str, float] = field(default_factory=dict)
    """When each part was last seen (`nodes`, `pods`, `services`); a part that is missing is as old as `at_s`."""
    power: PowerTable | None = None
    """Watts: None where nobody declared a power domain, and then no limit is ever touched."""

    @property
    def gpu_type_names(self) -> tuple[str, ...]:
        return tuple(gpu_type.name for gpu_type in self.gpu_types)

    def age_s(self, part: str) -> float:
        """How old the newest sight of a part is."""
        return self.at_s - self.observed_at_s.get(part, self.at_s)

    def free(self) -> Free:
        """What bound pods leave over. Negative where a node is over-committed, so that nobody adds to it."""
        nodes, pods = self.nodes, self.pods
        width = int(nodes.gpus.max(initial=0))
        gpu = np.where(np.arange(width) < nodes.gpus[:, None], WHOLE_GPU_MILLI, 0).astype(np.int64)
        left = Free(nodes.cpu_milli.copy(), nodes.memory_bytes.copy(), gpu)
        bound = np.flatnonzero(pods.node != PENDING)
        where, shape = pods.node[bound], pods.shape[bound]
        ask = np.array([(s.cpu_milli, s.memory_bytes, s.gpu_milli) for s in pods.shapes], dtype=np.int64).reshape(-1, 3)
        np.subtract.at(left.cpu_milli, where, ask[shape, 0])
        np.subtract.at(left.memory_bytes, where, ask[shape, 1])
        for device in range(width):
            holds = (pods.devices[bound] >> device & 1).astype(bool)
            np.subtract.at(left.gpu_milli[:, device], where[holds], ask[shape[holds], 2])
        return left

    def after(self, actions: Iterable[Action]) -> "Snapshot":
        """The snapshot that a world which obeys would show after these actions.

        Raises ActionError when an action names a pod, node or service that is not here.
        """
        return _Rewrite(self).all(actions)


class _Rewrite:
    """Applies actions to copies of the columns that they touch, then freezes them into a new snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._start_from(snapshot)

    def _start_from(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.node = snapshot.pods.node.copy()
        self.devices = snapshot.pods.devices.copy()

    def all(self, actions: Iterable[Action]) -> Snapshot:
        for action in actions:
            match action:
                case Bind() | Move():
                    self._place(action.pod, action.node, action.devices)
                case Evict():
                    row = self._pod(action.pod)
                    self.node[row], self.devices[row] = PENDING, 0
                case Scale():
                    # Later actions may bind the pods that this one adds, so the columns grow here and now.
                    self._start_from(scaled(self._now(), action))
                case _:
                    assert_never(action)
        return self._now()

    def _now(self) -> Snapshot:
        return replace(self.snapshot, pods=replace(self.snapshot.pods, node=self.node, devices=self.devices))

    def _place(self, pod: str, node: str, devices: tuple[int, ...]) -> None:
        row, where = self._pod(pod), self.snapshot.nodes.names.row(node)
        if where is None:
            raise ActionError(f"binding {pod} to {node}: there is no such node; observe again")
        self.node[row], self.devices[row] = where, device_mask(devices)

    def _pod(self, name: str) -> int:
        row = self.snapshot.pods.names.row(name)
        if row is None:
            raise ActionError(f"acting on pod {name}: there is no such pod; observe again")
        return row


def scaled(snapshot: Snapshot, scale: Scale) -> Snapshot:
    """The snapshot with a service at the wanted instances: new ones pending, the last named ones gone.

    Pending instances go before running ones, so scaling down disturbs as little as it can.
    """
    service = next((s for s in snapshot.services if s.name == scale.service), None)
    if service is None:
        raise ActionError(f"scaling {scale.service}: there is no such service; observe again")
    for gpu_type, wanted in scale.instances.items():
        snapshot = _with_instances(snapshot, service, gpu_type, wanted)
    replicas = {**(service.replicas or {}), **scale.instances}
    services = tuple(replace(s, replicas=replicas) if s.name == service.name else s for s in snapshot.services)
    return replace(snapshot, services=services)


def _with_instances(snapshot: Snapshot, service: ModelService, gpu_type: str, wanted: int) -> Snapshot:
    pods = snapshot.pods
    prefix = f"{service.name}-{gpu_type.lower()}-"
    mine = service_pods(pods, service.name, gpu_type)
    if len(mine) > wanted:
        goers = sorted(mine, key=lambda row: (pods.node[row] == PENDING, row), reverse=True)[: len(mine) - wanted]
        return replace(snapshot, pods=without_pods(pods, goers))
    free_names = (name for n in range(len(pods) + wanted) if (name := f"{prefix}{n}") not in pods.names)
    new = [next(free_names) for _ in range(wanted - len(mine))]
    width = next(
        (p.gpus_per_instance for p in snapshot.profiles if (p.model, p.gpu_type) == (service.model, gpu_type)), 1
    )
    count = len(new)
    fresh_pods = PodTable(
        names=Names(new),
        shape=np.zeros(count, dtype=np.int64),
        shapes=(service.instance_shape(gpu_type, width),),
        node=np.full(count, PENDING),
        devices=np.zeros(count, dtype=np.int64),
        priority=np.full(count, service.priority),
        gang=np.full(count, -1),
        owner=(service.name,) * count,
        movable=np.ones(count, dtype=bool),
    )
    return replace(snapshot, pods=pods.plus(fresh_pods))


def service_pods(pods: PodTable, service: str, gpu_type: str) -> list[int]:
    """Rows of a service's instances on one GPU type, pending or running, in table order."""
    return [
        row
        for row, owner in enumerate(pods.owner)
        if owner == service and pods.shapes[pods.shape[row]].gpu_types == (gpu_type,)
    ]


def without_pods(pods: PodTable, rows: Iterable[int]) -> PodTable:
    """The table without these rows; the order of the others stays."""
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
    )
