"""Rules of which pods are one training job, and which of them may not begin yet."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from cluster.disruption import DisruptionBudget
from controller.deciders.remediation import HealthRules
from controller.kube_world.cached_view import is_ours
from controller.loops.health.members import allowed_disruptions, gangs_of_others, members_from, tried_only
from health.remediation.facts import RemedyPolicy
from tests.builders.groups import job, job_set, member
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


def waits_untried(cluster: LiveCluster, nodes: Collection[str] = ("n1",)) -> dict[str, str]:
    """What a policy for these nodes has wait, and why. Everything else is left to planning."""
    seen, rules = cluster.observer.observe(), HealthRules("training", RemedyPolicy(), frozenset(nodes))
    left = tried_only(seen, cluster.caches.pods.all(), [(rules, 90.0)])
    said = {each.pod: f"{each.code}: {each.words}" for each in left.left_out}
    assert {*left.pods.names, *said} == {*seen.pods.names}
    return said


PRODUCT = "nvidia.com/gpu.product"


def workers(count: int = 4, *, tried: Collection[int] = (), **spec: Any) -> list[Object]:
    labels = {"batch.kubernetes.io/job-name": "train"}
    preflight: dict[str, Any] = {"initContainers": [{"name": "fetch"}, {"name": "preflight", "restartPolicy": None}]}
    return [
        member(n, "Job", labels, schedulerName="tonnage", **spec, **(preflight if n in tried else {}))
        for n in range(count)
    ]


def test_a_gang_without_a_preflight_waits_whole_for_one_and_is_told_what_to_add() -> None:
    said = waits_untried(running(job(), *workers(tried=(0, 1, 2))))

    assert list(said) == [f"default/train-{n}" for n in range(4)]
    (words,) = set(said.values())
    assert words.startswith("PreflightMissing: HealthPolicy training asks for a preflight")
    assert "{name: preflight, image: IMAGE, resources: RESOURCES, command: [python, -m, tonnage.preflight" in words
    assert "--ranks=4, --within=90]}" in words
    assert len(words) < 1000  # of an Event


def test_what_is_tried_or_has_begun_or_comes_to_other_nodes_or_is_alone_does_not_wait_for_a_preflight() -> None:
    tried = running(job(), *workers(tried=range(4)))
    begun = running(job(), *workers(1, nodeName="n1"), *workers()[1:])
    elsewhere = running(job(), node("n2", product="H100"), gpu_type("H100"), *workers(nodeSelector={PRODUCT: "H100"}))
    alone = running(job(pods=1), *workers(1))

    assert [waits_untried(each) for each in (tried, begun, elsewhere, alone)] == [{}] * 4
    assert waits_untried(elsewhere, ("n1", "n2"))


def test_the_pods_of_each_job_of_a_set_meet_by_themselves() -> None:
    def of(role: str, number: int) -> Object:
        labels = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": role}
        made = member(number, "Job", labels, schedulerName="tonnage")
        made["metadata"]["ownerReferences"][0]["name"] = f"train-{role}-0"
        return made

    said = waits_untried(running(job_set(), of("driver", 0), *(of("workers", n) for n in range(1, 4))))

    assert len(said) == 4
    assert all("--ranks=3," in words for words in said.values())
