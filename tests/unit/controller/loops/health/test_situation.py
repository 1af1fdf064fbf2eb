"""Situation of remediation: which places are as good as free ones."""

from controller.kube_world.cached_view import is_ours
from controller.loops.health.members import gangs_of_others, members_from
from controller.loops.health.situation import highest_on, situation_of
from controller.loops.health.stream import HealthStream
from health.remediation.costs import SpareSeats, alternatives
from health.remediation.facts import RemedyPolicy
from health.remediation.incidents import JobDo
from tests.builders import manifests
from tests.builders.fleet import node, pod, world
from tests.builders.groups import job, member
from tests.builders.live_cluster import LiveCluster
from tests.builders.remedies import START_S, fleet, slow


def test_a_node_is_lent_by_work_of_lower_priority_only_where_all_of_it_may_be_stopped() -> None:
    seen = world(
        [node(name, gpus=2) for name in "abcd"],
        [
            pod("ns/low", 1, on="a", devices=(0,), priority=1),
            pod("ns/cpu", on="a", priority=9),
            pod("ns/stays", 1, on="b", devices=(0,), priority=1, settled=True),
            pod("ns/low-2", 1, on="c", devices=(0,), priority=1),
            pod("ns/high", 1, on="c", devices=(1,), priority=7),
        ],
    )

    assert highest_on(seen) == [1.0, float("inf"), 7.0, float("-inf")]


def prices(saves: tuple[bool, ...]) -> dict[JobDo, tuple[float, str]]:
    """GPU-hours and note of each alternative for a slow job, an hour after its start, by whether each pod saves."""
    labels, said = {"batch.kubernetes.io/job-name": "train"}, {"tonnage.dev/saves-when-stopped": "true"}
    pods = [
        member(n, "Job", labels, said if each else {}, schedulerName="tonnage", nodeName="n1")
        for n, each in enumerate(saves)
    ]
    cluster = LiveCluster([manifests.gpu_type(), manifests.node("n1"), job(), *pods], is_ours=is_ours)
    seen, nodes, stream = cluster.observer.observe(), cluster.caches.nodes.all(), HealthStream()
    stream.follow(members_from(cluster.caches.pods.all(), nodes, gangs_of_others(seen)), {"n1": ""})

    facts = situation_of(seen, nodes, {}, (), stream, {}, 3600.0).jobs["default/Job:train"]

    world, at_s = fleet(), START_S + 60
    world.now_s = at_s
    (known,) = world.decision([slow(world.jobs["train/a"], "n3", at_s=at_s, since_s=START_S)]).incidents
    found = alternatives(known, facts, SpareSeats(len(saves)), 3600.0, RemedyPolicy())
    return {each.do: (each.gpu_hours, each.note) for each in found}


def test_a_slow_job_all_of_whose_pods_save_when_they_are_stopped_leaves_at_once_and_loses_no_work() -> None:
    without, some, all_ = (prices(saves) for saves in ((False,) * 4, (True,) * 3 + (False,), (True,) * 4))

    assert some == without
    assert without[JobDo.EVICT_NOW][1] == "3600 s of work again"
    assert all_[JobDo.EVICT_NOW][1] == "it saves its work first"
    # An hour of 32 GPUs.
    assert round(without[JobDo.EVICT_NOW][0] - all_[JobDo.EVICT_NOW][0], 3) == 32.0
