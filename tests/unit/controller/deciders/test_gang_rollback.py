"""Gangs that stand half started are completed, or stopped whole when their time is over."""

from dataclasses import replace

from cluster.actions import Bind, Evict
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.deciders import closing
from controller.deciders.closing import half_started, with_half_started_noted
from controller.deciders.decisions import Decisions
from tests.builders.fleet import node, pod, world
from tests.builders.turns import asked

DECISIONS = Decisions(gang_deadline_s=60.0)


def broken(*, waiting: int = 1, at_s: float = 0.0, since_s: float | None = None) -> Snapshot:
    """A gang of 3 of which two run, and so many wait."""
    running = [pod(f"ns/{n}", gpus=1, on="a", devices=(n,), gang="ns/g") for n in range(2)]
    seen = world(
        [node("a", gpus=2), node("b", gpus=1)],
        [*running, *(pod(f"ns/w{n}", gpus=1, gang="ns/g") for n in range(waiting))],
        gangs=[Gang("ns/g", 3)],
    )
    return replace(seen, at_s=at_s, half_started_since_s={} if since_s is None else {"ns/g": since_s})


def test_a_gang_that_ends_member_by_member_is_not_half_started() -> None:
    assert half_started(broken(waiting=0)) == {}
    assert half_started(broken()) == {"ns/g": (0, 1)}
    assert half_started(world([node("a", gpus=1)], [pod("ns/p", gpus=1)])) == {}


def test_it_is_stopped_whole_after_its_deadline_and_not_before() -> None:
    assert asked(closing.roll_back_gangs, broken(at_s=500.0), DECISIONS).actions == ()
    assert asked(closing.roll_back_gangs, broken(at_s=500.0, since_s=440.1), DECISIONS).actions == ()

    late = asked(closing.roll_back_gangs, broken(at_s=500.0, since_s=440.0), DECISIONS)

    assert late.actions == (Evict("ns/0", "a"), Evict("ns/1", "a"))


def test_it_is_left_when_the_plan_completes_it() -> None:
    start = Plan((Phase("start", (Step(Bind("ns/w0", "b", (0,)), Reason("Test", "")),), whole=True),))

    assert asked(closing.roll_back_gangs, broken(at_s=500.0, since_s=0.0), DECISIONS, start).actions == ()


def test_a_gang_that_recovered_has_its_whole_time_again() -> None:
    recovered = with_half_started_noted(broken(waiting=0, at_s=50.0, since_s=0.0))
    again = with_half_started_noted(replace(broken(at_s=55.0), half_started_since_s=recovered.half_started_since_s))

    assert again.half_started_since_s == {"ns/g": 55.0}
    assert asked(closing.roll_back_gangs, replace(again, at_s=100.0), DECISIONS).actions == ()
