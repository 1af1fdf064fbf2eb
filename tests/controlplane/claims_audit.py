"""The auditor's second book: devices of ResourceClaims, counted again from the API's own objects.

It shares no code with what allocates: slices, claims and reservations are read here by rules of its own.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.controlplane.kubectl import Kubectl

Device = tuple[str, str, str]
"""Driver, pool, device."""


def double_devices(kubectl: Kubectl) -> Iterator[str]:
    """Devices that two claims hold, or that no slice lists."""
    listed = _listed(kubectl)
    given = Counter(device for claim in _claims(kubectl).values() for device in _held(claim, alone=True))
    for device, count in sorted(given.items()):
        if count > 1:
            yield f"{'/'.join(device)}: {count} claims"
        if device not in listed:
            yield f"{'/'.join(device)} is in no slice"


def misplaced_claims(kubectl: Kubectl, bound: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Bound pods whose claims are not allocated, not theirs, of another size than asked, or on another node."""
    claims, node_of = _claims(kubectl), _listed(kubectl)
    for pod in bound:
        meta = pod["metadata"]
        for name in claim_names(pod):
            what, claim = f"{meta['namespace']}/{meta['name']}: {name}", claims.get((meta["namespace"], name))
            if claim is None:
                yield f"{what} is not there"
                continue
            held, status = _held(claim), claim.get("status", {})
            if len(held) != len(set(held)) or len(held) != _asked(claim):
                yield f"{what} asks for {_asked(claim)} and holds {held}"
            if any(node_of.get(device) != pod["spec"]["nodeName"] for device in held):
                yield f"{what} holds {held}, which are not on {pod['spec']['nodeName']}"
            if meta["uid"] not in [consumer["uid"] for consumer in status.get("reservedFor", [])]:
                yield f"{what} is not reserved for it"


def asked_by_claims(kubectl: Kubectl, bound: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Uid of a pod → how many devices its claims ask for."""
    claims = _claims(kubectl)
    return {
        pod["metadata"]["uid"]: sum(
            _asked(claims[pod["metadata"]["namespace"], name])
            for name in claim_names(pod)
            if (pod["metadata"]["namespace"], name) in claims
        )
        for pod in bound
    }


def claim_names(pod: Mapping[str, Any]) -> list[str]:
    made = {e["name"]: e.get("resourceClaimName") for e in pod["status"].get("resourceClaimStatuses") or []}
    used = pod["spec"].get("resourceClaims") or []
    return [name for each in used if (name := each.get("resourceClaimName") or made.get(each["name"]))]


def _claims(kubectl: Kubectl) -> dict[tuple[str, str], Mapping[str, Any]]:
    found = kubectl.get("resourceclaims", "--all-namespaces")["items"]
    return {(claim["metadata"]["namespace"], claim["metadata"]["name"]): claim for claim in found}


def _listed(kubectl: Kubectl) -> dict[Device, str]:
    """Every device, and its node."""
    return {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"]): each["spec"]["nodeName"]
        for each in kubectl.get("resourceslices")["items"]
        for device in each["spec"].get("devices") or []
    }


def _held(claim: Mapping[str, Any], *, alone: bool = False) -> list[Device]:
    """alone: only those that it holds beside nobody."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    held = [each for each in results if not each.get("adminAccess") and not (alone and "shareID" in each)]
    return [(each["driver"], each["pool"], each["device"]) for each in held]


def _asked(claim: Mapping[str, Any]) -> int:
    """Of requests for exact counts, as these tests have them."""
    return sum(int(request["exactly"].get("count", 1)) for request in claim["spec"]["devices"]["requests"])
