"""Gangs that stand half started are completed, or taken back whole when their time is over."""

from dataclasses import dataclass, field

from cluster.actions import Bind, Evict
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.deciders.gang_rollback import TakesGangsBack, half_started
from tests.builders.fleet import node, pod, world
from tests.unit.controller.kube.fake_cluster_view import Clock


@dataclass
class Thinks:
    """A brain of fixed opinion."""

    opinion: Plan = field(default_factory=Plan)

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        return self.opinion


def broken(*, waiting: int = 1) -> Snapshot:
    """A gang of 3 of which two run, and so many wait."""
    running = [pod(f"ns/{n}", gpus=1, on="a", devices=(n,), gang="ns/g") for n in range(2)]
    return world(
        [node("a", gpus=2)],
        [*running, *(pod(f"ns/w{n}", gpus=1, gang="ns/g") for n in range(waiting))],
        gangs=[Gang("ns/g", 3)],
    )


def test_a_gang_that_ends_member_by_member_is_not_half_started() -> None:
    assert half_started(broken(waiting=0)) == {}
    assert half_started(broken()) == {"ns/g": (0, 1)}


def test_it_is_taken_back_whole_after_its_deadline_and_not_before() -> None:
    clock = Clock()
    brain = TakesGangsBack(Thinks(), 60.0, clock)

    assert brain.plan(broken(), 1.0).actions == ()
    clock.now_s = 59.9
    assert brain.plan(broken(), 1.0).actions == ()
    clock.now_s = 60.0

    assert brain.plan(broken(), 1.0).actions == (Evict("ns/0", "a"), Evict("ns/1", "a"))


def test_it_is_left_when_the_plan_completes_it() -> None:
    clock = Clock()
    start = Plan((Phase("start", (Step(Bind("ns/w0", "b", (0,)), Reason("Test", "")),), whole=True),))
    brain = TakesGangsBack(Thinks(start), 60.0, clock)
    brain.plan(broken(), 1.0)

    clock.now_s = 60.0

    assert brain.plan(broken(), 1.0) == start


def test_a_gang_that_recovered_has_its_whole_time_again() -> None:
    clock = Clock()
    brain = TakesGangsBack(Thinks(), 60.0, clock)
    brain.plan(broken(), 1.0)
    clock.now_s = 50.0
    brain.plan(broken(waiting=0), 1.0)
    brain.plan(broken(), 1.0)

    clock.now_s = 100.0

    assert brain.plan(broken(), 1.0).actions == ()
