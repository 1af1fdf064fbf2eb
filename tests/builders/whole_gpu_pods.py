"""Pods of whole GPUs drawn by a seed, which Tonnage and kube-scheduler can both count."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from controller.api.labels import API_VERSION
from simulator.openb.generator import MIXES, NODE_KINDS, pod_classes
from simulator.openb.trace_reader import MIB

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
MIX = "multigpu20"
"""Published pod list with the most multi-GPU pods."""
GPU_MODELS = tuple(dict.fromkeys(kind.model for kind in NODE_KINDS))


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods, in order of their creation."""

    name: str
    shapes: tuple[PodShape, ...]

    @property
    def gpus(self) -> int:
        return sum(shape.gpus for shape in self.shapes)


def fitting(count: int, seed: int) -> Workload:
    """`count` pods of one or two whole GPUs, small enough that a spreading scheduler can also place all."""
    return Workload("fitting", _drawn(_whole(most_gpus=2), count, seed))


def overload(fleet_gpus: int, share: float, seed: int) -> Workload:
    """Pods of one to eight whole GPUs that request `share` of a fleet's GPUs in total; above 1, not all can run."""
    shapes = _drawn(_whole(most_gpus=8), max(1, round(share * fleet_gpus)), seed)
    asked = np.cumsum([shape.gpus for shape in shapes])
    return Workload("overload", shapes[: int(np.searchsorted(asked, share * fleet_gpus)) + 1])


def usual_shapes() -> Sequence[tuple[float, PodShape]]:
    """Typical pods with their fractions, from which an overload is drawn; fragmentation is measured against them."""
    return _whole(most_gpus=8)


def _whole(most_gpus: int) -> list[tuple[float, PodShape]]:
    classes = pod_classes(MIXES[MIX], GPU_MODELS)
    return [
        (share, shape)
        for share, shape in classes
        if 1 <= shape.gpus <= most_gpus and shape.gpu_milli == WHOLE_GPU_MILLI
    ]


def _drawn(classes: Sequence[tuple[float, PodShape]], count: int, seed: int) -> tuple[PodShape, ...]:
    share = np.array([share for share, _ in classes])
    rows = np.random.default_rng(seed).choice(len(classes), size=count, p=share / share.sum())
    return tuple(classes[row][1] for row in rows.tolist())


def pod_object(number: int, shape: PodShape, namespace: str, scheduler: str) -> Object:
    """Pod as a user of this scheduler would write it."""
    milli = shape.gpu_milli if shape.gpus else 0
    is_shared = 0 < milli < WHOLE_GPU_MILLI
    requests = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_bytes // MIB}Mi"}
    limits = {GPU: str(shape.gpus)} if shape.gpus and not is_shared else {}
    container = {
        "name": "main",
        "image": "example.com/none",
        "resources": {"requests": requests | limits, "limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:05d}",
            "namespace": namespace,
            "labels": {"app": "benchmark"},
            "annotations": {"tonnage.dev/gpu-milli": str(milli)} if is_shared else {},
        },
        "spec": {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def gpu_type_objects(models: Iterable[str]) -> list[Object]:
    """One GPUType per model, matched by the label of simulated nodes; all have the same price."""
    return [_gpu_type(model) for model in models]


def _gpu_type(model: str) -> Object:
    spec: Mapping[str, Any] = {
        "nodeLabel": {"key": "nvidia.com/gpu.product", "values": [model]},
        "memory": "80Gi",
        "pricePerHour": {"onDemand": 1.0},
    }
    return {"apiVersion": API_VERSION, "kind": "GPUType", "metadata": {"name": model.lower()}, "spec": dict(spec)}
