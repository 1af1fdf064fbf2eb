"""Nodes, pods and GPU types as an API server sends them, in lists and watches, and caches filled with them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from controller.api import gpu_type
from controller.api.labels import API_VERSION
from controller.kube_world.observer import Caches

Object = dict[str, Any]
GPU_TYPES = {"a100": "NVIDIA-A100-SXM4-80GB", "h100": "NVIDIA-H100-80GB-HBM3", "l4": "NVIDIA-L4"}
ASKS = ((1, ""), (2, ""), (8, ""), (1, "300"), (0, ""))
"""GPU requests as (whole devices, thousandths of one device or "")."""


def gpu_type_object(name: str) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUType",
        "metadata": {"name": name, "uid": f"type-{name}", "resourceVersion": "1", "generation": 1},
        "spec": {
            "nodeLabel": {"key": "nvidia.com/gpu.product", "values": [GPU_TYPES[name]]},
            "resourceName": "nvidia.com/gpu",
            "memory": "80Gi",
            "pricePerHour": {"onDemand": 3.0},
        },
    }


def node_object(number: int) -> Object:
    """Node with 8 GPUs, as reported by a kubelet with a device plugin and feature discovery."""
    product = tuple(GPU_TYPES.values())[number % len(GPU_TYPES)]
    name = f"gpu-{number:05d}"
    have = {"cpu": "128", "memory": "1056Gi", "ephemeral-storage": "3455Gi", "pods": "110", "nvidia.com/gpu": "8"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu-8x",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "topology.kubernetes.io/rack": f"rack-{number // 16}",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.memory": "81559",
    }
    conditions = [
        {"type": kind, "status": status, "reason": f"Kubelet{kind}", "message": "as it should be " * 3}
        for kind, status in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("Ready", "True"))
    ]
    return {
        "metadata": {
            "name": name,
            "uid": f"node-{number:032d}",
            "resourceVersion": str(number),
            "labels": labels,
        },
        "spec": {"providerID": f"cloud:///{name}"},
        "status": {
            "capacity": have,
            "allocatable": {**have, "memory": "1040Gi"},
            "conditions": conditions,
            "images": [{"names": [f"registry.example/image-{n}@sha256:{n:064d}"], "sizeBytes": n} for n in range(20)],
        },
    }


def pod_object(number: int, *, on: str = "", version: int = 1) -> Object:
    """Pod of a Deployment with one container and a sidecar, 3 KB."""
    gpus, milli = ASKS[number % len(ASKS)]
    name = f"worker-{number:06d}"
    whole = {"nvidia.com/gpu": str(gpus)} if gpus and not milli else {}
    resources = {"requests": {"cpu": "4", "memory": "16Gi", **whole}, "limits": {"memory": "16Gi", **whole}}
    annotations = {"kubernetes.io/config.source": "api", "prometheus.io/scrape": "true"}
    mount = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{number % 20}",
            "uid": f"pod-{number:032d}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "worker", "pod-template-hash": f"{number % 500:010d}"},
            "annotations": {**annotations, **({"tonnage.dev/gpu-milli": milli} if milli else {})},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "worker", "uid": "0" * 36}],
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {"f:spec": {"f:x": {}}}}] * 3,
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/trainer:1.2.3",
                    "env": [{"name": f"SETTING_{n}", "value": "x" * 20} for n in range(8)],
                    "resources": resources,
                    "volumeMounts": [mount],
                },
                {
                    "name": "proxy",
                    "image": "registry.example/proxy:1",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                    "volumeMounts": [mount],
                },
            ],
            "nodeName": on,
            "priority": number % 3,
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
                for what in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "Running" if on else "Pending",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
        },
    }


def daemon_object(on: int, which: int) -> Object:
    """Pod of a DaemonSet on a node, pinned to it by name as the DaemonSet controller does."""
    name, number = f"daemon-{which}", which * 1_000_000 + on
    made = pod_object(number, on=f"gpu-{on:05d}")
    metadata, spec = made["metadata"], made["spec"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": "0" * 36, "controller": True}
    metadata.update(name=f"{name}-{on:05d}", namespace="kube-system", uid=f"{name}-{on:025d}", ownerReferences=[owner])
    metadata["annotations"].pop("tonnage.dev/gpu-milli", None)
    by_name = {"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}
    required = {"nodeSelectorTerms": [{"matchFields": [by_name]}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    requests = {"cpu": f"{100 * (which + 1)}m", "memory": "128Mi"}
    spec["containers"] = [{"name": "main", "image": f"registry.example/{name}:1", "resources": {"requests": requests}}]
    spec["priority"] = 2_000_001_000
    spec["tolerations"] = [{"operator": "Exists"}]
    return made


def list_page(objects: Iterable[Object], continue_: str = "") -> bytes:
    """List, or one page of it."""
    more = {"continue": continue_} if continue_ else {}
    return msgspec.json.encode({"metadata": {"resourceVersion": "1", **more}, "items": list(objects)})


def list_pages(objects: Iterable[Object], size: int) -> list[bytes]:
    """List in pages of `size` objects, at least one page."""
    every = list(objects)
    starts = range(0, max(len(every), 1), size)
    return [list_page(every[at : at + size], f"from {at + size}" if at + size < len(every) else "") for at in starts]


def watch_event(kind: str, obj: Mapping[str, Any]) -> bytes:
    """Event of a watch, one line of it."""
    return msgspec.json.encode({"type": kind, "object": obj})


DAEMONS = 5
"""DaemonSets of a made-up cluster: network, monitoring, logs, the device plugin and its node features."""


def filled(nodes: int, pods: int, caches: Caches) -> Callable[[], None]:
    """Fills the caches with so many nodes and pods, and a pod of each DaemonSet on every node, when called.

    The lists are made before: as bytes, in the pages that a server sends.
    """
    types = [gpu_type_object(name) for name in GPU_TYPES]
    every_pod = [
        *(pod_object(n, on="" if n % 10 == 9 else f"gpu-{n % nodes:05d}") for n in range(pods)),
        *(daemon_object(n, which) for n in range(nodes) for which in range(DAEMONS)),
    ]
    # Kinds without an object have an empty list: what was never listed is not seen yet.
    lists = {id(cache): [list_page(())] for cache in caches.each}
    lists[id(caches.own[gpu_type.KIND])] = [list_page(types)]
    lists[id(caches.nodes)] = [list_page(node_object(n) for n in range(nodes))]
    lists[id(caches.pods)] = list_pages(every_pod, 2000)

    def fill() -> None:
        for cache in caches.each:
            for n, body in enumerate(lists[id(cache)]):
                cache.take_page(body, 0.0, is_first=n == 0)

    return fill
