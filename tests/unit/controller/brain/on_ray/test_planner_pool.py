"""Planner pool on Ray: lost, silent or stuck planners are asked again or replaced, within bounded waits."""

import pytest

from cluster.actions import Bind
from cluster.snapshot import Snapshot
from controller.brain.frames import plan_from_frame, snapshot_frame
from controller.brain.inline import InlineBrain
from controller.brain.on_ray.actors import BIRTH_S, SILENT_S, STALLED_S
from controller.brain.on_ray.process import NoPlan, PlannerPool
from controller.deciders.decisions import Decisions
from tests.builders.fake_ray import FakeRay, Mood
from tests.builders.fleet import node, pod, world
from tests.builders.snapshot_content import plain

LONG_S, SHORT_S = 60.0, 2.0


def seen() -> Snapshot:
    nodes = [node(f"{pool}{n}", 4, labels={"pool": pool}) for pool in "ab" for n in range(2)]
    return world(nodes, [pod(f"p{n}", 1, selector={"pool": "ab"[n % 2]}) for n in range(6)])


def pool_of(planners: int, decisions: Decisions | None = None) -> tuple[PlannerPool, FakeRay]:
    ray = FakeRay()
    pool = PlannerPool(ray, decisions or Decisions(), ray.clock, ray.sleep)
    pool.begin(planners, within_s=30.0)
    return pool, ray


def pass_by(pool: PlannerPool, ray: FakeRay, for_s: float) -> None:
    over_at_s = ray.now_s + for_s
    while ray.now_s < over_at_s:
        pool.look_after()
        ray.now_s += 0.1


def test_its_plan_is_the_one_that_would_be_made_here() -> None:
    pool, _ = pool_of(1)

    plan = plan_from_frame(pool.plan(snapshot_frame(seen()), LONG_S))

    assert plain(plan) == plain(InlineBrain(Decisions(), lambda: 0.0).plan(seen(), LONG_S))
    assert sum(isinstance(action, Bind) for action in plan.actions) == 6


def test_several_planners_pack_shares_and_make_the_plan_of_one() -> None:
    pool, _ = pool_of(2, Decisions(shares=2))

    plan = plan_from_frame(pool.plan(snapshot_frame(seen()), LONG_S))

    assert plain(plan) == plain(InlineBrain(Decisions(shares=2), lambda: 0.0).plan(seen(), LONG_S))


def test_a_planner_that_is_lost_while_it_plans_is_asked_again_when_it_is_back() -> None:
    pool, ray = pool_of(1)
    (actor,) = ray.actors
    actor.mood = "dead"

    def come_back() -> None:
        if ray.now_s > 1.0 and actor.mood == "dead":
            actor.restarted()

    ray.on_wait = come_back

    assert pool.plan(snapshot_frame(seen()), LONG_S)
    assert not actor.is_killed, "Ray restarts it by itself"
    assert ray.now_s < 1.5, "it is not waited for longer than it is away"


@pytest.mark.parametrize("mood", ["silent", "stuck", "dead"])
def test_nobody_waits_for_a_planner_longer_than_the_deadline(mood: Mood) -> None:
    pool, ray = pool_of(1)
    ray.actors[0].mood = mood
    began_s = ray.now_s

    with pytest.raises(NoPlan) as none:
        pool.plan(snapshot_frame(seen()), SHORT_S)

    assert none.value.reason == "deadline"
    assert ray.now_s - began_s <= SHORT_S + 0.2


def test_while_a_planner_is_at_an_earlier_request_it_is_busy() -> None:
    pool, ray = pool_of(1)
    ray.actors[0].mood = "stuck"
    with pytest.raises(NoPlan):
        pool.plan(snapshot_frame(seen()), SHORT_S)
    began_s = ray.now_s

    with pytest.raises(NoPlan) as none:
        pool.plan(snapshot_frame(seen()), SHORT_S)

    assert none.value.reason == "busy"
    assert ray.now_s == began_s


def test_a_planner_that_stays_stuck_is_replaced() -> None:
    pool, ray = pool_of(1)
    ray.actors[0].mood = "stuck"
    with pytest.raises(NoPlan):
        pool.plan(snapshot_frame(seen()), SHORT_S)

    pass_by(pool, ray, STALLED_S + 1.0)

    assert ray.actors[0].is_killed
    assert pool.plan(snapshot_frame(seen()), LONG_S)
    assert pool.restarts == 1


def test_a_planner_that_falls_silent_is_replaced_also_when_nobody_asks() -> None:
    pool, ray = pool_of(1)
    ray.actors[0].mood = "silent"

    pass_by(pool, ray, SILENT_S + 2.0)

    assert ray.actors[0].is_killed
    assert pool.up == 1


def test_a_new_planner_that_never_answers_is_replaced_by_another() -> None:
    pool, ray = pool_of(1)
    ray.actors[0].mood = "silent"
    ray.on_wait = lambda: setattr(ray.actors[1], "mood", "silent") if len(ray.actors) == 2 else None

    pass_by(pool, ray, SILENT_S + BIRTH_S + 4.0)

    assert len(ray.actors) == 3
    assert pool.up == 1


def test_a_full_queue_is_told_at_once() -> None:
    pool, ray = pool_of(1)
    ray.actors[0].mood = "full"

    with pytest.raises(NoPlan) as none:
        pool.plan(snapshot_frame(seen()), SHORT_S)

    assert none.value.reason == "queue_full"


def test_a_mistake_of_the_planner_is_told_and_does_not_end_it() -> None:
    pool, ray = pool_of(1)
    ray.actors[0].mood = "wrong"

    with pytest.raises(NoPlan) as none:
        pool.plan(snapshot_frame(seen()), SHORT_S)
    ray.actors[0].mood = "well"

    assert none.value.reason == "error"
    assert pool.plan(snapshot_frame(seen()), LONG_S)


def test_planners_of_another_version_are_not_worked_with() -> None:
    ray = FakeRay()
    pool = PlannerPool(ray, Decisions(), ray.clock, ray.sleep)
    ray.on_wait = lambda: setattr(ray.actors[0], "version", "0.0.1")

    with pytest.raises(RuntimeError, match=r"0\.0\.1"):
        pool.begin(1, within_s=30.0)


def test_planners_that_do_not_come_up_are_not_waited_for_without_an_end() -> None:
    ray = FakeRay()
    pool = PlannerPool(ray, Decisions(), ray.clock, ray.sleep)
    ray.on_wait = lambda: [setattr(actor, "mood", "silent") for actor in ray.actors]

    with pytest.raises(TimeoutError, match="0 of 1"):
        pool.begin(1, within_s=10.0)
