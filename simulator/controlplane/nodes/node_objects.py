"""Node objects of simulated nodes, from a generated fleet or from manifests, and the ResourceSlices of their GPUs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, Mistake
from controller.objects.documents import read_documents
from simulator.openb.generator import generate, node_name

SIMULATED = "simulated.tonnage.dev/node"
"""Label of every simulated node: a selector separates them from real ones, and the simulator finds its own again."""

PRODUCT = "nvidia.com/gpu.product"

RACK, NODES_PER_RACK = "simulated.tonnage.dev/rack", 16
ZONE, ZONES = "topology.kubernetes.io/zone", ("a", "b", "c")

DRA_DRIVER = "simulated.tonnage.dev/dra-driver"
"""Annotation of a simulated node: the driver that publishes its GPUs in a ResourceSlice, for claims to choose from,
instead of counting them in its capacity."""

PODS_PER_NODE = 110
"""The kubelet's own default."""

Node = Mapping[str, Any]
GPU = "nvidia.com/gpu"


def generated_nodes(count: int, seed: int, dra_driver: str = "") -> list[Node]:
    """Nodes of a generated fleet: kinds in random order, in racks of 16 and three zones.

    dra_driver: publishes their GPUs in ResourceSlices; empty: they are counted as `nvidia.com/gpu`.
    """
    annotations = {DRA_DRIVER: dra_driver} if dra_driver else {}
    nodes = []
    for number, kind in enumerate(generate(count, seed=seed).nodes):
        rack = number // NODES_PER_RACK
        labels = {
            PRODUCT: kind.model,
            "nvidia.com/gpu.count": str(kind.gpus),
            RACK: f"rack-{rack:03d}",
            ZONE: ZONES[rack % len(ZONES)],
        }
        has = {"cpu": str(kind.cpu_cores), "memory": f"{kind.memory_gib}Gi", GPU: str(kind.gpus)}
        nodes.append(node_object(node_name(number), labels, has, annotations=annotations))
    return nodes


def nodes_in(manifests: Path) -> list[Node]:
    """Nodes in a file of manifests. Raises ConfigError."""
    read = read_documents([str(manifests)])
    nodes, mistakes = [], list(read.mistakes)
    for document in read.documents:
        content = document.content if isinstance(document.content, dict) else {}
        if content.get("kind") != "Node":
            continue
        metadata, found = content.get("metadata") or {}, (content.get("status") or {}).get("allocatable")
        if not metadata.get("name") or not found:
            mistakes.append(Mistake(document.place(), "has no metadata.name or no status.allocatable"))
            continue
        allocatable = {name: str(amount) for name, amount in found.items()}
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        spec = content.get("spec") or {}
        nodes.append(node_object(metadata["name"], labels, allocatable, spec, annotations=annotations))
    if not nodes and not mistakes:
        mistakes = [Mistake(str(manifests), "has no manifest of kind Node", "see examples/nodes.yaml")]
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return nodes


def node_object(
    name: str,
    labels: Mapping[str, str],
    allocatable: Mapping[str, str],
    spec: Mapping[str, Any] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
) -> Node:
    """Node object with the fields that every kubelet reports."""
    own = {
        SIMULATED: "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    has = {"pods": str(PODS_PER_NODE)} | dict(allocatable)
    # Placeholder values: every field is required, and none describes a real machine.
    fields = "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion kubeProxyVersion"
    info = dict.fromkeys(fields.split(), "simulated") | {"operatingSystem": "linux", "architecture": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": own | dict(labels), "annotations": dict(annotations or {})},
        "spec": dict(spec or {}),
        "status": {
            "capacity": has,
            "allocatable": has,
            "nodeInfo": info | {"machineID": name},
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def ready_conditions(at: str) -> Sequence[dict[str, str]]:
    """Conditions of a healthy kubelet, at an instant in the API's format."""
    times = {"lastHeartbeatTime": at, "lastTransitionTime": at}
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    healthy = [{"type": kind, "status": "False", "reason": "KubeletHasNo" + kind} for kind in pressures]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
    return [condition | times for condition in (*healthy, ready)]


def driver_of(node: Node) -> str:
    """Driver that publishes the node's GPUs; empty: they are counted in its capacity."""
    driver: str = node["metadata"].get("annotations", {}).get(DRA_DRIVER, "")
    return driver


def as_registered(node: Node) -> Node:
    """Node as its kubelet registers it: without the GPUs that a driver publishes."""
    if not driver_of(node):
        return node
    status = node["status"]
    counted = {part: {k: v for k, v in status[part].items() if k != GPU} for part in ("capacity", "allocatable")}
    return {**node, "status": {**status, **counted}}


def slice_of(node: Node, uid: str) -> Mapping[str, Any]:
    """One slice with all GPUs of the node.

    uid: of the Node object; the slice is removed with it, like those of real drivers.
    """
    name, driver = node["metadata"]["name"], driver_of(node)
    product = node["metadata"]["labels"].get(PRODUCT, "simulated")
    devices = []
    for number in range(int(node["status"]["allocatable"].get(GPU, 0))):
        uuid = f"GPU-{name}-{number}"
        attributes = {"type": {"string": "gpu"}, "productName": {"string": product}, "uuid": {"string": uuid}}
        devices.append({"name": f"gpu-{number}", "attributes": attributes})
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{driver}", "ownerReferences": [owner]},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def class_of(driver: str) -> Mapping[str, Any]:
    """DeviceClass of a driver's chart: its whole GPUs."""
    expression = f"device.driver == '{driver}' && device.attributes['{driver}'].type == 'gpu'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
