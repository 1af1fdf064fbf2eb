"""Lifecycle of a pod on a simulated kubelet: admission, and its status at each step."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any

import msgspec

from controller.api.notation import quantity

PREFIX = "simulated.tonnage.dev/"

ENDED = ("Succeeded", "Failed")


class Resources(msgspec.Struct, frozen=True):
    requests: dict[str, str] = {}


class Container(msgspec.Struct, frozen=True):
    name: str
    image: str = ""
    resources: Resources = Resources()


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class PodClaim(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_claim_name: str | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    restart_policy: str = "Always"
    resource_claims: tuple[PodClaim, ...] = ()


class Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    resource_claim_statuses: tuple[PodClaim, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    """Part of a pod that a simulated kubelet reads."""

    metadata: Metadata
    spec: Spec
    status: Status = Status()

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def is_ended(self) -> bool:
        return self.status.phase in ENDED


@dataclass(frozen=True, slots=True)
class Life:
    """Behaviour of a pod's containers, from annotations of the pod."""

    start_s: float = 0.0
    """Time between binding and Running: image, device and model."""
    run_s: float | None = None
    """Time until its containers exit; None: never."""
    exit_code: int = 0
    stop_s: float = 0.0
    """Time to stop after a deletion; its grace period is the limit."""


class AnnotationError(ValueError):
    """A simulator annotation that is not a number."""


def life_of(annotations: Mapping[str, str]) -> Life:
    """Behaviour from the annotations start-seconds, run-seconds, exit-code and stop-seconds.

    All have the prefix `simulated.tonnage.dev/`. Raises AnnotationError.
    """
    given = {key.removeprefix(PREFIX): text for key, text in annotations.items() if key.startswith(PREFIX)}
    try:
        return Life(
            start_s=float(given.get("start-seconds", 0)),
            run_s=float(given["run-seconds"]) if "run-seconds" in given else None,
            exit_code=int(given.get("exit-code", 0)),
            stop_s=float(given.get("stop-seconds", 0)),
        )
    except ValueError as error:
        raise AnnotationError(f"an annotation {PREFIX}* is not a number: {error}") from error


def is_restarted(pod: Pod, life: Life) -> bool:
    """Whether its containers start again when they exit."""
    return pod.spec.restart_policy == "Always" or (pod.spec.restart_policy == "OnFailure" and life.exit_code != 0)


def demand(pod: Pod) -> dict[str, Decimal]:
    """Amounts that the pod holds of its node: its containers together, or an init container that needs more."""
    total: dict[str, Decimal] = {"pods": Decimal(1)}
    for container in pod.spec.containers:
        for name, amount in container.resources.requests.items():
            total[name] = total.get(name, Decimal(0)) + quantity(amount)
    for container in pod.spec.init_containers:
        for name, amount in container.resources.requests.items():
            total[name] = max(total.get(name, Decimal(0)), quantity(amount))
    return total


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


def refused(pod: Pod, reason: str, message: str) -> dict[str, Any]:
    """Status patch of a refused pod; its containers never ran."""
    return _patch(pod, {"phase": "Failed", "reason": reason, "message": message})


def running(pod: Pod, ip: str, at: str, *, restarts: int = 0) -> dict[str, Any]:
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


def ended(pod: Pod, exit_code: int, at: str, *, restarts: int = 0) -> dict[str, Any]:
    state = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": at}}
    return _patch(
        pod,
        {
            "phase": "Failed" if exit_code else "Succeeded",
            "conditions": [_condition(name, "False", at, "PodCompleted") for name in ("ContainersReady", "Ready")],
            "containerStatuses": _containers(pod, state, restarts, ready=False),
        },
    )


def _patch(pod: Pod, status: dict[str, Any]) -> dict[str, Any]:
    # With the uid, so that a later pod of the same name is left alone (409).
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _condition(kind: str, status: str, at: str, reason: str | None = None) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": at, "reason": reason}


def _containers(pod: Pod, state: dict[str, Any], restarts: int, *, ready: bool) -> list[dict[str, Any]]:
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
