"""Members of gangs have a life: waiting, running, ending, done; and roles that do not stand in for each other."""

from pathlib import Path

import pytest

from cluster.workloads import Gang, MemberGroup
from controller.snapshot.pod_groups import still_needed
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.groups import (
    job,
    job_set,
    kubeflow_job,
    leader_worker_set,
    member,
    pod_group,
    ray_cluster,
    template,
    workload,
)
from tests.builders.manifests import Object, gang, gpu_type, having, node, observed, pod

KAI, VOLCANO, COSCHEDULING = (
    "scheduling.run.ai/v2alpha2",
    "scheduling.volcano.sh/v1beta1",
    "scheduling.x-k8s.io/v1alpha1",
)
LWS, KUBEFLOW = "leaderworkerset.sigs.k8s.io/", "training.kubeflow.org/"


def stated(api_version: str, kind: str, name: str, **spec: object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


KINDS: dict[str, tuple[Object | None, str, Object, Object]] = {
    "Gang": (gang("train", 4), "", {"tonnage.dev/gang": "train"}, {}),
    "KueuePodGroup": (
        None,
        "",
        {"kueue.x-k8s.io/pod-group-name": "train"},
        {"kueue.x-k8s.io/pod-group-total-count": "4"},
    ),
    "coscheduling": (pod_group(COSCHEDULING), "", {"scheduling.x-k8s.io/pod-group": "train"}, {}),
    "Volcano": (pod_group(VOLCANO), "", {}, {"scheduling.k8s.io/group-name": "train"}),
    "KAI": (pod_group(KAI), "", {}, {"pod-group-name": "train"}),
    "JobSet": (
        job_set(),
        "Job",
        {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": "workers"},
        {},
    ),
    "PyTorchJob": (
        kubeflow_job(workers=4),
        "PyTorchJob",
        {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/replica-type": "worker"},
        {},
    ),
    "MPIJob": (
        kubeflow_job("MPIJob", workers=4),
        "MPIJob",
        {KUBEFLOW + "job-name": "train", KUBEFLOW + "job-role": "worker"},
        {},
    ),
    "Job": (job(), "Job", {"batch.kubernetes.io/job-name": "train"}, {}),
    "LeaderWorkerSet": (
        leader_worker_set(),
        "StatefulSet",
        {LWS + "name": "train", LWS + "group-index": "0", LWS + "worker-index": "1"},
        {LWS + "size": "4"},
    ),
    "RayCluster": (ray_cluster(), "RayCluster", {"ray.io/cluster": "train"}, {}),
    "PodGang": (
        stated("scheduler.grove.io/v1alpha1", "PodGang", "train", podgroups=[{"name": "work", "minReplicas": 4}]),
        "PodClique",
        {"grove.io/podgang": "train", "grove.io/podclique": "work"},
        {},
    ),
    "PodGroup": (pod_group("scheduling.k8s.io/v1beta1"), "", {}, {}),
    "Workload": (workload(), "", {}, {}),
    "CompositePodGroup": (
        having(pod_group("scheduling.k8s.io/v1beta1"), "spec.parentCompositePodGroupName", "whole"),
        "",
        {},
        {},
    ),
}
"""(object, owner of its pods, their labels, their annotations) by kind; a gang of four, or of five with a leader."""
WHOLE = stated(
    "scheduling.k8s.io/v1alpha3", "CompositePodGroup", "whole", schedulingPolicy={"gang": {"minGroupCount": 1}}
)
SPECS: dict[str, Object] = {
    "PodGroup": {"schedulingGroup": {"podGroupName": "train"}},
    "Workload": {"workloadRef": {"name": "train", "podGroup": "workers"}},
    "CompositePodGroup": {"schedulingGroup": {"podGroupName": "train"}},
}
"""What names the group in the spec of a pod."""


def of_kind(kind: str, number: int, *, on: str = "", **spec: object) -> Object:
    """A pod of the kind's group; on: node where Tonnage placed it."""
    _, owner, labels, annotations = KINDS[kind]
    placed = {"tonnage.dev/node": on} if on else {}
    where = {"nodeName": on} if on else {}
    return member(number, owner, labels, {**annotations, **placed}, **SPECS.get(kind, {}), **where, **spec)


REPLACED = {"StatefulSet", "ReplicaSet", "RayCluster"}


def as_of_cluster(*objects: Object | None) -> list[Object]:
    """Objects as a cluster has them, so that the files' controllers make no pods."""
    return [having(each, "metadata.uid", "u") for each in objects if each]


def ended(made: Object, phase: str = "Succeeded") -> Object:
    return having(made, "status.phase", phase)


def gangs_of(folder: Path, *objects: Object) -> tuple[Gang, ...]:
    return observed(folder, gpu_type(), node(), *objects).snapshot.gangs


@pytest.mark.parametrize("kind", KINDS)
def test_members_start_together_beside_those_that_end(tmp_path: Path, kind: str) -> None:
    """Four old members end on four nodes, and four new ones wait; two nodes have room."""
    old = [having(of_kind(kind, n, on=f"n{n}"), "metadata.deletionTimestamp", "2026-01-01") for n in range(4)]
    new = [of_kind(kind, n) for n in range(4, 8)]
    nodes = [node(f"n{n}") for n in range(6)]

    seen = observed(tmp_path, gpu_type(), *nodes, *as_of_cluster(KINDS[kind][0], WHOLE, *old, *new)).snapshot

    assert [each >= 0 for each in seen.pods.gang.tolist()] == [False] * 4 + [True] * 4
    assert (seen.free().gpu_milli.sum(axis=1) > 0).tolist() == [False] * 4 + [True] * 2
    assert (seen.gangs[0].min_members, pack(seen, Packer(seen, BestFit())).actions) in ((4, ()), (5, ()))


RUN_ON = ("LeaderWorkerSet", "RayCluster")
"""Kinds that make a new pod for one that succeeded."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in RUN_ON])
def test_a_member_that_is_done_does_not_have_to_start_again(tmp_path: Path, kind: str) -> None:
    """Three of four succeeded, the fourth failed and was made anew. It needs nobody else."""
    group, owner, labels, annotations = KINDS[kind]
    done = [ended(of_kind(kind, n)) for n in range(3)]
    failed = ended(of_kind(kind, 3), "Failed")
    leader = {"JobSet": ("jobset.sigs.k8s.io/replicatedjob-name", "driver"),
              "PyTorchJob": ("training.kubeflow.org/replica-type", "master")}.get(kind)  # fmt: skip
    if leader:
        done.append(ended(member(5, owner, {**labels, leader[0]: leader[1]}, annotations)))

    seen = observed(tmp_path, gpu_type(), node(), *as_of_cluster(group, WHOLE, *done, failed, of_kind(kind, 4)))

    started = [
        seat.pod for each in pack(seen.snapshot, Packer(seen.snapshot, BestFit())).actions for seat in each.seat_changes
    ]
    assert ([each.min_members for each in seen.snapshot.gangs], started) == ([1], ["default/train-4"])


def test_a_pod_group_says_itself_how_many_are_done(tmp_path: Path) -> None:
    """A cluster forgets pods that succeeded."""
    group = having(pod_group(COSCHEDULING), "status", {"succeeded": 3})

    (found,) = gangs_of(tmp_path, group, member(4, "", {"scheduling.x-k8s.io/pod-group": "train"}))

    assert found.min_members == 1


@pytest.mark.parametrize("owner", sorted(REPLACED))
def test_a_member_that_its_kind_makes_anew_is_never_done(tmp_path: Path, owner: str) -> None:
    labels = {"tonnage.dev/gang": "train"}
    pods = [ended(member(n, owner, labels)) for n in range(3)]

    (found,) = gangs_of(tmp_path, gang("train", 4), *pods, member(4, owner, labels))

    assert found.min_members == 4


@pytest.mark.parametrize(
    ("asked", "done", "alive", "needed"),
    [
        (4, 0, 2, 4),  # the others do not exist yet
        (4, 3, 1, 1),
        (4, 20, 4, 4),  # a queue goes on with four at once
        (4, 3, 4, 4),  # started again, beside what is left of its last run
        (4, 1, 2, 3),  # one is still to come
    ],
)
def test_who_is_done_counts_only_where_a_member_is_missing(asked: int, done: int, alive: int, needed: int) -> None:
    assert still_needed(asked, done, alive) == needed


def ray_member(number: int, group: str) -> Object:
    return member(number, "RayCluster", {"ray.io/cluster": "train", "ray.io/group": group})


def roles(found: Gang | MemberGroup) -> dict[str, tuple[int, int]]:
    """Least and members of each innermost group."""
    inner = {role.name: (role.least, len(role.members)) for role in found.groups if not role.groups}
    return inner | {name: each for group in found.groups for name, each in roles(group).items()}


def test_each_group_of_a_ray_cluster_has_a_minimum_of_its_own(tmp_path: Path) -> None:
    written = ray_cluster(workers=3, enableInTreeAutoscaling=True)
    gpu = {**written["spec"]["workerGroupSpecs"][0], "minReplicas": 2}
    cpu = {**gpu, "groupName": "cpu", "minReplicas": 1, "template": template(0)}
    written["spec"]["workerGroupSpecs"] = [gpu, cpu]
    pods = [ray_member(0, "headgroup"), *(ray_member(n, "cpu") for n in range(1, 6))]

    (found,) = gangs_of(tmp_path, *as_of_cluster(written, *pods))

    assert found.min_members == 4
    assert roles(found) == {"headgroup": (1, 1), "cpu": (1, 5), "gpu": (2, 0)}


def test_tasks_of_volcano_and_subgroups_of_kai_have_minima_of_their_own(tmp_path: Path) -> None:
    volcano, kai = pod_group(VOLCANO, 3), pod_group(KAI, 3)
    volcano["spec"]["minTaskMember"] = {"ps": 1, "worker": 2}
    kai["spec"]["subGroups"] = [
        {"name": "all", "minMember": 1},
        {"name": "ps", "minMember": 1, "parent": "all"},
        {"name": "worker", "minMember": 2, "parent": "all"},
    ]
    of_volcano = [
        member(n, "", None, {"scheduling.k8s.io/group-name": "train", "volcano.sh/task-spec": "worker"})
        for n in range(4)
    ]
    of_kai = [member(n, "", {"kai.scheduler/subgroup-name": "worker"}, {"pod-group-name": "train"}) for n in range(4)]

    for group, pods in ((volcano, of_volcano), (kai, of_kai)):
        (found,) = gangs_of(tmp_path, *as_of_cluster(group, *pods))
        assert (found.min_members, roles(found)) == (3, {"ps": (1, 0), "worker": (2, 4)})


def test_an_elastic_job_needs_its_master_beside_few_workers(tmp_path: Path) -> None:
    (found,) = gangs_of(tmp_path, kubeflow_job(workers=5, elasticPolicy={"minReplicas": 3}))

    assert (found.min_members, roles(found)) == (3, {"master": (1, 1), "worker": (2, 5)})


def test_members_whose_role_is_unknown_are_counted_alike(tmp_path: Path) -> None:
    pods = [member(n, "RayCluster", {"ray.io/cluster": "train"}) for n in range(6)]

    (found,) = gangs_of(tmp_path, *as_of_cluster(ray_cluster(), *pods, pod("other")))

    assert (found.min_members, found.groups) == (4, ())
