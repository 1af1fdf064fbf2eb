"""The cluster at one instant: immutable, columnar, and able to say what it becomes after some actions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from cluster.arrays import IntArray
from cluster.demand import ThroughputProfile
from cluster.errors import ActionError
from cluster.hardware import WHOLE_GPU_MILLI, GpuType
from cluster.nodes import NodeTable
from cluster.pods import PENDING, PodTable, device_mask
from cluster.power import PowerTable
from cluster.workloads import Gang, IdleClaim, LeftOut, ModelService


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
    facts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Figures that deciders need of objects, by decider and by the object's name: for facts that fill no columns. A
    decider with tables of its own has an optional field here instead, as power has."""
    half_started_since_s: Mapping[str, float] = field(default_factory=dict)
    """Gangs that run with fewer members than they need while others wait: since when, seconds since the epoch."""
    released_at_s: Mapping[str, float] = field(default_factory=dict)
    """Pods that were released towards their node and that another scheduler has yet to bind: when, likewise."""
    idle_claims: tuple[IdleClaim, ...] = ()
    """Claims whose devices nothing uses, because their pods have no node."""
    left_out: tuple[LeftOut, ...] = ()
    """Pods that wait to be placed and that are not in `pods`, because they cannot be planned for, with the reasons."""

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

    def after(self, actions: Iterable["Change"]) -> "Snapshot":
        """The snapshot that a world which obeys would show after these actions.

        Raises ActionError when an action names a pod, node or service that is not here.
        """
        draft = _Rewrite(self)
        for action in actions:
            action.after(draft)
        return draft.now()


class Draft(Protocol):
    """A snapshot while actions apply themselves to it, one after another."""

    def place(self, pod: str, node: str, devices: tuple[int, ...]) -> None:
        """Puts a pod on a node, from where it is."""
        ...

    def stop(self, pod: str) -> None:
        """Takes a pod off its node; it is pending then."""
        ...

    def rewrite(self, change: Callable[[Snapshot], Snapshot]) -> None:
        """Replaces the snapshot as it is by now: what a seat of a pod cannot express."""
        ...


class Change(Protocol):
    """Anything that applies itself to a draft: an action (cluster/actions.py)."""

    def after(self, draft: Draft) -> None: ...


class _Rewrite:
    """Draft of a snapshot: copies of the columns that actions change, frozen into a new snapshot at the end."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._start_from(snapshot)

    def _start_from(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.node = snapshot.pods.node.copy()
        self.devices = snapshot.pods.devices.copy()

    def now(self) -> Snapshot:
        return replace(self.snapshot, pods=replace(self.snapshot.pods, node=self.node, devices=self.devices))

    def place(self, pod: str, node: str, devices: tuple[int, ...]) -> None:
        row, where = self._pod(pod), self.snapshot.nodes.names.row(node)
        if where is None:
            raise ActionError(f"binding {pod} to {node}: there is no such node; observe again")
        self.node[row], self.devices[row] = where, device_mask(devices)

    def stop(self, pod: str) -> None:
        row = self._pod(pod)
        self.node[row], self.devices[row] = PENDING, 0

    def rewrite(self, change: Callable[[Snapshot], Snapshot]) -> None:
        # At once: later actions may bind pods that this change adds.
        self._start_from(change(self.now()))

    def _pod(self, name: str) -> int:
        row = self.snapshot.pods.names.row(name)
        if row is None:
            raise ActionError(f"acting on pod {name}: there is no such pod; observe again")
        return row
