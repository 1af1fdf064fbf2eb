"""Node objects for simulated nodes, from a generated fleet or from manifests."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import ConfigError, Mistake
from simulator.openb.generator import NodeKind, generate, node_name

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


def generated_nodes(count: int, seed: int, dra_driver: str = "") -> list[Node]:
    """Nodes of a generated fleet: kinds in random order, in racks of 16 and three zones.

    dra_driver: publishes their GPUs in ResourceSlices; empty: they are counted as `nvidia.com/gpu`.
    """
    annotations = {DRA_DRIVER: dra_driver} if dra_driver else {}
    return [_generated(number, kind, annotations) for number, kind in enumerate(generate(count, seed=seed).nodes)]


def _generated(number: int, kind: NodeKind, annotations: Mapping[str, str]) -> Node:
    rack = number // NODES_PER_RACK
    labels = {
        PRODUCT: kind.model,
        "nvidia.com/gpu.count": str(kind.gpus),
        RACK: f"rack-{rack:03d}",
        ZONE: ZONES[rack % len(ZONES)],
    }
    has = {"cpu": str(kind.cpu_cores), "memory": f"{kind.memory_gib}Gi", "nvidia.com/gpu": str(kind.gpus)}
    return node_object(node_name(number), labels, has, annotations=annotations)


def nodes_in(manifests: Path) -> list[Node]:
    """Nodes in a file of manifests. Raises ConfigError."""
    try:
        documents = list(yaml.safe_load_all(manifests.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(Mistake(str(manifests), f"cannot be read: {' '.join(str(error).split())}")) from error
    found = [item for item in _items(documents) if isinstance(item, dict) and item.get("kind") == "Node"]
    if not found:
        raise ConfigError(Mistake(str(manifests), "has no manifest of kind Node", "see examples/nodes.yaml"))
    mistakes = [
        Mistake(f"{manifests}, Node {number}", "has no metadata.name or no status.allocatable")
        for number, node in enumerate(found, 1)
        if not node.get("metadata", {}).get("name") or not node.get("status", {}).get("allocatable")
    ]
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return [_from_manifest(node) for node in found]


def _items(documents: Iterable[Any]) -> Iterable[Any]:
    for document in documents:
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
            yield from document.get("items") or ()
        else:
            yield document


def _from_manifest(node: dict[str, Any]) -> Node:
    metadata, spec = node["metadata"], node.get("spec") or {}
    allocatable = {name: str(amount) for name, amount in node["status"]["allocatable"].items()}
    annotations = metadata.get("annotations") or {}
    return node_object(metadata["name"], metadata.get("labels") or {}, allocatable, spec, annotations=annotations)


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
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": own | dict(labels), "annotations": dict(annotations or {})},
        "spec": dict(spec or {}),
        "status": {
            "capacity": has,
            "allocatable": has,
            "nodeInfo": _node_info(name),
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def _node_info(name: str) -> dict[str, str]:
    """Placeholder values: every field is required, and none describes a real machine."""
    fields = "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion kubeProxyVersion"
    info = dict.fromkeys(fields.split(), "simulated")
    return info | {"machineID": name, "operatingSystem": "linux", "architecture": "amd64"}


def ready_conditions(at: str) -> Sequence[dict[str, str]]:
    """Conditions of a healthy kubelet, at an instant in the API's format."""
    times = {"lastHeartbeatTime": at, "lastTransitionTime": at}
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    healthy = [{"type": kind, "status": "False", "reason": "KubeletHasNo" + kind} for kind in pressures]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
    return [condition | times for condition in (*healthy, ready)]
