"""Pods that kube-scheduler does not bind where they were released to are made anew, if anybody makes them."""

from dataclasses import dataclass, field

import pytest

from cluster.actions import Evict
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.gate_timeout import TakesReleasesBack
from tests.builders.fleet import node, pod, world
from tests.unit.controller.kube.fake_cluster_view import Clock


@dataclass
class ThinksNothing:
    opinion: Plan = field(default_factory=Plan)

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        return self.opinion


@pytest.mark.parametrize(
    ("movable", "on_its_way", "stopped"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_a_released_pod_is_evicted_after_its_deadline(movable: bool, on_its_way: bool, stopped: bool) -> None:
    clock = Clock()
    cluster = world([node("a", gpus=1)], [pod("ns/p", gpus=1, on="a", devices=(0,), movable=movable)])
    brain = TakesReleasesBack(ThinksNothing(), lambda _: on_its_way, 30.0, clock)

    assert brain.plan(cluster, 1.0).actions == ()
    clock.now_s = 29.9
    assert brain.plan(cluster, 1.0).actions == ()
    clock.now_s = 30.0

    assert brain.plan(cluster, 1.0).actions == ((Evict("ns/p", "a"),) if stopped else ())
