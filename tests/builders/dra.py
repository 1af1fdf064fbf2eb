"""Builders of slices, claims and classes for tests: they state only what matters."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from controller.api.structs import Node, Pod, object_from
from controller.dra.objects import DeviceClass, ResourceClaim, ResourceSlice
from controller.dra.translation import ClaimTranslation

DRIVER = "gpu.nvidia.com"
DRIVERS = {DRIVER: "nvidia.com/gpu"}


def device(name: str, *, product: str = "H100", memory: str = "80Gi", **more: Any) -> dict[str, Any]:
    attributes = {"type": {"string": "gpu"}, "productName": {"string": product}, **more.pop("attributes", {})}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **more}


def devices(count: int, **of: Any) -> list[dict[str, Any]]:
    return [device(f"gpu-{n}", **of) for n in range(count)]


def slice_on(
    node: str, listed: Iterable[Mapping[str, Any]], *, name: str = "", generation: int = 1, of: int = 1
) -> ResourceSlice:
    pool = {"name": node, "generation": generation, "resourceSliceCount": of}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": list(listed)}
    return object_from({"metadata": {"name": name or f"{node}-slice"}, "spec": spec}, ResourceSlice)


def device_class(*expressions: str, name: str = DRIVER, config: Iterable[Any] = ()) -> DeviceClass:
    spec = {"selectors": [{"cel": {"expression": each}} for each in expressions], "config": list(config)}
    return decoded({"metadata": {"name": name}, "spec": spec}, DeviceClass)


def request(count: int = 1, name: str = "gpus", *expressions: str, **more: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"name": name, "exactly": {"deviceClassName": DRIVER, "count": count, "selectors": selectors, **more}}


def claim(
    name: str,
    *requests: Mapping[str, Any],
    on: tuple[str, tuple[str, ...]] | None = None,
    reserved_for: Iterable[str] = (),
    owner: str = "",
    epoch: str = "",
    **devices_of_spec: Any,
) -> ResourceClaim:
    """on: node and devices that it holds. reserved_for: names of pods; the uid of pod `p` is `uid-p`."""
    status: dict[str, Any] = {}
    if on is not None:
        node, held = on
        results = [{"request": "gpus", "driver": DRIVER, "pool": node, "device": each} for each in held]
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
        status = {
            "allocation": {"devices": {"results": results}, "nodeSelector": selector},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in reserved_for],
        }
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "annotations": {"tonnage.dev/epoch": epoch} if epoch else {},
        "ownerReferences": [{"uid": f"uid-{owner}", "kind": "Pod", "controller": True}] if owner else [],
    }
    spec = {"devices": {"requests": list(requests) or [request()], **devices_of_spec}}
    return decoded({"metadata": meta, "spec": spec, "status": status}, ResourceClaim)


def node(name: str, labels: Mapping[str, str] | None = None, **has: str) -> Node:
    status = {"allocatable": {"cpu": "64", "memory": "512Gi", **has}}
    return object_from({"metadata": {"name": name, "labels": dict(labels or {})}, "status": status}, Node)


def pod(name: str, *claims: str, on: str = "", annotations: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    """Of namespace `ns`, with these claims."""
    used = [{"name": f"c{n}", "resourceClaimName": each} for n, each in enumerate(claims)]
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": dict(annotations or {})}
    rest = {"schedulerName": "tonnage", "nodeName": on, "resourceClaims": used, **spec}
    return object_from({"metadata": meta, "spec": rest}, Pod)


def decoded(content: Mapping[str, Any], kind: Any) -> Any:
    """As a watch would: what is kept raw stays bytes."""
    return msgspec.json.decode(msgspec.json.encode(content), type=kind)


def book(*known: Node | Pod | ResourceSlice | ResourceClaim | DeviceClass, classes: bool = True) -> ClaimTranslation:
    """That has seen all these, of a cluster whose nodes are all Tonnage's."""
    made = ClaimTranslation(DRIVERS, lambda _: True)
    if classes:
        made.known.put_class(DRIVER, device_class(f"device.driver == '{DRIVER}'"))
    see(made, *known)
    return made


def see(into: ClaimTranslation, *known: Node | Pod | ResourceSlice | ResourceClaim | DeviceClass) -> None:
    for each in known:
        name = each.metadata.name
        match each:
            case Node():
                into.known.put_node(name, each)
            case Pod():
                into.known.put_pod(f"{each.metadata.namespace}/{name}", each)
            case ResourceSlice():
                into.known.put_slice(name, each)
            case ResourceClaim():
                into.known.put_claim(f"{each.metadata.namespace}/{name}", each)
            case DeviceClass():
                into.known.put_class(name, each)
