"""Gangs by what other projects' pods and objects say, in files and in a live cluster."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import ConfigError
from cluster.snapshot import Snapshot
from controller.kube.request import Refusal
from controller.kube_world.cached_view import is_ours
from tests.builders.groups import (
    job,
    job_set,
    kubeflow_job,
    leader_worker_set,
    member,
    pod_group,
    ray_cluster,
    ray_job,
    template,
    workload,
)
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import Object, gang, gpu_type, node, observed, pod

MET: dict[str, tuple[Object, dict[str, int]]] = {
    "indexed job": (job(), {"default/Job:train": 4}),
    "job that works through a queue": (job(at_once=2), {}),
    "job without indexes": (job(mode="NonIndexed"), {}),
    "job of one pod": (job(pods=1), {}),
    "suspended job": (job(suspend=True), {}),
    "job set": (job_set(), {"default/JobSet:train": 4}),
    "job set in order": (
        job_set(startupPolicy={"startupPolicyOrder": "InOrder"}, workers=3),
        {"default/JobSet:train:workers": 3},
    ),
    "leader and workers": (
        leader_worker_set(groups=2),
        {"default/LeaderWorkerSet:train:0": 4, "default/LeaderWorkerSet:train:1": 4},
    ),
    "workers after their leader": (
        leader_worker_set(startupPolicy="LeaderReady"),
        {"default/LeaderWorkerSet:train:0:workers": 3},
    ),
    "ray cluster": (ray_cluster(), {"default/RayCluster:train": 4}),
    "ray cluster that grows": (ray_cluster(enableInTreeAutoscaling=True), {}),
    "suspended ray cluster": (ray_cluster(suspend=True), {}),
    "ray job": (ray_job(), {"default/RayCluster:train": 4}),
    "pytorch job": (kubeflow_job(), {"default/PyTorchJob:train": 4}),
    "elastic pytorch job": (kubeflow_job(elasticPolicy={"minReplicas": 2}), {"default/PyTorchJob:train": 2}),
    "pytorch job with a least": (
        kubeflow_job(runPolicy={"schedulingPolicy": {"minAvailable": 3}}),
        {"default/PyTorchJob:train": 3},
    ),
    "suspended pytorch job": (kubeflow_job(runPolicy={"suspend": True}), {}),
    "mpi job": (kubeflow_job("MPIJob"), {"default/MPIJob:train": 3}),
    "tf job": (kubeflow_job("TFJob"), {"default/TFJob:train": 4}),
    "deployment": ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                    "spec": {"replicas": 4, "template": template()}}, {}),
}  # fmt: skip
PODS = {"job of one pod": 1, "job that works through a queue": 2, "leader and workers": 8}

KUBERNETES, COSCHEDULING = "scheduling.k8s.io/v1alpha2", "scheduling.x-k8s.io/v1alpha1"
KAI, VOLCANO = "scheduling.run.ai/v2alpha2", "scheduling.volcano.sh/v1beta1"
NAMED: dict[str, tuple[Object | None, Callable[[int], Object]]] = {
    "KueuePodGroup": (None, lambda n: member(n, "", {"kueue.x-k8s.io/pod-group-name": "train"},
                                             {"kueue.x-k8s.io/pod-group-total-count": "4"})),
    "PodGroup": (pod_group(KUBERNETES), lambda n: member(n, schedulingGroup={"podGroupName": "train"})),
    "Workload": (workload(), lambda n: member(n, workloadRef={"name": "train", "podGroup": "workers"})),
    "CoschedulingPodGroup": (
        pod_group(COSCHEDULING), lambda n: member(n, "", {"scheduling.x-k8s.io/pod-group": "train"})),
    "KaiPodGroup": (pod_group(KAI), lambda n: member(n, "", None, {"pod-group-name": "train"})),
    "VolcanoPodGroup": (pod_group(VOLCANO), lambda n: member(n, "", None, {"scheduling.k8s.io/group-name": "train"})),
}  # fmt: skip


def gangs(seen: Snapshot) -> dict[str, int]:
    return {gang.name: gang.min_members for gang in seen.gangs}


def members(seen: Snapshot) -> int:
    return int((seen.pods.gang >= 0).sum())


@pytest.mark.parametrize("kind", MET)
def test_pods_that_a_controller_would_make_of_a_file_are_a_gang(tmp_path: Path, kind: str) -> None:
    written, expected = MET[kind]

    seen = observed(tmp_path, gpu_type(), node(), written)

    assert gangs(seen.snapshot) == expected
    assert len(seen.snapshot.pods.names) == (0 if "suspended" in kind else PODS.get(kind, 4))
    assert not [note for note in seen.notes if note.reason.code in ("KindNotRead", "GroupNotRead")]


@pytest.mark.parametrize("kind", NAMED)
def test_a_group_that_somebody_wrote_down_is_a_gang(tmp_path: Path, kind: str) -> None:
    group, pod_of = NAMED[kind]

    seen = observed(tmp_path, gpu_type(), node(), *([group] if group else []), *(pod_of(n) for n in range(5)))

    (found,) = gangs(seen.snapshot).items()
    assert (found[0].split(":")[:2], found[1]) == ([f"default/{kind}", "train"], 4)
    assert members(seen.snapshot) == 5


def owned(number: int, **spec: Any) -> Object:
    """Pod of the Job `train`, which waits for Tonnage."""
    made = {"schedulerName": "tonnage", **spec}
    return member(number, "Job", {"batch.kubernetes.io/job-name": "train"}, **made)


def live(*objects: Object) -> LiveCluster:
    return LiveCluster([gpu_type(), node(), *objects], is_ours=is_ours)


def test_pods_wait_for_the_object_that_says_how_many_they_are() -> None:
    cluster = live(*(owned(n) for n in range(4)))

    before = cluster.observer.observe()
    cluster.put(job())
    after = cluster.observer.observe()

    assert (len(before.pods.names), {each.code for each in before.left_out}) == (0, {"GangMissing"})
    assert (gangs(after), members(after), after.left_out) == ({"default/Job:train": 4}, 4, ())


def test_pods_of_a_kind_that_is_not_served_are_placed_one_by_one_and_told_of() -> None:
    cluster = live(*(owned(n) for n in range(4)))
    jobs = next(cache for cache in cluster.caches.groups if cache.resource.part == "Job")
    jobs.leave_out(Refusal(403, "Forbidden", "no"))

    seen = cluster.observer.observe()

    assert (len(seen.pods.names), gangs(seen)) == (4, {})
    assert "GroupNotRead" in [note.reason.code for note in cluster.observer.notes(seen)]


def test_our_own_label_counts_before_all_others() -> None:
    labels = {"batch.kubernetes.io/job-name": "train", "tonnage.dev/gang": "mine"}
    cluster = live(gang("mine", 2), job(), *(member(n, "Job", labels, schedulerName="tonnage") for n in range(4)))

    seen = cluster.observer.observe()

    assert (gangs(seen), members(seen)) == ({"default/mine": 2}, 4)


def test_an_empty_label_says_that_each_pod_is_placed_by_itself() -> None:
    labels = {"batch.kubernetes.io/job-name": "train", "tonnage.dev/gang": ""}
    cluster = live(job(), *(member(n, "Job", labels, schedulerName="tonnage") for n in range(4)))

    seen = cluster.observer.observe()

    assert (gangs(seen), len(seen.pods.names)) == ({}, 4)


def test_a_member_of_another_scheduler_is_counted_and_never_taken_back() -> None:
    """The driver of a JobSet asks for no GPU and is left to kube-scheduler."""
    driver = owned(0, schedulerName="default-scheduler", nodeName="n1")
    cluster = live(job(), driver, *(owned(n) for n in range(1, 4)))

    seen = cluster.observer.observe()

    assert (gangs(seen), members(seen)) == ({"default/Job:train": 3}, 3)


def test_pods_that_ended_are_needed_no_more() -> None:
    """One of four has succeeded and one index has failed for good: the two that are left need nobody else."""
    written = {**job(), "status": {"succeeded": 1, "failedIndexes": "3"}}
    cluster = live(written, owned(1), owned(2))

    assert gangs(cluster.observer.observe()) == {"default/Job:train": 2}


def test_a_ray_cluster_that_ran_goes_on_with_the_workers_that_it_has() -> None:
    written = {**ray_cluster(), "status": {"state": "ready"}}
    pods = (member(n, "RayCluster", {"ray.io/cluster": "train"}, schedulerName="tonnage") for n in range(4))

    assert gangs(live(written, *pods).observer.observe()) == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"completionMode": 7, "completions": "x", "parallelism": []},
        {"completionMode": "Indexed", "completions": -3, "parallelism": -3},
        {"completionMode": "Indexed", "completions": 10**30, "parallelism": 10**30},
        {},
    ],
)
def test_whatever_stands_in_an_object_stops_nobody_else(spec: Object) -> None:
    odd = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    cluster = live(odd, owned(0), pod("other", gpus=1, schedulerName="tonnage"))

    assert "default/other" in cluster.observer.observe().pods.names


def test_what_changed_of_an_object_or_a_pod_changes_the_gang() -> None:
    cluster = live(job(pods=3), *(owned(n) for n in range(3)))
    assert gangs(cluster.observer.observe()) == {"default/Job:train": 3}

    cluster.put(job(pods=2))
    cluster.remove(owned(2))
    assert gangs(cluster.observer.observe()) == {"default/Job:train": 2}

    cluster.remove(owned(0), owned(1))
    assert gangs(cluster.observer.observe()) == {}


def test_files_say_of_which_pods_nothing_was_planned(tmp_path: Path) -> None:
    resources = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}, "numNodes": 4}
    train = {"apiVersion": "example.com/v1", "kind": "Train", "metadata": {"name": "t"},
             "spec": {"trainer": resources}}  # fmt: skip
    stored = {**job(), "metadata": {"name": "train", "uid": "of-a-cluster"}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}

    seen = observed(tmp_path, gpu_type(), node(), train, stored, config)

    assert [(note.about, note.reason.code) for note in seen.notes] == [
        ("ConfigMap (v1)", "KindNotRead"),
        ("Job (batch/v1)", "PodsReadInstead"),
    ]
    assert [(each.kind, each.pod, each.code) for each in seen.snapshot.left_out] == [("Train", "t", "KindNotRead")]


def test_a_template_that_is_wrong_is_named_once_at_its_place(tmp_path: Path) -> None:
    wrong = job()
    wrong["spec"]["template"]["spec"]["containers"] = []
    worse = job("worse", pods=4)
    worse["spec"]["parallelism"] = "four"

    with pytest.raises(ConfigError) as caught:
        observed(tmp_path, gpu_type(), node(), wrong, worse)

    places = [str(each).partition("), ")[2] for each in caught.value.mistakes]
    assert [place.partition(":")[0] for place in places] == [
        "Pod/default/train-0, spec.containers",
        "Job/default/worse, spec",
    ]


DEFINITIONS = sorted((Path(__file__).parents[3] / "controlplane" / "definitions").glob("*.yaml"))
KUBEFLOW = ("runPolicy.suspend", "runPolicy.schedulingPolicy.minAvailable"), ("replicaStatuses[].succeeded",)
READ: dict[str, tuple[Object, tuple[str, ...], tuple[str, ...]]] = {
    "JobSet": (
        job_set(startupPolicy={"startupPolicyOrder": "InOrder"}),
        ("suspend", "replicatedJobs[].dependsOn"),
        ("replicatedJobsStatus[].name", "replicatedJobsStatus[].succeeded"),
    ),
    "LeaderWorkerSet": (leader_worker_set(startupPolicy="LeaderReady"), ("leaderWorkerTemplate.leaderTemplate",), ()),
    "RayCluster": (
        ray_cluster(enableInTreeAutoscaling=True),
        ("suspend", "workerGroupSpecs[].numOfHosts", "workerGroupSpecs[].suspend"),
        ("state", "conditions[].type", "conditions[].status"),
    ),
    "PodGroup": (pod_group("scheduling.x-k8s.io/v1alpha1"), (), ()),
    "PyTorchJob": (kubeflow_job(elasticPolicy={"minReplicas": 2}), *KUBEFLOW),
    "MPIJob": (kubeflow_job("MPIJob"), *KUBEFLOW),
    "TFJob": (kubeflow_job("TFJob"), *KUBEFLOW),
}
"""(object as tests write it, further fields of its spec that are read, fields of its status) by kind."""


@pytest.mark.parametrize("kind", READ)
def test_what_is_read_of_another_projects_object_is_in_its_definition(kind: str) -> None:
    """Definitions as the projects publish them (tests/controlplane/definitions)."""
    (schema,) = [
        each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for each in (yaml.safe_load(file.read_text(encoding="utf-8")) for file in DEFINITIONS)
        if each["spec"]["names"]["kind"] == kind
    ]
    made, of_spec, of_status = READ[kind]

    paths = [
        *_paths("spec", made["spec"]),
        *(f"spec.{each}" for each in of_spec),
        *(f"status.{each}" for each in of_status),
    ]

    assert [path for path in paths if not _is_defined(schema, path)] == []
    assert not _is_defined(schema, "spec.noSuchField")


def _paths(here: str, value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, inner in value.items():
                yield from _paths(f"{here}.{name}", inner)
        case list():
            for inner in value:
                yield from _paths(f"{here}[]", inner)
        case _:
            yield here


def _is_defined(schema: Any, path: str) -> bool:
    """Whether a definition has a field, or takes any fields where it is."""
    for name in path.replace("[]", ".[]").split("."):
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        found = schema.get("items") if name == "[]" else schema.get("properties", {}).get(name)
        schema = found or schema.get("additionalProperties")
        if not isinstance(schema, dict):
            return False
    return True
