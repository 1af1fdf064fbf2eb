"""Snapshot of the cluster at one instant: immutable, in columns, with a function for the state after some actions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from cluster import workloads
from cluster.arrays import BoolArray, FloatArray, IntArray, Names, column, rows_of
from cluster.autoscaling import Scaler
from cluster.capacity import Free
from cluster.demand import ThroughputProfile
from cluster.disruption import DisruptionBudget
from cluster.errors import ActionError
from cluster.nodes import HeldBack, NodeTable
from cluster.power import PowerTable
from cluster.teams import Team

PENDING = -1
"""Node index of a pod that is not bound."""


@dataclass(frozen=True, slots=True, eq=False)
class PodTable:
    """Pods of a snapshot that are pending or hold resources; one entry per pod in each column."""

    names: Names
    """`namespace/name`."""
    shape: IntArray
    """Index into `shapes`."""
    shapes: tuple[workloads.PodShape, ...]
    """Distinct shapes; thousands of pods share a few dozen."""
    node: IntArray
    """Index of the node that the pod is bound to, or PENDING."""
    devices: IntArray
    """Bit d is set where the pod holds (its share of) device d of its node."""
    priority: IntArray
    gang: IntArray
    """Index into the snapshot's `gangs`, -1 for none."""
    owner: tuple[str, ...]
    """Service (`namespace/name`) that an instance belongs to, or "" ."""
    movable: BoolArray
    """Whether the pod may be evicted and started elsewhere: its owner restarts it, and it has no local state."""
    never_preempts: BoolArray | None = None
    """Whether no pod may be stopped for this one, whatever their priorities; None: for none of them."""
    ending: BoolArray | None = None
    """Whether the pod is being deleted and holds its node until it is gone; None: none of them."""
    strangers: BoolArray | None = None
    """Whether the pod runs by another scheduler's decision, on a node that Tonnage does not own; None: none of them."""
    settled: BoolArray | None = None
    """Whether the pod runs and stays where it is: it asks not to be disrupted, its replacement would come back to the
    same node, or a stop of it was refused lately; None: none of them."""
    started_s: IntArray | None = None
    """Instant at which the pod started on its node, or was made where it waits, whole seconds since the epoch, 0 where
    it is not known; None: not known of any."""
    saved_s: IntArray | None = None
    """Instant of the pod's last checkpoint, likewise."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def pending(self) -> IntArray:
        """Rows of the pods that are not bound, in table order."""
        return np.flatnonzero(self.node == PENDING)

    @property
    def has_rules(self) -> bool:
        """Whether other pods decide where some pod may run, beyond what they hold of a node's resources."""
        return any(shape.beside.is_bound for shape in self.shapes)

    @property
    def may_be_stopped(self) -> BoolArray:
        """Whether Tonnage may stop a pod, whatever for; one that ends already costs nothing. Shape (pods,)."""
        may = np.ones(len(self), dtype=np.bool_)
        for stays in (self.strangers, self.settled):
            if stays is not None:
                may &= ~stays
        return may if self.ending is None else may | self.ending

    def plus(self, more: "PodTable") -> "PodTable":
        """Pods of both tables, this one's first. Gang indices must mean the same gangs in both."""
        new = tuple(dict.fromkeys(shape for shape in more.shapes if shape not in self.shapes))
        shapes = (*self.shapes, *new)
        number = np.array([shapes.index(shape) for shape in more.shapes], dtype=np.int64)
        columns: dict[str, Any] = {name: np.append(getattr(self, name), getattr(more, name)) for name in DENSE}
        columns |= {name: self._joined(more, name) for name in SPARSE}
        return PodTable(
            names=self.names.plus(more.names),
            shape=np.append(self.shape, number[more.shape]),
            shapes=shapes,
            owner=self.owner + more.owner,
            **columns,
        )

    def only(self, rows: IntArray) -> "PodTable":
        """The table of these rows, in their order."""
        columns = ("names", "shape", "owner", *DENSE, *SPARSE)
        return replace(self, **{name: rows_of(getattr(self, name), rows) for name in columns})

    def marked(self, name: str, rows: Sequence[int]) -> "PodTable":
        """The table in which a sparse column of truth values holds for these rows, too."""
        now = getattr(self, name)
        marks = np.zeros(len(self), dtype=np.bool_) if now is None else now.copy()
        marks[list(rows)] = True
        changed: dict[str, Any] = {name: column(marks, np.bool_)}
        return replace(self, **changed)

    def reshaped(self, shapes: Mapping[int, workloads.PodShape]) -> "PodTable":
        """The table with other shapes of some rows, by row. Rows of one object share its number."""
        new = {id(each): each for each in shapes.values()}
        number = {key: len(self.shapes) + n for n, key in enumerate(new)}
        shape = self.shape.copy()
        for row, each in shapes.items():
            shape[row] = number[id(each)]
        return replace(self, shape=column(shape, np.int64), shapes=(*self.shapes, *new.values()))

    @classmethod
    def waiting(
        cls, names: Iterable[str], shape: IntArray, shapes: tuple[workloads.PodShape, ...], **columns: Any
    ) -> "PodTable":
        """Pods that wait, movable, of priority 0, and of no gang and service; columns: those that are otherwise."""
        count = len(shape)
        usual: dict[str, Any] = {
            "node": column(np.full(count, PENDING), np.int64),
            "devices": column(np.zeros(count), np.int64),
            "priority": column(np.zeros(count), np.int64),
            "gang": column(np.full(count, -1), np.int64),
            "owner": ("",) * count,
            "movable": column(np.ones(count), np.bool_),
        }
        return cls(names=Names(names), shape=shape, shapes=shapes, **{**usual, **columns})

    def _joined(self, more: "PodTable", name: str) -> Any:
        both = [getattr(self, name), getattr(more, name)]
        kinds = [one.dtype for one in both if one is not None]
        if not kinds:
            return None
        rows = (len(self), len(more))
        return np.concatenate(
            [np.zeros(n, kinds[0]) if one is None else one for n, one in zip(rows, both, strict=True)]
        )


DENSE = ("node", "devices", "priority", "gang", "movable")
"""Columns of a table of pods that need nothing else of it."""
SPARSE = ("never_preempts", "ending", "strangers", "settled", "started_s", "saved_s")
"""Columns of a table of pods that are None where they are false, or 0, for all."""


def device_mask(devices: Sequence[int]) -> int:
    """Bit set of device numbers, as in `PodTable.devices`."""
    mask = 0
    for device in devices:
        mask |= 1 << device
    return mask


def device_numbers(mask: int) -> tuple[int, ...]:
    """Device numbers of a bit set, ascending."""
    return tuple(d for d in range(int(mask).bit_length()) if mask >> d & 1)


@dataclass(frozen=True, slots=True)
class HeldSeat:
    """Node and devices that are kept for one pod (cluster/held_seats.py)."""

    pod: str
    """Pod that waits for it, `namespace/name`; of a moved one, the pod whose replacement comes here."""
    node: str
    devices: tuple[int, ...]
    gpu_milli: int
    """Thousandths of each device."""
    cpu_milli: int
    memory_bytes: int
    is_moved: bool = False
    """Whether it is for a replacement, which its owner creates under a name of its own."""
    owner: str = ""
    """Controller that makes the replacement, `Kind/namespace/name`; empty: not looked up yet, or none."""
    taker: str = ""
    """Pending pod that takes it; empty: it is not there yet."""
    since_s: float = 0.0
    """Instant of the decision that it is of, where that is an earlier one for the same holder; else 0."""


@dataclass(frozen=True, slots=True)
class HeldSeats:
    """Seats that one decision keeps."""

    holder: str
    """Pod that it is for, or a member of the gang, on which this is written; `namespace/name`."""
    since_s: float
    """Instant of the decision, seconds since the epoch."""
    until_s: float
    """Deadline, likewise."""
    seats: tuple[HeldSeat, ...]


class HealthInput:
    """Base of the facts of health for one cycle, whose fields only remediation and the loop that observes them know."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Observed state of the cluster, with the age of each part. Deciders have no other input."""

    at_s: float
    gpu_types: tuple[workloads.GpuType, ...]
    nodes: NodeTable
    pods: PodTable
    gangs: tuple[workloads.Gang, ...] = ()
    services: tuple[workloads.ModelService, ...] = ()
    profiles: tuple[ThroughputProfile, ...] = ()
    observed_at_s: Mapping[str, float] = field(default_factory=dict)
    """When each part (`nodes`, `pods`, `services`) was last observed; a missing part has the instant `at_s`."""
    power: PowerTable | None = None
    """State of power domains; None if none is declared, and then no power limit is ever changed."""
    facts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Figures of objects that a decider needs, by decider and by the object's name: for facts that fill no columns. A
    decider with tables of its own has an optional field here instead, as power has."""
    health: HealthInput | None = None
    """What remediation decides on; None where no HealthPolicy is declared."""
    half_started_since_s: Mapping[str, float] = field(default_factory=dict)
    """Instant since which a gang runs with too few members while others wait, by gang; seconds since the epoch."""
    released_at_s: Mapping[str, float] = field(default_factory=dict)
    """Instant at which a pod's gate was removed, for pods that kube-scheduler has not bound yet; likewise."""
    scheduler_says: Mapping[str, str] = field(default_factory=dict)
    """Words of kube-scheduler for pods of `released_at_s` that it refuses to bind."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Words in which a node refused pods like these, by workload (`Pod/namespace/name`, `Gang/namespace/name`)."""
    recreated: tuple[str, ...] = ()
    """Pods of `released_at_s` whose owner creates a new one when they are stopped."""
    held_back: tuple[HeldBack, ...] = ()
    """Nodes whose kubelet refused pods; `nodes` has them as not schedulable."""
    idle_claims: tuple[workloads.IdleClaim, ...] = ()
    """Claims whose devices are unused, because their pods have no node."""
    scalers: tuple[Scaler, ...] = ()
    """State of each ScalingPolicy."""
    budgets: tuple[DisruptionBudget, ...] = ()
    """PodDisruptionBudgets that cover running pods."""
    teams: tuple[Team, ...] = ()
    """Teams with shares, sorted by name; without any, priorities alone decide."""
    refused_stops: Mapping[str, str] = field(default_factory=dict)
    """Why the stop of a pod was refused lately, in the server's words, by pod; `settled` has them."""
    out_of_stops: tuple[str, ...] = ()
    """Units (`Pod/namespace/name`) for which so many pods were stopped within the hour that no more may be."""
    moved: Mapping[str, int] = field(default_factory=dict)
    """Pods that were moved within the last hour, by namespace and by service."""
    held: tuple[HeldSeats, ...] = ()
    """Seats that decisions of several steps keep."""
    left_out: tuple[workloads.LeftOut, ...] = ()
    """Pending pods that are not in `pods` because they cannot be planned, with the reasons."""

    @property
    def gpu_type_names(self) -> tuple[str, ...]:
        return tuple(gpu_type.name for gpu_type in self.gpu_types)

    def profiles_of(self, service: workloads.ModelService) -> list[tuple[workloads.InstanceType, ThroughputProfile]]:
        """Profiles of the models that may answer for a service, each with the type of such instances, off spot."""
        pools, kind = {each.name: each.pool for each in service.models}, workloads.InstanceType
        shared = pools.keys() - {each.model for each in service.own_profiles}
        found = [*(each for each in self.profiles if each.model in shared), *service.own_profiles]
        return [(kind(p.gpu_type, p.gpus_per_instance, phase=pools[p.model]), p) for p in found]

    def price_per_hour(self, service: workloads.ModelService, instance_type: workloads.InstanceType) -> float:
        """Price of one instance and hour in dollars, with what its service counts energy for; 0 for a GPU type that no
        longer exists.

        On nodes, the node's capacity type decides. Without nodes, everything could still be rented.
        """
        spot = instance_type.spot or (service.spot and not len(self.nodes))
        known = next((each for each in self.gpu_types if each.name == instance_type.gpu_type), None)
        if known is None:
            return 0.0
        paid, counted = known.price(spot=spot) * instance_type.gpus, service.objective
        if not instance_type.gpus and service.cache is not None:
            paid = service.cache.price_per_hour
        if counted is None:
            return paid
        kwh = service.watts.get(replace(instance_type, spot=False), 0.0) / 1000
        return counted.dollars * paid + kwh * counted.of_energy(workloads.price_at(known.power_prices, self.at_s))

    def device_prices(self) -> FloatArray:
        """Dollars per device and hour of each node, by its capacity type; 0 where it is not known. Shape (nodes,)."""
        nodes = self.nodes
        on_demand = np.array([*(each.price_per_hour for each in self.gpu_types), 0.0])[nodes.gpu_type]
        for row in np.flatnonzero(nodes.gpu_type >= 0).tolist():
            known, labels = self.gpu_types[nodes.gpu_type[row]], nodes.labels[row]
            if known.spot_price_per_hour is not None and workloads.is_spot(labels):
                on_demand[row] = known.spot_price_per_hour
            elif known.committed_price_per_hour is not None and workloads.is_committed(labels):
                on_demand[row] = known.committed_price_per_hour
        own = nodes.device_price
        prices: FloatArray = on_demand if own is None else np.where(np.isnan(own), on_demand, own)
        return prices

    def age_s(self, part: str) -> float:
        """Age of the last observation of a part, seconds."""
        return self.at_s - self.observed_at_s.get(part, self.at_s)

    def free(self) -> Free:
        """Capacity that bound pods leave free. Negative on an over-committed node, so that nothing is added to it."""
        nodes, pods = self.nodes, self.pods
        width = int(nodes.gpus.max(initial=0))
        gpu = np.where(np.arange(width) < nodes.gpus[:, None], workloads.WHOLE_GPU_MILLI, 0).astype(np.int64)
        others = {name: amounts.copy() for name, amounts in nodes.others.items()}
        left = Free(nodes.cpu_milli.copy(), nodes.memory_bytes.copy(), gpu, others)
        bound = np.flatnonzero(pods.node != PENDING)
        left.charge_all(pods.shapes, pods.shape[bound], pods.node[bound], pods.devices[bound])
        return left

    def after(self, actions: Iterable["Change"]) -> "Snapshot":
        """The snapshot after these actions, if all of them succeed.

        Raises ActionError when an action names a pod, node or service that the snapshot does not have.
        """
        draft = _Rewrite(self)
        for action in actions:
            action.after(draft)
        return draft.now()


class Draft(Protocol):
    """Snapshot under change, to which actions apply themselves one after another."""

    def place(self, pod: str, node: str, devices: tuple[int, ...]) -> None:
        """Puts a pod on a node, wherever it was before."""
        ...

    def stop(self, pod: str) -> None:
        """Removes a pod from its node; it is pending afterwards."""
        ...

    def now(self) -> Snapshot:
        """The snapshot with the changes so far."""
        ...

    def rewrite(self, snapshot: Snapshot) -> None:
        """Replaces the present snapshot, for changes other than a pod's node and devices (cluster/changes.py)."""
        ...


class Change(Protocol):
    """Object that applies itself to a draft: an action (cluster/actions.py)."""

    def after(self, draft: Draft) -> None: ...


class _Rewrite:
    """Draft of a snapshot: copies of the columns that actions change, made into a new snapshot at the end."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.rewrite(snapshot)

    def rewrite(self, snapshot: Snapshot) -> None:
        # Applied immediately: later actions may bind pods that this change adds.
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

    def _pod(self, name: str) -> int:
        row = self.snapshot.pods.names.row(name)
        if row is None:
            raise ActionError(f"acting on pod {name}: there is no such pod; observe again")
        return row
