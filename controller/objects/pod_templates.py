"""Pods that the controllers of Kubernetes and of other projects would make of the objects in files.

Only what decides about placement is made: names, labels, owners, templates and counts, as the controllers write them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.api.foreign_kinds import KUBEFLOW_JOBS
from controller.api.rule import Path
from controller.objects.documents import at

MOST_PODS = 10_000
"""Maximum number of pods made of one object: as many as a plan of files is meant for."""

Map = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TemplatedPod:
    """One pod of an object."""

    name: str
    template: Path
    """Path of its template in the object."""
    labels: Map = field(default_factory=dict)
    annotations: Map = field(default_factory=dict)
    owner: str = ""
    """Kind of its controller; empty: the object's own kind."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Object that a controller makes of another, such as the RayCluster of a RayJob."""

    api_version: str
    kind: str
    name: str
    spec: Path
    """Path of its spec in the object that it is made of."""


def derived_from(content: Map) -> Derived | None:
    """Object of which the pods are, where a controller makes one of these objects first."""
    if not str(content.get("apiVersion")).startswith("ray.io/"):
        return None
    found = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(str(content.get("kind")))
    return Derived("ray.io/v1", "RayCluster", _name(content), ("spec", found)) if found else None


def has_templates(api_version: str, kind: str) -> bool:
    return (api_version.partition("/")[0], kind) in _MEMBERS


def count_of(value: object, otherwise: int = 1) -> int:
    """Number of pods of a field; `otherwise` where it is left out. Raises ValueError for what is no such number."""
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"should be a number of pods, is {value!r}")
    return value


def is_suspended(content: Map) -> bool:
    """Whether a controller makes no pods of an object before somebody resumes it."""
    derived = derived_from(content)
    paths: list[Path] = [("spec",), ("spec", "runPolicy"), *([derived.spec] if derived else [])]
    return any(at(content, *path, "suspend") is True for path in paths)


def members_of(content: Map) -> Iterator[TemplatedPod]:
    """Pods of one object, none of a suspended one. Raises ValueError where a count is unreadable."""
    group = str(content.get("apiVersion")).partition("/")[0]
    return iter(()) if is_suspended(content) else _MEMBERS[group, str(content.get("kind"))](content)


def _name(content: Map) -> str:
    return str(at(content, "metadata", "name") or "")


def _replicas(content: Map) -> Iterator[TemplatedPod]:
    for n in range(count_of(at(content, "spec", "replicas"))):
        yield TemplatedPod(f"{_name(content)}-{n}", ("spec", "template"))


def _job(content: Map) -> Iterator[TemplatedPod]:
    yield from _pods_of_job(at(content, "spec"), _name(content), ("spec",))


def _pods_of_job(spec: object, name: str, path: Path, labels: Map | None = None) -> Iterator[TemplatedPod]:
    parallelism = count_of(at(spec, "parallelism"))
    for n in range(min(parallelism, count_of(at(spec, "completions"), parallelism))):
        yield TemplatedPod(f"{name}-{n}", (*path, "template"), {"batch.kubernetes.io/job-name": name, **(labels or {})},
                     owner="Job")  # fmt: skip


def _job_set(content: Map) -> Iterator[TemplatedPod]:
    name = _name(content)
    for place, job in enumerate(at(content, "spec", "replicatedJobs") or ()):
        role = str(at(job, "name"))
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": role}
        path = ("spec", "replicatedJobs", place, "template", "spec")
        for n in range(count_of(at(job, "replicas"))):
            yield from _pods_of_job(at(job, "template", "spec"), f"{name}-{role}-{n}", path, labels)


def _leader_worker_set(content: Map) -> Iterator[TemplatedPod]:
    name, spec = _name(content), at(content, "spec", "leaderWorkerTemplate")
    size = count_of(at(spec, "size"))
    leader = "leaderTemplate" if at(spec, "leaderTemplate") is not None else "workerTemplate"
    for group in range(count_of(at(content, "spec", "replicas"))):
        for worker in range(size):
            labels = {
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
                "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
            }
            template = ("spec", "leaderWorkerTemplate", "workerTemplate" if worker else leader)
            sizes = {"leaderworkerset.sigs.k8s.io/size": str(size)}
            of = f"{name}-{group}-{worker}" if worker else f"{name}-{group}"
            yield TemplatedPod(of, template, labels, sizes, owner="StatefulSet")


def _ray_cluster(content: Map) -> Iterator[TemplatedPod]:
    derived = derived_from(content)
    root: Path = derived.spec if derived else ("spec",)
    spec, labels = at(content, *root), {"ray.io/cluster": _name(content)}
    if spec is None:
        return
    head = {**labels, "ray.io/group": "headgroup"}
    yield TemplatedPod(f"{_name(content)}-head", (*root, "headGroupSpec", "template"), head, owner="RayCluster")
    for place, group in enumerate(at(spec, "workerGroupSpecs") or ()):
        fewest = count_of(at(group, "minReplicas"), 0)
        hosts = count_of(at(group, "numOfHosts"))
        workers = 0 if at(group, "suspend") is True else max(fewest, count_of(at(group, "replicas"), fewest)) * hosts
        for n in range(workers):
            template, name = (*root, "workerGroupSpecs", place, "template"), str(at(group, "groupName"))
            of = {**labels, "ray.io/group": name}
            yield TemplatedPod(f"{_name(content)}-{name}-{n}", template, of, owner="RayCluster")


def _kubeflow_job(content: Map) -> Iterator[TemplatedPod]:
    spec, name = at(content, "spec"), _name(content)
    if not isinstance(spec, Mapping):
        return
    for field_name, roles in spec.items():
        if not field_name.endswith("ReplicaSpecs") or not isinstance(roles, Mapping):
            continue
        for role, each in roles.items():
            labels = {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": str(role).lower(),
            }
            for n in range(count_of(at(each, "replicas"))):
                yield TemplatedPod(f"{name}-{str(role).lower()}-{n}", ("spec", field_name, role, "template"), labels)


_MEMBERS = {
    ("apps", "Deployment"): _replicas,
    ("apps", "ReplicaSet"): _replicas,
    ("apps", "StatefulSet"): _replicas,
    ("batch", "Job"): _job,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayJob"): _ray_cluster,
    ("ray.io", "RayService"): _ray_cluster,
    **{(kind.group, kind.name): _kubeflow_job for kind in KUBEFLOW_JOBS},
}
"""Pods of an object, by API group and kind."""


def pod_from(content: Map, member: TemplatedPod) -> dict[str, Any]:
    """Pod as a manifest. Raises ValueError where the template is missing."""
    template = at(content, *member.template)
    if not isinstance(template, Mapping):
        raise ValueError(f"has no {'.'.join(map(str, member.template))}")
    namespace = at(content, "metadata", "namespace")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": member.name,
            **({"namespace": namespace} if namespace is not None else {}),
            "labels": {**_plain_map(at(template, "metadata", "labels")), **member.labels},
            "annotations": {**_plain_map(at(template, "metadata", "annotations")), **member.annotations},
            "ownerReferences": [{"kind": member.owner or content["kind"], "name": _name(content), "controller": True}],
        },
        "spec": template.get("spec"),
    }


def _plain_map(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
