"""Actions: the changes that Tonnage may make to a cluster, with the data that checks, reports and printing need."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

from cluster import autoscaling, changes, snapshot, workloads


@dataclass(frozen=True, slots=True)
class SeatChange:
    """Change of a pod's node by an action; None for no node."""

    pod: str
    node_before: str | None
    node_after: str | None
    devices: tuple[int, ...] = ()
    """Indices of its devices on `node_after`."""


class Action(ABC):
    """One change of a cluster, as data.

    A new action is a frozen dataclass here, listed in ACTIONS, with an entry in the guard's registry
    (controller/guard.py:OBJECTIONS) and one in that of Kubernetes (controller/kube_world/world.py:HANDLERS).
    """

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    """Fields of the action, which must be a dataclass."""
    attempt: ClassVar[str]
    """Gerund of the attempt, as in an Event's `action`: `Binding`. A failure's Event has the reason `Failed` + this."""
    done: ClassVar[str]
    """Past participle of the completed action: `Placed`."""
    section: ClassVar[str]
    """Key of its list in `tonnage plan -o json`."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Headers of its table in `tonnage plan`, without the reason's; empty where another table shows it, as services'
    instances do."""

    @property
    @abstractmethod
    def subject(self) -> str:
        """Object that Events and logs refer to, as `Kind/name`: `Pod/namespace/name`."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """Where or how it changes the subject, to be printed after its verb: `on node-7, devices [0, 1]`."""

    @abstractmethod
    def after(self, draft: snapshot.Draft) -> None:
        """Applies itself to a draft of a snapshot. Raises ActionError when the draft has no such object."""

    def verb(self, code: str) -> str:  # noqa: ARG002 - most actions have one word for every reason
        """Past participle for an Event's reason. code: code of the action's reason."""
        return self.done

    @property
    def seat_changes(self) -> tuple[SeatChange, ...]:
        """Pods that the action starts, stops or moves."""
        return ()

    @property
    def cells(self) -> tuple[str, ...]:
        """Row of the action in the table of `columns`."""
        return ()

    def values(self) -> dict[str, Any]:
        """Fields by name that make it this action, in their order. Not `asdict`, which copies deeply: a plan has
        thousands of actions."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.compare}

    def touches(self) -> frozenset[str]:
        """Objects that the action changes, as `Kind/name`. If it fails, later steps on them are skipped."""
        nodes = (node for change in self.seat_changes for node in (change.node_before, change.node_after) if node)
        pods = (f"Pod/{change.pod}" for change in self.seat_changes)
        return frozenset((self.subject, *pods, *(f"Node/{node}" for node in nodes)))


@dataclass(frozen=True, slots=True)
class Scale(Action):
    """Sets the number of a service's instances of each type; types not listed stay unchanged."""

    service: str
    instances: Mapping[workloads.InstanceType, int]

    attempt: ClassVar[str] = "Scaling"
    done: ClassVar[str] = "Scaled"
    section: ClassVar[str] = "scale"

    @property
    def subject(self) -> str:
        return f"ModelService/{self.service}"

    def values(self) -> dict[str, Any]:
        return {"service": self.service, "instances": {each.name: count for each, count in self.instances.items()}}

    @property
    def sentence(self) -> str:
        return f"to {', '.join(f'{count} × {name}' for name, count in sorted(self.instances.items()))}"

    def after(self, draft: snapshot.Draft) -> None:
        draft.rewrite(changes.scaled(draft.now(), self.service, self.instances))


@dataclass(frozen=True, slots=True)
class _OnPod(Action):
    pod: str

    @property
    def subject(self) -> str:
        return f"Pod/{self.pod}"


@dataclass(frozen=True, slots=True)
class Evict(_OnPod):
    """Stops a running pod; its owner creates a new one, which is pending."""

    node: str
    beneficiary: str = field(default="", compare=False)
    """Unit that it makes room for, `Kind/namespace/name`; empty for none."""

    attempt: ClassVar[str] = "Evicting"
    done: ClassVar[str] = "Evicted"
    section: ClassVar[str] = "evictions"
    columns: ClassVar[tuple[str, ...]] = ("STOPPED", "NODE")

    @property
    def sentence(self) -> str:
        return f"from {self.node}"

    def verb(self, code: str) -> str:
        return PREEMPTED if code == PREEMPTED else self.done

    def after(self, draft: snapshot.Draft) -> None:
        draft.stop(self.pod)

    @property
    def seat_changes(self) -> tuple[SeatChange, ...]:
        return (SeatChange(self.pod, self.node, None),)

    @property
    def cells(self) -> tuple[str, ...]:
        return self.pod, self.node


@dataclass(frozen=True, slots=True)
class Move(_OnPod):
    """Stops a pod on one node and starts it on another."""

    from_node: str
    node: str
    devices: tuple[int, ...] = ()
    beneficiary: str = field(default="", compare=False)
    """As of an Evict."""

    attempt: ClassVar[str] = "Moving"
    done: ClassVar[str] = "Moved"
    section: ClassVar[str] = "moves"
    columns: ClassVar[tuple[str, ...]] = ("MOVED", "NODES")

    @property
    def sentence(self) -> str:
        return f"from {self.from_node} to {_seat(self.node, self.devices)}"

    def after(self, draft: snapshot.Draft) -> None:
        draft.place(self.pod, self.node, self.devices)

    @property
    def seat_changes(self) -> tuple[SeatChange, ...]:
        return (SeatChange(self.pod, self.from_node, self.node, self.devices),)

    @property
    def cells(self) -> tuple[str, ...]:
        return self.pod, f"{self.from_node} → {self.node}"


@dataclass(frozen=True, slots=True)
class Start(_OnPod):
    """A pending pod gets a node, with these devices."""

    node: str
    devices: tuple[int, ...] = ()

    def after(self, draft: snapshot.Draft) -> None:
        draft.place(self.pod, self.node, self.devices)

    @property
    def seat_changes(self) -> tuple[SeatChange, ...]:
        return (SeatChange(self.pod, None, self.node, self.devices),)

    @property
    def cells(self) -> tuple[str, ...]:
        return self.pod, self.node, ",".join(map(str, self.devices)) or "-"


@dataclass(frozen=True, slots=True)
class Bind(Start):
    """Starts a pending pod on a node, on these devices."""

    attempt: ClassVar[str] = "Binding"
    done: ClassVar[str] = "Placed"
    section: ClassVar[str] = "placements"
    columns: ClassVar[tuple[str, ...]] = ("POD", "NODE", "DEVICES")

    @property
    def sentence(self) -> str:
        return f"on {_seat(self.node, self.devices)}"


@dataclass(frozen=True, slots=True)
class Release(Start):
    """Leaves a pending pod to kube-scheduler, which stops pods of its own for it on this node and binds it there.

    The devices count as its own once they are free.
    """

    attempt: ClassVar[str] = "Releasing"
    done: ClassVar[str] = "Released"
    section: ClassVar[str] = "released"
    columns: ClassVar[tuple[str, ...]] = ("RELEASED", "NODE", "DEVICES")

    @property
    def sentence(self) -> str:
        return f"to kube-scheduler on {_seat(self.node, self.devices)}"


@dataclass(frozen=True, slots=True)
class HoldSeats(Action):
    """Keeps seats for a pending pod or gang, and for the pods that move for it, until a deadline.

    It comes before what makes room for them, which is not done where it fails, and concerns later plans alone.
    """

    held: snapshot.HeldSeats

    attempt: ClassVar[str] = "Holding"
    done: ClassVar[str] = "SeatsHeld"
    section: ClassVar[str] = "held_seats"
    columns: ClassVar[tuple[str, ...]] = ("SEATS HELD FOR", "SEATS")

    @property
    def subject(self) -> str:
        return f"Pod/{self.held.holder}"

    @property
    def sentence(self) -> str:
        return f"{len(self.held.seats)} seats until they are taken"

    def after(self, draft: snapshot.Draft) -> None:
        pass

    @property
    def cells(self) -> tuple[str, ...]:
        return self.held.holder, ", ".join(_seat(seat.node, seat.devices) for seat in self.held.seats)

    def values(self) -> dict[str, Any]:
        seats = [{"pod": s.pod, "node": s.node, "devices": list(s.devices)} for s in self.held.seats]
        return {"holder": self.held.holder, "until_s": self.held.until_s, "seats": seats}


@dataclass(frozen=True, slots=True)
class ReleaseClaim(Action):
    """Releases the devices of a ResourceClaim whose pods have no node; it is allocated again with one of them."""

    claim: str

    attempt: ClassVar[str] = "Releasing"
    done: ClassVar[str] = "Released"
    section: ClassVar[str] = "released_claims"
    columns: ClassVar[tuple[str, ...]] = ("RELEASED CLAIM",)

    @property
    def subject(self) -> str:
        return f"ResourceClaim/{self.claim}"

    @property
    def sentence(self) -> str:
        return "from its devices"

    def after(self, draft: snapshot.Draft) -> None:
        draft.rewrite(changes.released(draft.now(), self.claim))

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.claim,)


@dataclass(frozen=True, slots=True)
class SetReplicas(Action):
    """Sets the replicas of a ScalingPolicy's target through its scale subresource."""

    policy: str
    """`namespace/name` of the ScalingPolicy."""
    target: autoscaling.ScaleTarget
    replicas: int
    was: int
    """Replicas that the decision was made for: with any other number, nothing is written."""

    attempt: ClassVar[str] = "Scaling"
    done: ClassVar[str] = "Scaled"
    section: ClassVar[str] = "targets"
    columns: ClassVar[tuple[str, ...]] = ("TARGET", "REPLICAS")

    @property
    def subject(self) -> str:
        return f"ScalingPolicy/{self.policy}"

    @property
    def sentence(self) -> str:
        return f"{self.target} from {self.was} to {self.replicas} replicas"

    def after(self, draft: snapshot.Draft) -> None:
        draft.rewrite(changes.resized(draft.now(), self.policy, self.replicas))

    @property
    def cells(self) -> tuple[str, ...]:
        return str(self.target), f"{self.was} → {self.replicas}"

    def values(self) -> dict[str, Any]:
        return {"policy": self.policy, "target": str(self.target), "replicas": self.replicas, "was": self.was}


@dataclass(frozen=True, slots=True)
class _OnTaint(Action):
    node: str
    uid: str
    """Of the node object that is meant, and not of a replacement under its name."""
    key: str
    value: str
    """`incident.generation`."""

    @property
    def subject(self) -> str:
        return f"Node/{self.node}"

    @property
    def cells(self) -> tuple[str, ...]:
        return self.node, f"{self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class Taint(_OnTaint):
    """Keeps new pods off a node; its pods stay."""

    attempt: ClassVar[str] = "Tainting"
    done: ClassVar[str] = "Tainted"
    section: ClassVar[str] = "taints"
    columns: ClassVar[tuple[str, ...]] = ("TAINTED", "TAINT")

    @property
    def sentence(self) -> str:
        return f"with {self.key}={self.value}"

    def after(self, draft: snapshot.Draft) -> None:
        draft.rewrite(changes.tainted(draft.now(), self.node, self.key, self.value))


@dataclass(frozen=True, slots=True)
class Untaint(_OnTaint):
    """Removes a taint of ours from a node, and nothing else."""

    attempt: ClassVar[str] = "Untainting"
    done: ClassVar[str] = "Untainted"
    section: ClassVar[str] = "untaints"
    columns: ClassVar[tuple[str, ...]] = ("UNTAINTED", "TAINT")

    @property
    def sentence(self) -> str:
        return f"from {self.key}={self.value}"

    def after(self, draft: snapshot.Draft) -> None:
        draft.rewrite(changes.tainted(draft.now(), self.node, self.key, None))


@dataclass(frozen=True, slots=True)
class RestartGang(Action):
    """Stops all running members of a gang, or those without which it goes on; their owners create new ones."""

    gang: str
    pods: tuple[tuple[str, str, str], ...]
    """Each of these members: `namespace/name`, UID, node."""

    attempt: ClassVar[str] = "Restarting"
    done: ClassVar[str] = "Restarted"
    section: ClassVar[str] = "restarts"
    columns: ClassVar[tuple[str, ...]] = ("RESTARTED", "MEMBERS")

    @property
    def subject(self) -> str:
        return f"Gang/{self.gang}"

    @property
    def sentence(self) -> str:
        return f"with {len(self.pods)} members"

    def after(self, draft: snapshot.Draft) -> None:
        for pod, _, _ in self.pods:
            draft.stop(pod)

    @property
    def seat_changes(self) -> tuple[SeatChange, ...]:
        return tuple(SeatChange(pod, node, None) for pod, _, node in self.pods)

    @property
    def cells(self) -> tuple[str, ...]:
        return self.gang, str(len(self.pods))


PREEMPTED = "Preempted"
"""Reason code of an eviction that makes room for higher priority."""

ACTIONS: tuple[type[Action], ...] = (
    Taint,
    Untaint,
    RestartGang,
    Scale,
    SetReplicas,
    HoldSeats,
    Evict,
    Move,
    Bind,
    Release,
    ReleaseClaim,
)
"""All actions, in the order in which `tonnage plan` prints them."""


def _seat(node: str, devices: Sequence[int]) -> str:
    return f"{node}, devices {list(devices)}" if devices else node
