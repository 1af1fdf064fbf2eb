"""Pods that kube-scheduler does not bind where they were released to are evicted, if their owner makes them anew."""

from dataclasses import replace

import pytest

from cluster.actions import Evict
from cluster.plans import Phase, Plan, Reason, Step, Unplaced
from cluster.snapshot import Snapshot
from controller.deciders import closing, edits
from controller.deciders.decisions import Decisions
from tests.builders.fleet import node, pod, world
from tests.builders.turns import asked

DECISIONS = Decisions(release_deadline_s=30.0)


def released(at_s: float | None, *, movable: bool = True) -> Snapshot:
    """A pod on its way since `at_s`, at 100 s; None: it runs."""
    seen = world([node("a", gpus=1)], [pod("ns/p", gpus=1, on="a", devices=(0,), movable=movable)])
    return replace(seen, at_s=100.0, released_at_s={} if at_s is None else {"ns/p": at_s})


@pytest.mark.parametrize(
    ("at_s", "movable", "is_evicted"),
    [(70.0, True, True), (70.1, True, False), (70.0, False, False), (None, True, False)],
)
def test_a_released_pod_is_evicted_after_its_deadline(at_s: float | None, movable: bool, is_evicted: bool) -> None:
    plan = asked(closing.end_releases, released(at_s, movable=movable), DECISIONS)

    assert plan.actions == ((Evict("ns/p", "a"),) if is_evicted else ())


def test_one_whose_owner_creates_it_anew_is_evicted_and_a_bare_one_is_told_of() -> None:
    bare = released(0.0, movable=False)
    owned = replace(bare, recreated=("ns/p",))

    assert asked(closing.end_releases, owned, DECISIONS).actions == (Evict("ns/p", "a"),)
    plan = asked(closing.end_releases, bare, DECISIONS)
    assert plan.actions == ()
    assert [(each.workload, each.reason.code) for each in plan.unplaced] == [("Pod/ns/p", "NotBound")]
    assert asked(closing.end_releases, replace(bare, released_at_s={"ns/p": 90.0}), DECISIONS).unplaced == ()


def test_a_pod_that_the_plan_stops_anyway_is_not_stopped_twice() -> None:
    stop = Plan((Phase("make room", (Step(Evict("ns/p", "a"), Reason("Test", "")),)),))

    assert asked(closing.end_releases, released(0.0), DECISIONS, stop).actions == ()


SAYS = {"ns/p": "kube-scheduler says: 1 node(s) didn't have free ports"}


@pytest.mark.parametrize(("for_s", "says", "is_evicted"), [(5.0, SAYS, True), (4.9, SAYS, False), (29.9, {}, False)])
def test_one_that_kube_scheduler_refuses_is_not_waited_for_in_full(
    for_s: float, says: dict[str, str], is_evicted: bool
) -> None:
    seen = replace(released(100.0 - for_s), scheduler_says=says)

    steps = tuple(asked(closing.end_releases, seen, DECISIONS).steps())

    assert [step.reason.words for step in steps] == ([f"not bound to a: {SAYS['ns/p']}"] if is_evicted else [])


def test_a_pod_that_waits_is_told_what_was_said_of_others_like_it() -> None:
    waits = Plan(unplaced=(Unplaced("Pod/ns/p", Reason("NoRoom", "no room")), Unplaced("Pod/ns/q", Reason("X", "x"))))
    seen = replace(released(None), refused={"Pod/ns/p": "of a it says: no"})

    told = edits.tell_refusals(seen, waits, DECISIONS)

    assert [each.reason.words for each in told.unplaced] == ["no room; of a it says: no", "x"]
