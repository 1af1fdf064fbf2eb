"""Claims, volumes, storage classes and CSI nodes, stating only what matters."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.api.storage import CsiNode, StorageClass, VolumeClaimObject, VolumeObject
from controller.api.structs import Volume, object_from
from controller.snapshot.volumes import VolumeIndex
from tests.builders.watch_events import Object

StorageObject = VolumeClaimObject | VolumeObject | StorageClass | CsiNode


def claim(
    name: str = "data", *, on: str = "", phase: str = "Pending", size: str = "10Gi", **more: Any
) -> VolumeClaimObject:
    """Claim of `default`; on: the volume that it is bound to. more: fields of spec, `metadata`, `annotations`."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if on and phase == "Bound" else {}
    annotations |= more.pop("annotations", {})
    return object_from(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations, **more.pop("metadata", {})},
            "spec": {
                **({"volumeName": on} if on else {}),
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                **more,
            },
            "status": {"phase": phase},
        },
        VolumeClaimObject,
    )


def bound(name: str = "data", *, on: str = "pv", **more: Any) -> VolumeClaimObject:
    return claim(name, on=on, phase="Bound", **more)


def volume(
    name: str = "pv",
    *,
    nodes: Any = None,
    labels: Any = None,
    phase: str = "Available",
    size: str = "10Gi",
    **more: Any,
) -> VolumeObject:
    """Volume; nodes: {label: values} that a node must have, or a list of those of which it must have one."""
    ways = [nodes] if isinstance(nodes, dict) else nodes
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": values} for key, values in way.items()]}
        for way in ways or ()
    ]
    affinity = {} if nodes is None else {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    metadata = {"name": name, "labels": labels or {}, **more.pop("metadata", {})}
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, **affinity, **more}
    return object_from({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, VolumeObject)


def storage_class(name: str = "local", *, waits: bool = True, **more: Any) -> StorageClass:
    """Class that provisions nothing unless `provisioner` says so."""
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    annotations = more.pop("annotations", {})
    content = {
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": mode,
        **more,
    }
    return object_from(content, StorageClass)


def csi_node(name: str, **limits: int | None) -> CsiNode:
    """Node on which drivers (`ebs` for ebs.csi.aws.com) have these limits."""
    drivers = [
        {"name": f"{driver}.csi.aws.com", **({} if count is None else {"allocatable": {"count": count}})}
        for driver, count in limits.items()
    ]
    return object_from({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CsiNode)


def uses(*claims: str) -> tuple[Volume, ...]:
    """Volumes of a pod that uses these claims."""
    return tuple(
        object_from({"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}}, Volume)
        for n, name in enumerate(claims)
    )


def index_of(*objects: StorageObject) -> VolumeIndex:
    index = VolumeIndex()
    for each in objects:
        if isinstance(each, VolumeClaimObject):
            index.put_claim(each.name, each)
        elif isinstance(each, VolumeObject):
            index.put_volume(each.metadata.name, each)
        elif isinstance(each, StorageClass):
            index.put_storage_class(each.metadata.name, each)
        else:
            index.put_csi_node(each.metadata.name, each)
    return index


def written(obj: StorageObject) -> Object:
    """The object as a manifest."""
    version, kind = _KINDS[type(obj)]
    return {"apiVersion": version, "kind": kind, **msgspec.to_builtins(obj)}


_KINDS: Mapping[type[StorageObject], tuple[str, str]] = {
    VolumeClaimObject: ("v1", "PersistentVolumeClaim"),
    VolumeObject: ("v1", "PersistentVolume"),
    StorageClass: ("storage.k8s.io/v1", "StorageClass"),
    CsiNode: ("storage.k8s.io/v1", "CSINode"),
}
