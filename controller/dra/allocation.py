"""The writes that give exact devices to a claim, and the one that takes them back."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from cluster.errors import ActionError
from controller.api.labels import EPOCH_ANNOTATION
from controller.dra.inventory import Inventory, Listed
from controller.dra.objects import API, FINALIZER, MAX_RESERVATIONS, DeviceClass, DeviceId, ResourceClaim
from controller.dra.requests import Ask, Request, matches
from controller.dra.undecided import SelectorError
from controller.kube.cluster_view import SeenPod
from controller.kube.request import MERGE_PATCH
from controller.kube.stamp import Stamp
from controller.kube.write import Write


def path_of(claim: ResourceClaim) -> str:
    return f"{API}/namespaces/{claim.metadata.namespace}/resourceclaims/{claim.metadata.name}"


def chosen(
    ask: Ask, inventory: Inventory, numbers: Sequence[int], held: Collection[DeviceId]
) -> list[tuple[Request, Listed]]:
    """Which device serves which request of a claim.

    numbers: as many devices of the node as the claim asks for. held: those that claims hold now.
    Raises ActionError when one of them is not there, is held, or is not what the request asks for: the picture that
    was planned on has changed.
    """
    left, given = list(numbers), []
    for request in ask.requests:
        count = len(inventory.devices) if request.count is None else request.count
        for _ in range(count):
            if not left:
                raise ActionError(f"allocating devices: {len(numbers)} were chosen, and the claim asks for more")
            given.append((request, _device(inventory, left.pop(0), request, held)))
    return given


def _device(inventory: Inventory, number: int, request: Request, held: Collection[DeviceId]) -> Listed:
    if not 0 <= number < len(inventory.devices):
        raise ActionError(f"allocating device {number}: the node has {len(inventory.devices)} devices")
    listed = inventory.devices[number]
    if listed.withheld:
        raise ActionError(f"allocating {listed.id}: {listed.withheld}")
    if listed.id in held:
        raise ActionError(f"allocating {listed.id}: a claim holds it already")
    try:
        if matches(request, listed):
            return listed
    except SelectorError as error:
        raise ActionError(f"allocating {listed.id} for request {request.name!r}: {error}") from error
    raise ActionError(f"allocating {listed.id}: it is not what request {request.name!r} asks for")


def allocation_writes(
    claim: ResourceClaim,
    given: Sequence[tuple[Request, Listed]],
    node: str,
    pod: SeenPod,
    stamp: Stamp,
    classes: Mapping[str, DeviceClass],
) -> list[Write]:
    """The finalizer that keeps an allocated claim from vanishing, then devices and reservation: two writes.

    The API server itself refuses to change an allocation that is there.
    """
    results = [{"request": r.name, "driver": d.id.driver, "pool": d.id.pool, "device": d.id.device} for r, d in given]
    devices = {"results": results}
    config = _config(claim, [request for request, _ in given], classes)
    if config:
        devices["config"] = config
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    allocation = {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    finalizers = list(dict.fromkeys((*claim.metadata.finalizers, FINALIZER)))
    status = {"allocation": allocation, "reservedFor": [_consumer(pod)]}
    return _status_writes(claim, status, stamp.annotations, {"finalizers": finalizers})


def reservation_writes(claim: ResourceClaim, pod: SeenPod, stamp: Stamp) -> list[Write]:
    """One more pod for a claim that is allocated. Raises ActionError when it has as many as it may."""
    there = claim.status.reserved_for
    if len(there) >= MAX_RESERVATIONS:
        raise ActionError(f"reserving {claim.name} for {pod.name}: it serves {len(there)} pods, more are not allowed")
    consumers = [{k: v for k, v in msgspec.to_builtins(each).items() if v} for each in there]
    return _status_writes(claim, {"reservedFor": [*consumers, _consumer(pod)]}, stamp.annotations)


def deallocation_writes(claim: ResourceClaim, epoch: int) -> list[Write]:
    """Takes the devices of a claim back; its finalizer goes when the claim is deleted or allocated anew."""
    return _status_writes(claim, {"allocation": None, "reservedFor": None}, {EPOCH_ANNOTATION: str(epoch)})


def _status_writes(
    claim: ResourceClaim,
    status: Mapping[str, Any],
    annotations: Mapping[str, str],
    also: Mapping[str, Any] | None = None,
) -> list[Write]:
    """Two writes: annotations with the Lease's epoch (and what `also` sets in the metadata), then the status.

    The API server keeps annotations as they are when a status is written, and compares the epoch that then stands there
    with the Lease's (deploy/fence): so a status of a leader that has been succeeded is refused, whichever of the two
    leaders marked the claim last. Preconditions: the first names the claim as it was seen (uid, resourceVersion), the
    second the version that the first made.
    """
    uid, version = claim.metadata.uid, claim.metadata.resource_version
    marked = {"uid": uid, "resourceVersion": version, "annotations": annotations, **(also or {})}
    body = {"metadata": {"uid": uid}, "status": status}
    return [
        Write("PATCH", path_of(claim), {"metadata": marked}, MERGE_PATCH),
        Write("PATCH", f"{path_of(claim)}/status", body, MERGE_PATCH, on_version_of_answer=True),
    ]


def _consumer(pod: SeenPod) -> dict[str, str]:
    return {"resource": "pods", "name": pod.name.partition("/")[2], "uid": pod.uid}


def _config(
    claim: ResourceClaim, requests: Sequence[Request], classes: Mapping[str, DeviceClass]
) -> list[dict[str, Any]]:
    """What the drivers are told: the configuration of each class, then the claim's own, which goes before it."""
    by_class: dict[str, list[str]] = {}
    for request in requests:
        names = by_class.setdefault(request.class_name, [])
        if request.name not in names:
            names.append(request.name)
    config: list[dict[str, Any]] = []
    for name, served in by_class.items():
        told = classes[name].spec.config if name in classes else ()
        config += [{"source": "FromClass", "requests": served, **msgspec.json.decode(raw)} for raw in told]
    return config + [{"source": "FromClaim", **msgspec.json.decode(raw)} for raw in claim.spec.devices.config]
