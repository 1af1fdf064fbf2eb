"""Objects of other projects' kinds whose pods are gangs: four members of eight GPUs each, unless a test says else."""

from collections.abc import Mapping
from typing import Any

from tests.builders.manifests import Object, pod


def template(gpus: int = 8, **spec: Any) -> Object:
    made = pod("template", gpus=gpus, **spec)
    return {
        "metadata": {"labels": {"app": "train"}},
        "spec": {k: v for k, v in made["spec"].items() if k != "nodeName"},
    }


def job(
    name: str = "train", pods: int = 4, *, at_once: int | None = None, mode: str = "Indexed", **spec: Any
) -> Object:
    written = {"completions": pods, "parallelism": pods if at_once is None else at_once, "completionMode": mode}
    return _object("batch/v1", "Job", name, {**written, "template": template(), **spec})


def job_set(name: str = "train", *, workers: int = 3, **spec: Any) -> Object:
    """A driver and some workers."""
    jobs = [
        {"name": role, "replicas": 1, "template": {"spec": {"parallelism": count, "completions": count,
                                                            "template": template()}}}
        for role, count in (("driver", 1), ("workers", workers))
    ]  # fmt: skip
    return _object("jobset.x-k8s.io/v1alpha2", "JobSet", name, {"replicatedJobs": jobs, **spec})


def leader_worker_set(name: str = "train", *, size: int = 4, groups: int = 1, **spec: Any) -> Object:
    inner = {"size": size, "workerTemplate": template()}
    written = {"replicas": groups, "leaderWorkerTemplate": inner, **spec}
    return _object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, written)


def ray_cluster_spec(workers: int = 3, **spec: Any) -> Object:
    group = {"groupName": "gpu", "replicas": workers, "minReplicas": 0, "maxReplicas": 9, "rayStartParams": {},
             "template": template()}  # fmt: skip
    return {"headGroupSpec": {"rayStartParams": {}, "template": template()}, "workerGroupSpecs": [group], **spec}


def ray_cluster(name: str = "train", workers: int = 3, **spec: Any) -> Object:
    return _object("ray.io/v1", "RayCluster", name, ray_cluster_spec(workers, **spec))


def ray_job(name: str = "train", workers: int = 3, **spec: Any) -> Object:
    return _object("ray.io/v1", "RayJob", name, {"rayClusterSpec": ray_cluster_spec(workers), **spec})


def kubeflow_job(kind: str = "PyTorchJob", name: str = "train", workers: int = 3, **spec: Any) -> Object:
    leader = {"PyTorchJob": "Master", "MPIJob": "Launcher"}.get(kind, "Chief")
    roles = {leader: {"replicas": 1, "template": template()}, "Worker": {"replicas": workers, "template": template()}}
    field = {"PyTorchJob": "pytorchReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}.get(kind, "tfReplicaSpecs")
    return _object("kubeflow.org/v1", kind, name, {field: roles, **spec})


def pod_group(api_version: str, least: int = 4, name: str = "train") -> Object:
    """A PodGroup of Kubernetes, KAI, Volcano or the coscheduling plugin."""
    is_kubernetes = api_version.startswith("scheduling.k8s.io/")
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}} if is_kubernetes else {"minMember": least}
    return _object(api_version, "PodGroup", name, spec)


def workload(least: int = 4, name: str = "train") -> Object:
    groups = [{"name": "workers", "policy": {"gang": {"minCount": least}}}, {"name": "rest", "policy": {"basic": {}}}]
    return _object("scheduling.k8s.io/v1alpha1", "Workload", name, {"podGroups": groups})


def member(
    number: int,
    owner: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """Pod of a group, as a cluster shows it. owner: kind of its controller."""
    made = pod(f"train-{number}", gpus=8, labels=labels, annotations=annotations, **spec)
    owners = [{"apiVersion": "v1", "kind": owner, "name": "train", "uid": "u", "controller": True}] if owner else []
    made["metadata"]["ownerReferences"] = owners
    return made


def _object(api_version: str, kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
