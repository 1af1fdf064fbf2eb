"""Gangs as trees of groups, by what each kind says of its roles, replicas and levels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.workloads import Gang, MemberGroup
from tests.builders.groups import job_set, kubeflow_job, leader_worker_set, member, pod_group, ray_cluster
from tests.builders.manifests import Object, gang, gpu_type, having, node, observed

KAI, KUBERNETES = "scheduling.run.ai/v2alpha2", "scheduling.k8s.io/v1alpha3"
GROVE = "scheduler.grove.io/v1alpha1"
Tree = dict[str, Any]


def gangs_of(folder: Path, *objects: Object) -> dict[str, Gang]:
    """Gangs by name of objects as a cluster has them, so that the files' controllers make no pods."""
    stored = [having(each, "metadata.uid", "u") for each in objects]
    return {each.name: each for each in observed(folder, gpu_type(), node(), *stored).snapshot.gangs}


def tree(group: Gang | MemberGroup) -> Tree:
    """(least, members, groups that must be whole, level) by name, with those of inner groups."""
    found: Tree = {}
    for each in group.groups:
        found[each.name] = (each.least, len(each.members), each.least_groups, each.within)
        found |= {f"{each.name}/{name}": inner for name, inner in tree(each).items()}
    return found


def pods(count: int, labels: Mapping[str, str], owner: str = "", *, first: int = 0, **annotations: str) -> list[Object]:
    written = {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}
    return [member(n, owner, labels, written) for n in range(first, first + count)]


def test_a_gang_states_a_minimum_and_a_level_of_each_group(tmp_path: Path) -> None:
    groups = [
        {"name": "trainer", "minMembers": 1, "maxMembers": 1},
        {"name": "actors", "minGroups": 1, "topology": {"within": "block"}},
        {"name": "a", "minMembers": 2, "parent": "actors", "topology": {"within": "rack"}},
        {"name": "b", "minMembers": 2, "parent": "actors"},
    ]
    of = {"tonnage.dev/gang": "train"}
    made = [
        *pods(4, {**of, "tonnage.dev/gang-group": "a"}),
        *pods(1, {**of, "tonnage.dev/gang-group": "trainer"}, first=4),
        *pods(1, of, first=5),
    ]

    (found,) = gangs_of(tmp_path, gang("train", 2, groups=groups, maxMembers=9), *made).values()

    assert (found.min_members, found.most_members) == (3, 9)  # a trainer, and two of one group of actors
    assert tree(found) == {
        "trainer": (1, 1, None, None),
        "actors": (0, 0, 1, "block"),
        "actors/a": (2, 4, None, "rack"),
        "actors/b": (2, 0, None, None),
    }


def test_five_actors_are_no_gang_of_four_actors_and_a_trainer(tmp_path: Path) -> None:
    """There are as many members as must start, and one of them is of the wrong role."""
    groups = [{"name": "actors", "minMembers": 4}, {"name": "trainer", "minMembers": 1}]
    actors = pods(5, {"tonnage.dev/gang": "train", "tonnage.dev/gang-group": "actors"})

    (found,) = gangs_of(tmp_path, gang("train", 4, groups=groups), *actors).values()

    assert found.lacks([f"default/train-{n}" for n in range(5)]) == 1


def test_kubernetes_composite_groups_count_their_groups(tmp_path: Path) -> None:
    def group(name: str, parent: str, kind: str = "PodGroup", **policy: int) -> Object:
        spec = {"schedulingPolicy": {"gang": policy}, "parentCompositePodGroupName": parent}
        return {"apiVersion": KUBERNETES, "kind": kind, "metadata": {"name": name}, "spec": spec}

    def of(name: str, first: int) -> list[Object]:
        return [member(n, schedulingGroup={"podGroupName": name}) for n in range(first, first + 3)]

    root = group("root", "", "CompositePodGroup", minGroupCount=2)
    replicas = group("replicas", "root", "CompositePodGroup", minGroupCount=1)
    leaves = [group("driver", "root", minCount=1), group("r0", "replicas", minCount=3),
              group("r1", "replicas", minCount=3)]  # fmt: skip
    leaves[1]["spec"]["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
    members = [*of("driver", 0), *of("r0", 3), *of("r1", 6)]

    found = gangs_of(tmp_path, root, replicas, *leaves, *members)

    assert found["default/CompositePodGroup:root"].min_members == 4
    assert tree(found["default/CompositePodGroup:root"]) == {
        "default/driver": (1, 3, None, None),
        "default/replicas": (3, 0, 1, None),
        "default/replicas/default/r0": (3, 3, None, "rack"),
        "default/replicas/default/r1": (3, 3, None, None),
    }

    apart = having(root, "spec.schedulingPolicy", {"basic": {}})
    found = gangs_of(tmp_path, apart, replicas, *leaves, *members)
    assert {name: each.min_members for name, each in found.items()} == {"default/CompositePodGroup:replicas": 3}

    seen = observed(tmp_path, gpu_type(), node(), *(having(each, "metadata.uid", "u") for each in (*leaves, *members)))
    assert {each.code for each in seen.snapshot.left_out} == {"GangMissing"}  # the composite groups do not exist yet


def test_subgroups_of_kai_are_a_tree_with_levels(tmp_path: Path) -> None:
    written = having(pod_group(KAI), "spec", {
        "minSubGroup": 1, "topologyConstraint": {"preferredTopologyLevel": "zone"},
        "subGroups": [
            {"name": "decode", "topologyConstraint": {"requiredTopologyLevel": "rack"}},
            {"name": "leader", "minMember": 1, "parent": "decode"},
            {"name": "worker", "minMember": 3, "parent": "decode"},
            {"name": "prefill", "minMember": 2},
        ],
    })  # fmt: skip
    made = pods(4, {"kai.scheduler/subgroup-name": "worker"}, pod_group_name="train")

    (found,) = gangs_of(tmp_path, written, *made).values()

    assert (found.min_members, found.least_groups, found.prefer_within) == (2, 1, "zone")
    assert tree(found) == {
        "decode": (0, 0, None, "rack"),
        "decode/leader": (1, 0, None, None),
        "decode/worker": (3, 4, None, None),
        "prefill": (2, 0, None, None),
    }


def test_a_pod_gang_of_grove_has_its_cliques_and_their_levels(tmp_path: Path) -> None:
    cliques = [{"name": name, "minReplicas": least} for name, least in (("router", 1), ("lead", 1), ("work", 2))]
    level = {"packConstraint": {"required": "rack", "preferred": "host"}}
    spec = {
        "podgroups": cliques,
        "topologyConstraintGroupConfigs": [
            {"name": "decode", "podGroupNames": ["lead", "work"], "topologyConstraint": level}
        ],
    }
    written = {
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "metadata": {"name": "s-0"},
        "spec": spec,
    }
    made = pods(3, {"grove.io/podgang": "s-0", "grove.io/podclique": "work"})

    (found,) = gangs_of(tmp_path, written, *made).values()

    assert (found.name, found.min_members) == ("default/PodGang:s-0", 4)
    assert tree(found) == {
        "decode": (0, 0, None, "rack"),
        "decode/lead": (1, 0, None, None),
        "decode/work": (2, 3, None, None),
        "router": (1, 0, None, None),
    }


def test_hosts_of_a_ray_replica_start_together_at_first_and_later(tmp_path: Path) -> None:
    written = ray_cluster(enableInTreeAutoscaling=True)
    written["spec"]["workerGroupSpecs"][0] |= {"minReplicas": 1, "maxReplicas": 4, "numOfHosts": 2}
    of = {"ray.io/cluster": "train", "ray.io/group": "gpu"}
    made = [
        *pods(1, {**of, "ray.io/group": "headgroup"}, "RayCluster"),
        *pods(2, {**of, "ray.io/worker-group-replica-name": "x"}, "RayCluster", first=1),
        *pods(1, {**of, "ray.io/worker-group-replica-name": "y"}, "RayCluster", first=3),
    ]

    (found,) = gangs_of(tmp_path, written, *made).values()

    assert found.min_members == 3
    assert tree(found) == {
        "headgroup": (1, 1, None, None),
        "gpu": (2, 0, 1, None),
        "gpu/gpu:x": (2, 2, None, None),
        "gpu/gpu:y": (2, 1, None, None),
    }
    assert found.groups[1].most == 8

    ran = gangs_of(tmp_path, {**written, "status": {"state": "ready"}}, *made)
    assert {name: each.min_members for name, each in ran.items()} == {
        "default/RayCluster:train:gpu:x": 2,
        "default/RayCluster:train:gpu:y": 2,
    }


def test_members_that_are_made_after_their_leader_start_after_it(tmp_path: Path) -> None:
    """With exclusive placement, JobSet and LeaderWorkerSet make the others once the leader has a node."""
    of = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": "workers",
          "jobset.sigs.k8s.io/job-index": "0"}  # fmt: skip
    level: Tree = {"alpha.jobset.sigs.k8s.io__exclusive_topology": "rack"}
    first = {**of, "batch.kubernetes.io/job-completion-index": "0"}
    jobs = [*pods(1, first, "Job", **level), *pods(2, of, "Job", first=1, **level)]

    found = gangs_of(tmp_path, job_set(), *jobs)
    assert {name: each.min_members for name, each in found.items()} == {"default/JobSet:train:workers:0:workers": 2}

    level["alpha.jobset.sigs.k8s.io__node_selector"] = "true"  # somebody else selects the nodes of each job
    assert list(gangs_of(tmp_path, job_set(), *pods(4, of, "Job", **level))) == ["default/JobSet:train"]

    named = {"leaderworkerset.sigs.k8s.io/name": "train", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    sizes: Tree = {"leaderworkerset.sigs.k8s.io__size": "3", "leaderworkerset.sigs.k8s.io__exclusive_topology": "rack"}
    leader, worker = ({**named, "leaderworkerset.sigs.k8s.io/worker-index": index} for index in "01")
    set_of = [*pods(1, leader, "StatefulSet", **sizes), *pods(2, worker, "StatefulSet", first=1, **sizes)]
    found = gangs_of(tmp_path, leader_worker_set(size=3), *set_of)
    assert {name: each.min_members for name, each in found.items()} == {"default/LeaderWorkerSet:train:0:workers": 2}


def kubeflow(count: int, role: str, first: int = 0, kind: str = "PyTorchJob") -> list[Object]:
    labels = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/replica-type": role}
    return pods(count, labels, kind, first=first)


def test_one_of_each_role_is_among_the_fewest_of_a_job(tmp_path: Path) -> None:
    written = kubeflow_job(workers=5, runPolicy={"schedulingPolicy": {"minAvailable": 3}})

    (found,) = gangs_of(tmp_path, written, *kubeflow(1, "master"), *kubeflow(5, "worker", 1)).values()

    assert (found.min_members, tree(found)) == (3, {"master": (1, 1, None, None), "worker": (1, 5, None, None)})


def test_a_launcher_starts_with_its_workers_or_after_them(tmp_path: Path) -> None:
    written = kubeflow_job("MPIJob")
    launcher = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": "launcher",
                "training.kubeflow.org/operator-name": "mpi-operator"}  # fmt: skip
    made = [*pods(1, launcher, "Job"), *kubeflow(3, "worker", 1, "MPIJob")]
    name = "default/MPIJob:train"

    (found,) = gangs_of(tmp_path, written, *made).values()
    assert (found.min_members, found.lacks(["default/train-0", "default/train-1", "default/train-2"])) == (3, 1)

    written["spec"]["launcherCreationPolicy"] = "AtStartup"
    assert gangs_of(tmp_path, written, *made)[name].min_members == 4

    written["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    seen = observed(tmp_path, gpu_type(), node(), *(having(each, "metadata.uid", "u") for each in (written, *made)))
    assert [each.min_members for each in seen.snapshot.gangs] == [3]
    assert seen.snapshot.pods.gang.tolist() == [-1, 0, 0, 0]


def test_pods_name_the_level_that_kueue_asks_for(tmp_path: Path) -> None:
    of = {"kueue.x-k8s.io/pod-group-name": "train"}
    made = [
        member(n, "", of, {"kueue.x-k8s.io/pod-group-total-count": "3",
                           "kueue.x-k8s.io/podset-required-topology": "rack"}) for n in range(3)
    ]  # fmt: skip

    (found,) = gangs_of(tmp_path, *made).values()
    assert found.within == "rack"

    labels = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    driver = {**labels, "jobset.sigs.k8s.io/replicatedjob-name": "driver"}
    level = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    made = [member(0, "Job", driver), *(member(n, "Job", labels, level) for n in range(1, 4))]
    (found,) = gangs_of(tmp_path, job_set(), *made).values()
    assert tree(found) == {"driver": (1, 1, None, None), "workers": (3, 3, None, "rack")}


def test_jobs_of_a_set_that_wait_for_the_same_others_start_together(tmp_path: Path) -> None:
    """A TrainJob's initializer comes before its launcher and its nodes, which need each other."""
    written = job_set(workers=3)
    after = {"dependsOn": [{"name": "init", "status": "Complete"}]}
    driver, workers = ({**each, **after} for each in written["spec"]["replicatedJobs"])
    written["spec"]["replicatedJobs"] = [{**driver, "name": "init", "dependsOn": []}, driver, workers]
    of = {"jobset.sigs.k8s.io/jobset-name": "train"}
    role = "jobset.sigs.k8s.io/replicatedjob-name"

    (found,) = gangs_of(
        tmp_path, written, *pods(1, {**of, role: "driver"}, "Job"), *pods(4, {**of, role: "workers"}, "Job", first=1)
    ).values()

    assert (found.name, found.min_members) == ("default/JobSet:train:driver", 4)
    assert tree(found) == {"driver": (1, 1, None, None), "workers": (3, 4, None, None)}
