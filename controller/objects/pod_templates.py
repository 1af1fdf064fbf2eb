"""Pods, and claims of theirs, that the controllers of Kubernetes and other projects would make of the objects in files.

Only what decides about placement is made: names, labels, owners, templates and counts, as the controllers write them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.api.foreign_kinds import KUBEFLOW_JOBS
from controller.api.rule import Path
from controller.objects.documents import at, map_of

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
    spec: Map | None = None
    """Its spec, where the template has parts of one, or none of it."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Object that a controller makes of another, such as the RayCluster of a RayJob."""

    api_version: str
    kind: str
    name: str
    spec: Path
    """Path of its spec in the object that it is made of."""
    made: Map | None = None
    """Its spec, where the controller writes it."""


_RAY: Mapping[tuple[str, str], Path] = {
    ("ray.io", "RayJob"): ("spec", "rayClusterSpec"),
    ("ray.io", "RayService"): ("spec", "rayClusterConfig"),
    ("ray.io", "RayCronJob"): ("spec", "jobTemplate", "rayClusterSpec"),
    ("orchestration.aibrix.ai", "RayClusterFleet"): ("spec", "template", "spec"),
}
"""Path of the spec of the RayClusters of an object."""


def derived_from(content: Map) -> tuple[Derived, ...]:
    """Objects of which the pods are, where a controller makes some of these objects first."""
    kind, name = _kind(content), _name(content)
    if path := _RAY.get(kind):
        copies = count_of(at(content, "spec", "replicas")) if kind[1] == "RayClusterFleet" else None
        names = [name] if copies is None else [f"{name}-{n}" for n in range(copies)]
        return tuple(Derived("ray.io/v1", "RayCluster", each, path) for each in names)
    if kind == ("disaggregatedset.x-k8s.io", "DisaggregatedSet"):
        sets = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
        return tuple(
            Derived(*sets, f"{name}-{n}-{at(role, 'name')}", ("spec", "roles", place, "spec"))
            for n in range(count_of(at(content, "spec", "slices")))
            for place, role in enumerate(at(content, "spec", "roles") or ())
        )
    if kind == ("batch.volcano.sh", "Job"):
        tasks = at(content, "spec", "tasks") or ()
        least = count_of(at(content, "spec", "minAvailable"), sum(count_of(at(each, "replicas")) for each in tasks))
        return (Derived("scheduling.volcano.sh/v1beta1", "PodGroup", name, (), {"minMember": least}),)
    if kind == ("trainer.kubeflow.org", "TrainJob"):
        job = {"parallelism": (nodes := count_of(at(content, "spec", "trainer", "numNodes"))), "completions": nodes}
        jobs = [{"name": "node", "replicas": 1, "template": {"spec": job}}]
        return (Derived("jobset.x-k8s.io/v1alpha2", "JobSet", name, (), {"replicatedJobs": jobs}),)
    if kind == ("grove.io", "PodCliqueSet"):
        return tuple(
            Derived("scheduler.grove.io/v1alpha1", "PodGang", gang, (), {"podgroups": _pod_groups(content, gang)})
            for gang in (f"{name}-{n}" for n in range(count_of(at(content, "spec", "replicas"))))
        )
    return ()


def _kind(content: Map) -> tuple[str, str]:
    return str(content.get("apiVersion")).partition("/")[0], str(content.get("kind"))


def has_templates(content: Map) -> bool:
    """Whether an object says what its pods are; a TrainJob may leave all of it to its runtime."""
    is_elsewhere = _kind(content)[1] == "TrainJob" and not at(content, "spec", "trainer", "resourcesPerNode")
    return _kind(content) in _MEMBERS and not is_elsewhere


def count_of(value: object, otherwise: int = 1) -> int:
    """Number of pods of a field; `otherwise` where it is left out. Raises ValueError for what is no such number."""
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"should be a number of pods, is {value!r}")
    return value


def is_suspended(content: Map) -> bool:
    """Whether a controller makes no pods of an object before somebody resumes it."""
    paths: list[Path] = [("spec",), ("spec", "runPolicy"), *(each.spec for each in derived_from(content))]
    return any(at(content, *path, "suspend") is True for path in paths)


def members_of(content: Map) -> Iterator[TemplatedPod]:
    """Pods of one object, none of a suspended one. Raises ValueError where a count is unreadable."""
    return iter(()) if is_suspended(content) else _MEMBERS[_kind(content)](content)


def _name(content: Map) -> str:
    return str(at(content, "metadata", "name") or "")


def _replicas(content: Map) -> Iterator[TemplatedPod]:
    for n in range(count_of(at(content, "spec", "replicas"))):
        yield TemplatedPod(f"{_name(content)}-{n}", ("spec", "template"))


def _jobs(content: Map) -> Iterator[TemplatedPod]:
    """Pods of a Job, or of one run of a CronJob."""
    path = ("spec", "jobTemplate", "spec") if content.get("kind") == "CronJob" else ("spec",)
    yield from _pods_of_job(at(content, *path), _name(content), path)


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


def _roots(content: Map) -> list[tuple[str, Path]]:
    """Name, and path of the spec, of each object that a controller makes of this one; else of itself."""
    return [(each.name, each.spec) for each in derived_from(content)] or [(_name(content), ("spec",))]


def _leader_worker_sets(content: Map) -> Iterator[TemplatedPod]:
    for name, root in _roots(content):
        spec = at(content, *root, "leaderWorkerTemplate")
        size = count_of(at(spec, "size"))
        leader = "leaderTemplate" if at(spec, "leaderTemplate") is not None else "workerTemplate"
        for group in range(count_of(at(content, *root, "replicas"))):
            for worker in range(size):
                labels = {
                    "leaderworkerset.sigs.k8s.io/name": name,
                    "leaderworkerset.sigs.k8s.io/group-index": str(group),
                    "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
                }
                template = (*root, "leaderWorkerTemplate", "workerTemplate" if worker else leader)
                sizes = {"leaderworkerset.sigs.k8s.io/size": str(size)}
                of = f"{name}-{group}-{worker}" if worker else f"{name}-{group}"
                yield TemplatedPod(of, template, labels, sizes, owner="StatefulSet")


def _ray_clusters(content: Map) -> Iterator[TemplatedPod]:
    for cluster, root in _roots(content):
        spec, labels = at(content, *root), {"ray.io/cluster": cluster}
        if spec is None:
            continue
        head = {**labels, "ray.io/group": "headgroup"}
        yield TemplatedPod(f"{cluster}-head", (*root, "headGroupSpec", "template"), head, owner="RayCluster")
        for place, group in enumerate(at(spec, "workerGroupSpecs") or ()):
            if at(group, "suspend") is True:
                continue
            fewest = count_of(at(group, "minReplicas"), 0)
            workers = max(fewest, count_of(at(group, "replicas"), fewest)) * count_of(at(group, "numOfHosts"))
            template, name = (*root, "workerGroupSpecs", place, "template"), str(at(group, "groupName"))
            of = {**labels, "ray.io/group": name}
            for n in range(workers):
                yield TemplatedPod(f"{cluster}-{name}-{n}", template, of, owner="RayCluster")


def _volcano_job(content: Map) -> Iterator[TemplatedPod]:
    name = _name(content)
    for place, task in enumerate(at(content, "spec", "tasks") or ()):
        role = str(at(task, "name") or place)
        marks = {"scheduling.k8s.io/group-name": name, "volcano.sh/task-spec": role}
        for n in range(count_of(at(task, "replicas"))):
            template = ("spec", "tasks", place, "template")
            yield TemplatedPod(f"{name}-{role}-{n}", template, {}, marks)


def _train_job(content: Map) -> Iterator[TemplatedPod]:
    """Pods of the trainer's own resources; those that its runtime adds are in another object."""
    name, trainer = _name(content), ("spec", "trainer")
    resources = at(content, *trainer, "resourcesPerNode")
    labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    for n in range(count_of(at(content, *trainer, "numNodes"))):
        spec = {"containers": [{"name": "node", "image": "trainer", "resources": resources}]}
        yield TemplatedPod(f"{name}-node-0-{n}", trainer, labels, owner="Job", spec=spec)


def _inference_service(content: Map) -> Iterator[TemplatedPod]:
    """Pods of KServe's predictor, transformer and explainer, each a pod's spec with a model among its fields."""
    for component in ("predictor", "transformer", "explainer"):
        path = ("spec", component)
        given = at(content, *path)
        if not isinstance(given, Mapping):
            continue
        served = [{"name": "kserve-container", "image": "i", "resources": each["resources"]}
                  for each in given.values() if isinstance(each, Mapping) and "resources" in each]  # fmt: skip
        spec = {key: value for key, value in given.items() if key in _OF_POD}
        spec["containers"] = [*served, *(given.get("containers") or ())]
        for n in range(count_of(given.get("minReplicas"))):
            if spec["containers"]:
                yield TemplatedPod(f"{_name(content)}-{component}-{n}", path, spec=spec)
            for worker in range(1, count_of(at(given, "workerSpec", "pipelineParallelSize"))):
                within = (*path, "workerSpec")
                workers = {key: value for key, value in at(content, *within).items() if key in _OF_POD}
                yield TemplatedPod(f"{_name(content)}-{component}-{n}-{worker}", within, spec=workers)


_OF_POD = frozenset(
    ("affinity", "containers", "initContainers", "nodeSelector", "priority", "priorityClassName", "schedulerName",
     "resourceClaims", "tolerations", "topologySpreadConstraints", "volumes")
)  # fmt: skip
"""Fields of a pod's spec that decide where it may run."""


def _llm_inference_service(content: Map) -> Iterator[TemplatedPod]:
    """Pods of KServe's LLMInferenceService: of its decode and prefill parts, each with workers on further nodes."""
    for root, suffix in ((("spec",), ""), (("spec", "prefill"), "-prefill")):
        part = at(content, *root)
        if not isinstance(part, Mapping) or "template" not in part:
            continue
        spread = at(part, "parallelism")
        pods = max(1, count_of(at(spread, "data")) // max(1, count_of(at(spread, "dataLocal"))))
        pods = max(pods, count_of(at(spread, "pipeline"))) if "worker" in part else 1
        for n in range(count_of(part.get("replicas"))):
            for worker in range(pods):
                path = (*root, "worker" if worker else "template")
                name = f"{_name(content)}{suffix}-{n}" + (f"-{worker}" if worker else "")
                yield TemplatedPod(name, path, spec=at(content, *path))


def _storm_service(content: Map) -> Iterator[TemplatedPod]:
    for n in range(count_of(at(content, "spec", "replicas"))):
        for place, role in enumerate(at(content, "spec", "template", "spec", "roles") or ()):
            for m in range(count_of(at(role, "replicas"))):
                template = ("spec", "template", "spec", "roles", place, "template")
                yield TemplatedPod(f"{_name(content)}-{n}-{at(role, 'name')}-{m}", template)


def _cliques(content: Map) -> Iterator[tuple[int, str, int, Map]]:
    """(place, name, copies, spec) of each clique of a PodCliqueSet: a clique of a scaling group has one per replica."""
    groups = at(content, "spec", "template", "podCliqueScalingGroups") or ()
    scaled = {name: each for each in groups for name in at(each, "cliqueNames") or ()}
    for place, clique in enumerate(at(content, "spec", "template", "cliques") or ()):
        name = str(at(clique, "name"))
        copies = count_of(at(scaled[name], "replicas")) if name in scaled else 1
        yield place, name, copies, at(clique, "spec") or {}


def _pod_groups(content: Map, gang: str) -> list[Map]:
    """Least pods of each clique of one replica. A scaling group's are those of its `minAvailable` copies."""
    groups = at(content, "spec", "template", "podCliqueScalingGroups") or ()
    least = {name: count_of(at(each, "minAvailable")) for each in groups for name in at(each, "cliqueNames") or ()}
    return [
        {"name": f"{gang}-{name}", "minReplicas": least.get(name, 1) * count_of(spec.get("minAvailable"), pods)}
        for _, name, _, spec in _cliques(content)
        for pods in (count_of(spec.get("replicas")),)
    ]


def _pod_clique_set(content: Map) -> Iterator[TemplatedPod]:
    for gang in (each.name for each in derived_from(content)):
        for place, name, copies, spec in _cliques(content):
            labels = {"grove.io/podgang": gang, "grove.io/podclique": f"{gang}-{name}"}
            for n in range(copies * count_of(spec.get("replicas"))):
                path = ("spec", "template", "cliques", place, "spec", "podSpec")
                yield TemplatedPod(f"{gang}-{name}-{n}", path, labels, spec=at(content, *path))


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
    **{("apps", kind): _replicas for kind in ("Deployment", "ReplicaSet", "StatefulSet")},
    **dict.fromkeys([("batch", "Job"), ("batch", "CronJob")], _jobs),
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_sets,
    ("disaggregatedset.x-k8s.io", "DisaggregatedSet"): _leader_worker_sets,
    ("ray.io", "RayCluster"): _ray_clusters,
    **dict.fromkeys(_RAY, _ray_clusters),
    ("batch.volcano.sh", "Job"): _volcano_job,
    ("grove.io", "PodCliqueSet"): _pod_clique_set,
    ("orchestration.aibrix.ai", "StormService"): _storm_service,
    ("serving.kserve.io", "InferenceService"): _inference_service,
    ("serving.kserve.io", "LLMInferenceService"): _llm_inference_service,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
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
            "labels": {**map_of(at(template, "metadata", "labels")), **member.labels},
            "annotations": {**map_of(at(template, "metadata", "annotations")), **member.annotations},
            "ownerReferences": [{"kind": member.owner or content["kind"], "name": _name(content), "controller": True}],
        },
        "spec": template.get("spec") if member.spec is None else member.spec,
    }


def with_templates(pod: Map, owner: Map) -> Map:
    """The pod with the volumes that a StatefulSet gives it, in place of its own of the same name."""
    names = [name for name, _ in _templates(owner)]
    spec = pod.get("spec")
    if not names or not isinstance(spec, Mapping):
        return pod
    own = [each for each in _volumes(pod) if each.get("name") not in names]
    made = [{"name": n, "persistentVolumeClaim": {"claimName": f"{n}-{pod['metadata']['name']}"}} for n in names]
    return {**pod, "spec": {**spec, "volumes": [*own, *made]}}


def claims_of(pod: Map, owner: Map | None = None) -> Iterator[dict[str, Any]]:
    """Claims that are made for a pod. owner: the object of which the pod is."""
    name = pod["metadata"]["name"]
    for of, content in _templates(owner or {}):
        yield _claim(f"{of}-{name}", pod, content)
    for volume in _volumes(pod):
        template = at(volume, "ephemeral", "volumeClaimTemplate")
        if isinstance(template, Mapping):
            own = [{"kind": "Pod", "name": name, "controller": True}]
            yield _claim(f"{name}-{volume.get('name')}", pod, template, ownerReferences=own)


def _claim(name: str, pod: Map, template: Map, **metadata: object) -> dict[str, Any]:
    annotations = at(template, "metadata", "annotations") or {}
    namespace = pod["metadata"].get("namespace", "default")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations, **metadata},
        "spec": template.get("spec", {}),
    }


def _templates(owner: Map) -> Iterator[tuple[str, Map]]:
    """Names and contents of a StatefulSet's templates."""
    written = at(owner, "spec", "volumeClaimTemplates") if owner.get("kind") == "StatefulSet" else None
    for each in written if isinstance(written, list) else ():
        if name := at(each, "metadata", "name"):
            yield str(name), each


def _volumes(pod: Map) -> list[Map]:
    written = at(pod, "spec", "volumes")
    return [each for each in written if isinstance(each, Mapping)] if isinstance(written, list) else []
