"""Manifests for tests on the real server: builders that state only what matters."""

from collections.abc import Mapping
from typing import Any

GPU = "nvidia.com/gpu"


def pod(name: str, *, gpus: int = 0, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod of one container; `spec` adds fields such as nodeName or schedulerName."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": pod_spec(gpus=gpus, **spec),
    }


def pod_spec(*, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {}
    return {"containers": [{"name": "main", "image": "example.com/none", "resources": {"limits": limits}}], **spec}


def job(name: str, *, pods: int, run_s: float) -> dict[str, Any]:
    """A job whose simulated pods succeed after this many seconds."""
    template = {
        "metadata": {"annotations": {"simulated.tonnage.dev/run-seconds": str(run_s)}},
        "spec": pod_spec(restartPolicy="Never"),
    }
    spec = {"completions": pods, "parallelism": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
