"""Writes that allocate exact devices to a claim, and the ones that deallocate them."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cluster.errors import ActionError
from controller.api.labels import EPOCH_ANNOTATION
from controller.dra.objects import API, FINALIZER, MAX_RESERVATIONS, DeviceClass, ResourceClaim
from controller.dra.room import Given
from controller.kube.cluster_view import SeenPod
from controller.kube.request import MERGE_PATCH
from controller.kube.sender import Stamp, Write


def allocated_status(
    claim: ResourceClaim,
    given: Sequence[Given],
    node: str,
    pod: SeenPod,
    stamp: Stamp,
    classes: Mapping[str, DeviceClass],
) -> dict[str, Any]:
    """Status of a claim with these devices and the reservation for a pod."""
    devices: dict[str, Any] = {"results": [_result(each, claim, stamp) for each in given]}
    # Configuration for the drivers: that of each class, then the claim's own, which takes precedence.
    by_class: dict[str, dict[str, None]] = {}
    for each in given:
        by_class.setdefault(each.request.class_name, {})[each.request.name] = None
    config = [
        {"source": "FromClass", "requests": [*served], **msgspec.json.decode(raw)}
        for name, served in by_class.items()
        for raw in (classes[name].spec.config if name in classes else ())
    ]
    config += [{"source": "FromClaim", **msgspec.json.decode(raw)} for raw in claim.spec.devices.config]
    if config:
        devices["config"] = config
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    allocation = {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    return {"allocation": allocation, "reservedFor": [_consumer(pod)]}


def allocation_writes(claim: ResourceClaim, status: Mapping[str, Any], stamp: Stamp) -> list[Write]:
    """Two writes: the finalizer that keeps an allocated claim from being deleted, then devices and reservation.

    The API server refuses to change an existing allocation.
    """
    finalizers = list(dict.fromkeys((*claim.metadata.finalizers, FINALIZER)))
    return _status_writes(claim, status, stamp.annotations, {"finalizers": finalizers})


def reservation_writes(claim: ResourceClaim, pod: SeenPod, stamp: Stamp) -> list[Write]:
    """Writes that add a pod to an allocated claim. Raises ActionError when the claim has the maximum number of pods."""
    there = claim.status.reserved_for
    if len(there) >= MAX_RESERVATIONS:
        raise ActionError(f"reserving {claim.name} for {pod.name}: it already serves {len(there)} pods, the maximum")
    consumers = [{k: v for k, v in msgspec.to_builtins(each).items() if v} for each in there]
    return _status_writes(claim, {"reservedFor": [*consumers, _consumer(pod)]}, stamp.annotations)


def deallocation_writes(claim: ResourceClaim, epoch: int) -> list[Write]:
    """Writes that deallocate a claim. Its finalizer stays until the claim is deleted or allocated again."""
    return _status_writes(claim, {"allocation": None, "reservedFor": None}, {EPOCH_ANNOTATION: str(epoch)})


def _status_writes(
    claim: ResourceClaim,
    status: Mapping[str, Any],
    annotations: Mapping[str, str],
    also: Mapping[str, Any] | None = None,
) -> list[Write]:
    """Two writes: annotations with the Lease epoch (and the metadata in `also`), then the status.

    A write of the status leaves annotations unchanged, and the API server compares the epoch in the annotation with the
    Lease's (fence.yaml). So a status from an earlier leader is refused, whichever leader wrote the annotation last.
    Preconditions: the first write names the claim as observed (uid, resourceVersion), the second the version that the
    first produced.
    """
    uid, version = claim.metadata.uid, claim.metadata.resource_version
    marked = {"uid": uid, "resourceVersion": version, "annotations": annotations, **(also or {})}
    body = {"metadata": {"uid": uid}, "status": status}
    path = f"{API}/namespaces/{claim.metadata.namespace}/resourceclaims/{claim.metadata.name}"
    return [
        Write("PATCH", path, {"metadata": marked}, MERGE_PATCH),
        Write("PATCH", f"{path}/status", body, MERGE_PATCH, on_version_of_answer=True),
    ]


def _result(given: Given, claim: ResourceClaim, stamp: Stamp) -> dict[str, Any]:
    """One device, with the tolerations that keep it from being taken back for its taints."""
    request, device = given.request, given.listed.id
    made: dict[str, Any] = {
        "request": request.name,
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
    }
    if request.tolerations:
        made["tolerations"] = [msgspec.to_builtins(each) for each in request.tolerations]
    if given.consumed is not None:
        # Unique to this allocation, and the same when it is written again.
        share = f"{claim.metadata.uid} {request.name} {device} {stamp.at_s}"
        made["shareID"] = str(uuid.uuid5(uuid.NAMESPACE_OID, share))
        made["consumedCapacity"] = {name: format(amount, "f") for name, amount in given.consumed.items()}
    return made


def _consumer(pod: SeenPod) -> dict[str, str]:
    return {"resource": "pods", "name": pod.name.partition("/")[2], "uid": pod.uid}
