"""How Kubernetes carries out each action: its last check, its writes, and what is noted before and after them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.actions import Action, Bind, Evict, Move, ReleaseClaim, Scale
from cluster.errors import ActionError
from cluster.snapshot import Snapshot
from controller.api.labels import EPOCH_ANNOTATION
from controller.kube.cluster_view import ClusterView
from controller.kube.sender import may_have_happened
from controller.kube.stamp import Stamp
from controller.kube.write import Write
from controller.kube_world.assumed import Assumed
from controller.kube_world.capacity_check import Account
from controller.kube_world.deployments import deployment_writes
from controller.kube_world.instances import Instances
from controller.placers.claims import Allocate, Deallocate
from controller.placers.pools import Pool, placing_writes


@dataclass(frozen=True, slots=True)
class Desk:
    """What writes are made from, and where their outcome is noted."""

    sightings: ClusterView
    pools: tuple[Pool, ...]
    instances: Instances
    allocate: Allocate
    """How the claims of pods get their devices, from the cluster as it was last observed."""
    deallocate: Deallocate
    """How a claim loses its devices, likewise."""
    epoch: Callable[[], int]
    """Epoch of the Lease, stamped on all that is written."""
    clock: Callable[[], float]
    """Monotonic, seconds."""
    assumed: Assumed = field(default_factory=Assumed)
    scaled: dict[str, float] = field(default_factory=dict)
    """When this process last scaled a service, seconds since the epoch. Its status says so, too, but that may be
    seen only after the next cycle has begun, which would then change again what has just been changed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's answer to one write of an action."""

    failed: ActionError | None
    at_s: float
    """Instant of the snapshot that it was written for."""
    has_begun: bool
    """An earlier write of the action went well. A claim may then hold the devices, seen or not."""


def _note_nothing(*_: object) -> None:
    """For actions of which nothing is noted."""


@dataclass(frozen=True, slots=True)
class Handler:
    """What this world does with one kind of action."""

    check: Callable[[Account, Any], None]
    """Raises ActionError when the action cannot be in the cluster as it is now."""
    writes: Callable[[Desk, Any, Snapshot], list[Write]]
    """Its writes to the API server, in their order. Raises ActionError where it cannot be written."""
    begin: Callable[[Desk, Account, Any], None] = _note_nothing
    """Notes what counts as true before the first request leaves."""
    settle: Callable[[Desk, Any, Answer], None] = _note_nothing
    """Notes an answer: only what certainly did not happen frees what it would hold."""


def _begin_bind(desk: Desk, account: Account, bind: Bind) -> None:
    account.charge(bind)
    if pod := desk.sightings.pod(bind.pod):
        desk.assumed.add(bind, pod.uid, desk.clock())


def _binding(desk: Desk, bind: Bind, snapshot: Snapshot) -> list[Write]:
    pod, where = desk.sightings.pod(bind.pod), snapshot.nodes.names.row(bind.node)
    if pod is None or where is None:
        raise ActionError(f"binding {bind.pod} to {bind.node}: one of them is gone")
    labels = snapshot.nodes.labels[where]
    return placing_writes(pod, bind, labels, desk.pools, Stamp(desk.epoch(), snapshot.at_s), desk.allocate)


def _settle_bind(desk: Desk, bind: Bind, answer: Answer) -> None:
    if answer.failed and not answer.has_begun and not may_have_happened(answer.failed):
        desk.assumed.drop([bind.pod])


def _eviction(desk: Desk, evict: Evict, _: Snapshot) -> list[Write]:
    pod = desk.sightings.pod(evict.pod)
    if pod is None:
        raise ActionError(f"evicting {evict.pod}: it is gone")
    return [] if pod.is_ending else [eviction(evict.pod, pod.uid, desk.epoch())]


def _settle_eviction(desk: Desk, evict: Evict, answer: Answer) -> None:
    if not answer.failed:
        desk.assumed.drop([evict.pod])


def _no_move(_: Desk, move: Move, __: Snapshot) -> list[Write]:
    raise ActionError(f"moving {move.pod}: Kubernetes cannot; evict it, its owner makes it anew")


def _deployments(desk: Desk, scale: Scale, snapshot: Snapshot) -> list[Write]:
    seen = desk.sightings.service(scale.service)
    if seen is None:
        raise ActionError(f"scaling {scale.service}: it is gone")
    if seen.template is None:
        raise ActionError(f"scaling {scale.service}: it has no spec.template to make pods of; it is only planned")
    writes: list[Write] = []
    for gpu_type, replicas in scale.instances.items():
        instance = desk.instances.instance(snapshot, scale.service, gpu_type)
        if instance is None:
            raise ActionError(f"scaling {scale.service}: nothing is known of GPU type {gpu_type}")
        if instance.placer == "dra" and not instance.device_class:
            resource = instance.recognised.resource
            raise ActionError(f"scaling {scale.service}: no driver in dra_drivers offers {resource} of {gpu_type}")
        writes += deployment_writes(instance, replicas, desk.epoch())
    return writes


def _settle_scale(desk: Desk, scale: Scale, answer: Answer) -> None:
    if not answer.failed:
        desk.scaled[scale.service] = answer.at_s


def _release(desk: Desk, release: ReleaseClaim, _: Snapshot) -> list[Write]:
    return desk.deallocate(release.claim, desk.epoch())


HANDLERS: Mapping[type[Action], Handler] = {
    Bind: Handler(Account.check_bind, _binding, _begin_bind, _settle_bind),
    Evict: Handler(
        lambda account, evict: account.check_stop(evict.pod, evict.node), _eviction, settle=_settle_eviction
    ),
    Move: Handler(lambda account, move: account.check_stop(move.pod, move.from_node), _no_move),
    ReleaseClaim: Handler(lambda account, release: account.check_release(release.claim), _release),
    Scale: Handler(lambda account, scale: account.check_scale(scale.service), _deployments, settle=_settle_scale),
}
"""The handler of each action. One that is missing is refused before anything is written."""


def eviction(name: str, uid: str, epoch: int) -> Write:
    """Stops a pod as `kubectl drain` does: what a PodDisruptionBudget forbids is refused with 429."""
    namespace, _, pod = name.partition("/")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace, "annotations": {EPOCH_ANNOTATION: str(epoch)}},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    return Write("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)
