"""Handlers of actions on Kubernetes: the last check, the writes, and the records kept before and after them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.actions import Action, Bind, Evict, Move, ReleaseClaim, RestartGang, Scale, SetReplicas, Taint, Untaint
from cluster.changes import OUR_TAINTS
from cluster.errors import ActionError
from cluster.snapshot import Snapshot
from controller.api.instant import rfc3339
from controller.api.labels import EPOCH_ANNOTATION, EPOCH_MANAGER
from controller.kube.cluster_view import ClusterView
from controller.kube.request import JSON_PATCH, MERGE_PATCH
from controller.kube.sender import may_have_happened
from controller.kube.stamp import Stamp
from controller.kube.write import Write
from controller.kube_world.assumed import Assumed
from controller.kube_world.capacity_check import Account
from controller.kube_world.deployments import deployment_writes
from controller.kube_world.instances import Instances
from controller.kube_world.promises import Promises
from controller.kube_world.refused_scales import RefusedScales
from controller.placers.claims import Allocate, Deallocate
from controller.placers.pools import Pool, placing_writes


@dataclass(frozen=True, slots=True)
class Desk:
    """Context of writes: the data they are made from, and the records of their outcome."""

    sightings: ClusterView
    pools: tuple[Pool, ...]
    instances: Instances
    allocate: Allocate
    """Function for the writes that allocate devices to a pod's claims, from the last observation."""
    deallocate: Deallocate
    """Function for the writes that take a claim's devices back, likewise."""
    epoch: Callable[[], int]
    """Epoch of the Lease, stamped on every write."""
    clock: Callable[[], float]
    """Monotonic clock, seconds."""
    assumed: Assumed = field(default_factory=Assumed)
    promises: Promises = field(default_factory=Promises)
    scaled: dict[str, float] = field(default_factory=dict)
    """When this process last scaled a service, seconds since the epoch. The service's status has this, too, but may
    arrive after the next cycle has begun, which would then change the service again."""
    refused: RefusedScales = field(default_factory=RefusedScales)
    resized: dict[str, tuple[float, int]] = field(default_factory=dict)
    """When this process last set the replicas of a policy's target, and to how many, likewise."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's answer to one write of an action."""

    failed: ActionError | None
    at_s: float
    """Instant of the snapshot that the write was made from."""
    has_begun: bool
    """Whether an earlier write of the action succeeded. A claim may then hold the devices, observed or not."""


def _note_nothing(*_: object) -> None:
    """For actions without records."""


@dataclass(frozen=True, slots=True)
class Handler:
    """Implementation of one type of action on Kubernetes."""

    check: Callable[[Account, Any], None]
    """Raises ActionError if the action is impossible in the cluster's present state."""
    writes: Callable[[Desk, Any, Snapshot], list[Write]]
    """Writes to the API server, in order. Raises ActionError if the action cannot be written."""
    begin: Callable[[Desk, Account, Any], None] = _note_nothing
    """Records, before the first request is sent, what then counts as done."""
    settle: Callable[[Desk, Any, Answer], None] = _note_nothing
    """Records an answer: devices are freed only if the write certainly failed."""


def _begin_bind(desk: Desk, account: Account, bind: Bind) -> None:
    account.charge(bind)
    if pod := desk.sightings.pod(bind.pod):
        desk.assumed.add(bind, pod.uid, desk.clock())
        desk.promises.make(pod.uid, bind)


def _binding(desk: Desk, bind: Bind, snapshot: Snapshot) -> list[Write]:
    pod, where = desk.sightings.pod(bind.pod), snapshot.nodes.names.row(bind.node)
    if pod is None or where is None:
        raise ActionError(f"binding {bind.pod} to {bind.node}: the pod or the node no longer exists")
    labels = snapshot.nodes.labels[where]
    return placing_writes(pod, bind, labels, desk.pools, Stamp(desk.epoch(), snapshot.at_s), desk.allocate)


def _settle_bind(desk: Desk, bind: Bind, answer: Answer) -> None:
    if answer.failed and not answer.has_begun and not may_have_happened(answer.failed):
        desk.assumed.drop([bind.pod])


def _eviction(desk: Desk, evict: Evict, _: Snapshot) -> list[Write]:
    pod = desk.sightings.pod(evict.pod)
    if pod is None:
        raise ActionError(f"evicting {evict.pod}: the pod no longer exists")
    return [] if pod.is_ending else [eviction(evict.pod, pod.uid, desk.epoch())]


def _settle_eviction(desk: Desk, evict: Evict, answer: Answer) -> None:
    if not answer.failed:
        desk.assumed.drop([evict.pod])


def _no_move(_: Desk, move: Move, __: Snapshot) -> list[Write]:
    raise ActionError(f"moving {move.pod}: Kubernetes cannot move pods; evict it, and its owner creates a new one")


def _deployments(desk: Desk, scale: Scale, snapshot: Snapshot) -> list[Write]:
    seen = desk.sightings.service(scale.service)
    if seen is None:
        raise ActionError(f"scaling {scale.service}: the service no longer exists")
    if seen.template is None:
        raise ActionError(f"scaling {scale.service}: it has no spec.template to create pods from; it is only planned")
    desk.refused.check(seen, desk.clock())
    writes: list[Write] = []
    for instance_type, replicas in scale.instances.items():
        instance = desk.instances.instance(snapshot, scale.service, instance_type)
        if instance is None:
            raise ActionError(f"scaling {scale.service}: GPU type {instance_type.gpu_type} is unknown")
        if instance.placer == "dra" and not instance.device_class:
            resource = instance.recognised.resource
            raise ActionError(
                f"scaling {scale.service}: no driver in dra_drivers offers {resource} of {instance_type.gpu_type}"
            )
        writes += deployment_writes(instance, replicas, desk.epoch())
    return writes


def _settle_scale(desk: Desk, scale: Scale, answer: Answer) -> None:
    if not answer.failed:
        desk.scaled[scale.service] = answer.at_s
    elif seen := desk.sightings.service(scale.service):
        desk.refused.note(seen, answer.failed, desk.clock())


def _release(desk: Desk, release: ReleaseClaim, _: Snapshot) -> list[Write]:
    return desk.deallocate(release.claim, desk.epoch())


def _resize(desk: Desk, action: SetReplicas, _: Snapshot) -> list[Write]:
    return [resize(action, desk.epoch())]


def _settle_resize(desk: Desk, action: SetReplicas, answer: Answer) -> None:
    if not answer.failed or may_have_happened(answer.failed):
        desk.resized[action.policy] = (answer.at_s, action.replicas)


def _tainting(desk: Desk, action: Taint, snapshot: Snapshot) -> list[Write]:
    return [taint_write(desk, action, action.value, snapshot.at_s)]


def _untainting(desk: Desk, action: Untaint, snapshot: Snapshot) -> list[Write]:
    return [taint_write(desk, action, None, snapshot.at_s)]


def _restart(desk: Desk, action: RestartGang, _: Snapshot) -> list[Write]:
    writes = []
    for name, uid, _node in action.pods:
        pod = desk.sightings.pod(name)
        if pod is None or pod.uid != uid:
            raise ActionError(f"restarting {action.gang}: {name} was replaced since it was decided; decide again")
        if not pod.is_ending:
            writes.append(eviction(name, uid, desk.epoch()))
    return writes


def _settle_restart(desk: Desk, action: RestartGang, answer: Answer) -> None:
    if not answer.failed:
        desk.assumed.drop([name for name, _, _ in action.pods])


HANDLERS: Mapping[type[Action], Handler] = {
    Bind: Handler(Account.check_bind, _binding, _begin_bind, _settle_bind),
    Evict: Handler(
        lambda account, evict: account.check_stop(evict.pod, evict.node), _eviction, settle=_settle_eviction
    ),
    Move: Handler(lambda account, move: account.check_stop(move.pod, move.from_node), _no_move),
    ReleaseClaim: Handler(lambda account, release: account.check_release(release.claim), _release),
    RestartGang: Handler(lambda account, restart: account.check_restart(restart), _restart, settle=_settle_restart),
    Scale: Handler(lambda account, scale: account.check_scale(scale.service), _deployments, settle=_settle_scale),
    SetReplicas: Handler(lambda account, action: account.check_set_replicas(action), _resize, settle=_settle_resize),
    Taint: Handler(lambda account, taint: account.check_node(taint.node), _tainting),
    Untaint: Handler(lambda account, untaint: account.check_node(untaint.node), _untainting),
}
"""Handler of each action. Actions without one are refused before anything is written."""


def eviction(name: str, uid: str, epoch: int) -> Write:
    """Eviction of a pod, as by `kubectl drain`: the API server answers 429 if a PodDisruptionBudget forbids it."""
    namespace, _, pod = name.partition("/")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace, "annotations": {EPOCH_ANNOTATION: str(epoch)}},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    return Write("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)


def taint_write(desk: Desk, action: Taint | Untaint, value: str | None, at_s: float) -> Write:
    """Replaces or removes one taint of ours on the node object that is meant, and changes no other.

    The list is replaced as a whole, so the write has the version that it was read at as its precondition. Raises
    ActionError where the node is gone or another of the same name.
    """
    node = desk.sightings.node(action.node)
    if node is None or node.uid != action.uid or action.key not in OUR_TAINTS:
        raise ActionError(f"tainting {action.node}: it was replaced since it was decided; decide again")
    gone = OUR_TAINTS if value is not None else (action.key,)  # quarantine and probation replace each other
    kept = [taint for taint in node.taints if taint["key"] not in gone]
    ours = {"key": action.key, "value": value, "effect": "NoSchedule", "timeAdded": rfc3339(at_s)}
    metadata = {
        "uid": node.uid,
        "resourceVersion": node.version,
        "annotations": {EPOCH_ANNOTATION: str(desk.epoch())},
    }
    body = {"metadata": metadata, "spec": {"taints": kept if value is None else [*kept, ours]}}
    return Write("PATCH", f"/api/v1/nodes/{action.node}", body, MERGE_PATCH)


def resize(action: SetReplicas, epoch: int) -> Write:
    """Change of the replicas through the scale subresource, if it still asks for the number decided on.

    The precondition is that number and not the resourceVersion, which each step of a rollout changes. A scale that asks
    for none has no field `replicas`. The epoch is part of the field manager, because a scale has no annotations.
    """
    target = action.target
    if not target.plural:
        raise ActionError(f"scaling {target}: its API server resource is not known yet")
    namespace, _, name = target.name.partition("/")
    root = "/apis" if "/" in target.api_version else "/api"
    test = ("/spec/replicas", action.was) if action.was else ("/spec", {})
    body = [
        {"op": "test", "path": test[0], "value": test[1]},
        {"op": "add", "path": "/spec/replicas", "value": action.replicas},
    ]
    path = f"{root}/{target.api_version}/namespaces/{namespace}/{target.plural}/{name}/scale"
    return Write("PATCH", path, body, JSON_PATCH, {"fieldManager": f"{EPOCH_MANAGER}{epoch}"})
