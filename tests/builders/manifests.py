"""Valid manifests as plain objects, in which a test changes only what matters to it."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from controller.objects.manifests import read_manifests
from controller.snapshot.from_manifests import Observed, snapshot_from

Object = dict[str, Any]
OURS = "tonnage.dev/v1alpha1"


def gpu_type(name: str = "a100", *, product: str | None = None, price: float = 4.0, **spec: object) -> Object:
    return {
        "apiVersion": OURS,
        "kind": "GPUType",
        "metadata": {"name": name},
        "spec": {
            "nodeLabel": {"values": [product or name.upper()]},
            "memory": "80Gi",
            "pricePerHour": {"onDemand": price},
            **spec,
        },
    }


def profile(name: str = "m-a100", gpu_type: str = "a100", **spec: object) -> Object:
    return {
        "apiVersion": OURS,
        "kind": "ModelProfile",
        "metadata": {"name": name},
        "spec": {
            "model": "m",
            "gpuType": gpu_type,
            "grid": {"inputTokens": [100, 1000], "outputTokens": [10, 100]},
            "throughput": [{"slo": {"tpot": "40ms"}, "requestsPerSecond": [[8, 4], [2, 1]]}],
            **spec,
        },
    }


def service(name: str = "chat", **spec: object) -> Object:
    return {
        "apiVersion": OURS,
        "kind": "ModelService",
        "metadata": {"name": name},
        "spec": {
            "model": "m",
            "slo": {"tpot": "40ms"},
            "demand": {
                "requestsPerSecond": 6,
                "inputTokens": [100, 1000],
                "outputTokens": [10, 100],
                "histogram": [[0.5, 0.25], [0.125, 0.125]],
            },
            **spec,
        },
    }


def gang(name: str = "train", min_members: int = 2, **spec: object) -> Object:
    return {"apiVersion": OURS, "kind": "Gang", "metadata": {"name": name}, "spec": {"minMembers": min_members, **spec}}


def node(name: str = "n1", gpus: int = 8, product: str = "A100", *, cpu: str = "96", **spec: object) -> Object:
    allocatable = {"cpu": cpu, "memory": "512Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    labels = {"nvidia.com/gpu.product": product} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(
    name: str = "p1",
    gpus: int = 0,
    *,
    on: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    phase: str = "Pending",
    **spec: object,
) -> Object:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": limits}}],
            "nodeName": on,
            **spec,
        },
        "status": {"phase": phase},
    }


def having(obj: Object, path: str, value: object) -> Object:
    """A copy with another value at a path of field names and indices, `spec.throughput.0.slo.tpot`."""
    made = deepcopy(obj)
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
    at: Any = made
    for part in way:
        at = at[part]
    at[last] = value
    return made


def written(folder: Path, objects: Iterable[Object], name: str = "fleet.yaml") -> Path:
    """The file that holds these objects, one document each."""
    file = folder / name
    file.write_text(yaml.safe_dump_all(list(objects), sort_keys=False), encoding="utf-8")
    return file


def observed(folder: Path, *objects: Object) -> Observed:
    """What these objects become, by way of a file."""
    return snapshot_from(read_manifests([str(written(folder, objects))]))
