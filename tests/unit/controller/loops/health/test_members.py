"""Rules of which pods are one training job."""

from controller.kube_world.cached_view import is_ours
from controller.loops.health.members import gangs_of_others, members_from
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
