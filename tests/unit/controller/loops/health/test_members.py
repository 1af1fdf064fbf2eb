"""Rules of which pods are one training job."""

from dataclasses import replace

from cluster.disruption import DisruptionBudget
from controller.kube_world.cached_view import is_ours
from controller.loops.health.members import allowed_disruptions, gangs_of_others, members_from
from tests.builders.groups import job, member
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import Object, gpu_type, node


def running(*objects: Object) -> LiveCluster:
    return LiveCluster([gpu_type(), node("n1"), *objects], is_ours=is_ours)


def test_pods_of_an_indexed_job_are_a_training_job_as_the_operator_recognises_them() -> None:
    labels = {"batch.kubernetes.io/job-name": "train"}
    cluster = running(job(), *(member(n, "Job", labels, schedulerName="tonnage", nodeName="n1") for n in range(4)))

    of_others = gangs_of_others(cluster.observer.observe())
    found = members_from(cluster.caches.pods.all(), cluster.caches.nodes.all(), of_others)

    assert {name: len(each) for name, each in found.jobs.items()} == {"default/Job:train": 4}


def test_a_job_may_lose_what_the_tightest_budget_leaves_it_and_pods_of_no_budget() -> None:
    labels = {"batch.kubernetes.io/job-name": "train"}
    pods = [member(n, "Job", labels, schedulerName="tonnage", nodeName="n1") for n in range(4)]
    names = [f"default/{pod['metadata']['name']}" for pod in pods]
    cluster = running(job(), *pods)
    snapshot = cluster.observer.observe()
    members = members_from(cluster.caches.pods.all(), cluster.caches.nodes.all(), gangs_of_others(snapshot))
    of_others = DisruptionBudget("default/web", 0, ("default/web-0",))
    all_four, three = (DisruptionBudget(f"default/{n}", 1, tuple(names[:n])) for n in (4, 3))

    allowed = [
        allowed_disruptions(replace(snapshot, budgets=budgets), members)
        for budgets in ((of_others,), (three,), (three, all_four, of_others))
    ]

    # One of three and the fourth; then one of all four.
    assert allowed == [{}, {"default/Job:train": 2}, {"default/Job:train": 1}]
