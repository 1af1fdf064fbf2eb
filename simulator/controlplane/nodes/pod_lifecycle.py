"""Lifecycle of a pod on a simulated kubelet: admission, and its status at each step."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

import msgspec

from cluster.neighbours import ANY_ADDRESS
from cluster.nodes import NODE_NAME_FIELD, NodeTaint, meets, tolerates
from cluster.workloads import HostPort
from controller.api.structs import Container, Meta, Pod, PodMeta, PodSpec, PodStatus, Slim
from controller.dra.objects import DeviceId, ResourceClaim
from controller.dra.watched import Use, claim_uses
from controller.snapshot.nodes import terms_of, tolerations_of
from controller.snapshot.pod_rules import host_ports
from controller.snapshot.pods import requested
from simulator.controlplane.nodes.client import InsistentClient

PREFIX = "simulated.tonnage.dev/"

ENDED = ("Succeeded", "Failed")


class KubeletContainer(Container, frozen=True):
    image: str = ""


class KubeletMeta(Meta, frozen=True):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_grace_period_seconds: int | None = None


class KubeletSpec(PodSpec, frozen=True):
    containers: tuple[KubeletContainer, ...] = ()
    restart_policy: str = "Always"


class KubeletPod(Slim, frozen=True):
    """Part of a pod that a simulated kubelet reads."""

    metadata: KubeletMeta
    spec: KubeletSpec
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def is_ended(self) -> bool:
        return self.status.phase in ENDED

    @property
    def claims(self) -> tuple[Use, ...]:
        """ResourceClaims that it uses; the name of one is empty until it is generated from its template."""
        return claim_uses(self.metadata.namespace, self.spec.resource_claims, self.status)


class Life(msgspec.Struct, frozen=True):
    """Behaviour of a pod's containers, from annotations of the pod."""

    start_s: float = msgspec.field(default=0.0, name="start-seconds")
    """Time between binding and Running: image, device and model."""
    run_s: float | None = msgspec.field(default=None, name="run-seconds")
    """Time until its containers exit; None: never."""
    exit_code: int = msgspec.field(default=0, name="exit-code")
    stop_s: float = msgspec.field(default=0.0, name="stop-seconds")
    """Time to stop after a deletion; its grace period is the limit."""


class AnnotationError(ValueError):
    """A simulator annotation that is not a number."""


def life_of(annotations: Mapping[str, str]) -> Life:
    """Behaviour from the annotations start-seconds, run-seconds, exit-code and stop-seconds.

    All have the prefix `simulated.tonnage.dev/`. Raises AnnotationError.
    """
    given = {key.removeprefix(PREFIX): text for key, text in annotations.items() if key.startswith(PREFIX)}
    try:
        return msgspec.convert(given, Life, strict=False)
    except msgspec.ValidationError as error:
        raise AnnotationError(f"an annotation {PREFIX}* is not a number: {error}: {given}") from error


def is_restarted(pod: KubeletPod, life: Life) -> bool:
    """Whether its containers start again when they exit."""
    return pod.spec.restart_policy == "Always" or (pod.spec.restart_policy == "OnFailure" and life.exit_code != 0)


def demand(pod: KubeletPod) -> dict[str, Decimal]:
    """Amounts that the pod holds of its node."""
    return {"pods": Decimal(1)} | requested(Pod(PodMeta(pod.metadata.name), pod.spec))


def misfit(
    pod: KubeletPod, labels: Mapping[str, str], taints: Iterable[NodeTaint], taken: Iterable[HostPort]
) -> tuple[str, str] | None:
    """Reason and message with which a kubelet refuses a pod that its node does not suit; None where it does.

    taken: host ports of the pods that the node has. Source: the kubelet's admission, which asks the filters
    NodeAffinity and NodePorts of kube-scheduler, and refuses what does not tolerate a taint NoExecute.
    """
    terms, _ = terms_of(pod.spec)
    own = {**labels, NODE_NAME_FIELD: pod.spec.node_name}
    if terms and not any(all(meets(own, each) for each in term) for term in terms):
        return "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    addresses: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for port in taken:
        addresses[port.port, port.protocol].add(port.address)
    for port in host_ports(pod.spec):
        there = addresses[port.port, port.protocol]
        if port.address in there or ANY_ADDRESS in there or (there and port.address == ANY_ADDRESS):
            return "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    is_tolerated = tolerates(tolerations_of(pod.spec)[0])
    if not all(is_tolerated(taint) for taint in taints if taint.effect == "NoExecute"):
        return "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    return None


def refusal(wants: Mapping[str, Decimal], free: Mapping[str, Decimal]) -> tuple[str, str] | None:
    """Reason and message with which a kubelet refuses a pod for lack of resources; None where they suffice.

    The API server checks nothing on a Binding: a scheduler's double allocation shows here. Reasons are those of the
    real kubelet.
    """
    for name, amount in sorted(wants.items(), key=lambda item: "/" not in item[0]):
        left = free.get(name, Decimal(0))
        if amount > left and "/" in name:
            lack = f"Requested: {amount}, Available: {left}"
            words = f"Allocate failed due to requested number of devices unavailable for {name}. {lack}"
            return "UnexpectedAdmissionError", f"{words}, which is unexpected"
        if amount > left:
            return f"OutOf{name}", f"Node didn't have enough resource: {name}, requested: {amount}, free: {left}"
    return None


def refused(pod: KubeletPod, reason: str, message: str) -> dict[str, Any]:
    """Status patch of a refused pod; its containers never ran."""
    return _patch(pod, {"phase": "Failed", "reason": reason, "message": message})


def running(pod: KubeletPod, ip: str, at: str, *, restarts: int = 0) -> dict[str, Any]:
    state = {"running": {"startedAt": at}}
    conditions = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    return _patch(
        pod,
        {
            "phase": "Running",
            "startTime": at,
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [_condition(name, "True", at) for name in conditions],
            "containerStatuses": _containers(pod, state, restarts, ready=True),
        },
    )


def ended(pod: KubeletPod, exit_code: int, at: str, *, restarts: int = 0) -> dict[str, Any]:
    state = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": at}}
    return _patch(
        pod,
        {
            "phase": "Failed" if exit_code else "Succeeded",
            "conditions": [_condition(name, "False", at, "PodCompleted") for name in ("ContainersReady", "Ready")],
            "containerStatuses": _containers(pod, state, restarts, ready=False),
        },
    )


def _patch(pod: KubeletPod, status: dict[str, Any]) -> dict[str, Any]:
    # With the uid, so that a later pod of the same name is left alone (409).
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _condition(kind: str, status: str, at: str, reason: str | None = None) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": at, "reason": reason}


def _containers(pod: KubeletPod, state: dict[str, Any], restarts: int, *, ready: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": container.name,
            "image": container.image,
            "imageID": "",
            # Of the form that runtimes give: 64 hexadecimal digits.
            "containerID": f"simulated://{sha256(f'{pod.metadata.uid}-{container.name}'.encode()).hexdigest()}",
            "ready": ready,
            "started": ready,
            "restartCount": restarts,
            "state": state,
        }
        for container in pod.spec.containers
    ]


def now() -> str:
    """This instant in the API's format, in microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class PreparedClaims:
    """Devices with which pods of simulated nodes were started.

    A device that two claims hold is prepared for the first alone. The pod of the second never starts, as with a driver
    that checks.
    """

    def __init__(self, client: InsistentClient) -> None:
        self._client = client
        self._claim_of: dict[DeviceId, str] = {}
        """Device → uid of the claim that it was prepared for."""
        self._pods_of: dict[str, set[str]] = {}
        """Uid of a claim → uids of the pods that run with it."""

    async def prepare(self, pod: KubeletPod) -> bool:
        """Whether the pod may start: every claim exists, is allocated and reserved for it, and its devices are free."""
        found, wanted = [], dict[DeviceId, str]()
        for use in pod.claims:
            namespace, _, name = use.claim.partition("/")
            path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
            answer = await self._client.insist("GET", path) if name else None
            if answer is None or not answer.is_ok:
                return False
            claim = msgspec.json.decode(answer.body, type=ResourceClaim)
            if not claim.is_allocated or not claim.is_reserved_for(pod.metadata.uid):
                return False
            found.append(claim.metadata.uid)
            wanted |= dict.fromkeys(claim.held, claim.metadata.uid)
        if any(self._claim_of.get(device, uid) != uid for device, uid in wanted.items()):
            return False
        self._claim_of |= wanted
        for uid in found:
            self._pods_of.setdefault(uid, set()).add(pod.metadata.uid)
        return True

    def release(self, pod_uid: str) -> None:
        """Releases a pod whose containers are gone; a claim without other running pods frees its devices."""
        for uid in [uid for uid, pods in self._pods_of.items() if pod_uid in pods]:
            self._pods_of[uid].discard(pod_uid)
            if not self._pods_of[uid]:
                del self._pods_of[uid]
                self._claim_of = {name: claim for name, claim in self._claim_of.items() if claim != uid}
