"""The deciders together: each in its place, and moves where they pay and were asked for."""

from dataclasses import replace

import pytest

from cluster.actions import Bind, Evict, Move, Scale
from cluster.plans import Plan, Reason, Unplaced
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, LeftOut
from controller.deciders.decider import Decider, Turn
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import ORDER, decide
from controller.guard import Limits, guard
from placement.budget import Budget
from placement.move_price import MovePrice
from placement.packing.draft import PLACES_PER_POD
from placement.packing.planner import WORK_PER_S
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service

CHEAP = Decisions(make_room=True, move_price=MovePrice(0.01, 0.01, stay_h=24.0, most_share=0.5))


def scattered(*, movable: bool = True) -> Snapshot:
    """Four nodes with two GPUs each, one of them held by a pod; and what is expected are pods of two GPUs."""
    held = [pod(f"p{i}", gpus=1, on=f"n{i}", devices=(0,), movable=movable) for i in range(4)]
    wide = [pod(f"w{i}", gpus=2) for i in range(4)]
    return world([node(f"n{i}", gpus=2, cpu_milli=16_000) for i in range(4)], [*held, *wide], prices={"A100": 4.0})


def decided(seen: Snapshot, decisions: Decisions) -> Plan:
    return decide(seen, decisions, deadline_s=1.0, clock=lambda: 0.0)


def moves(plan: Plan) -> list[Move]:
    return [action for action in plan.actions if isinstance(action, Move)]


def test_nothing_moves_where_no_room_is_to_be_made() -> None:
    assert moves(decided(scattered(), Decisions(make_room=False))) == []


def test_room_is_made_for_what_waits_where_that_pays_and_the_guard_agrees() -> None:
    seen = scattered()

    plan = decided(seen, CHEAP)

    assert 1 <= len(moves(plan)) <= 2
    assert guard(seen, plan, Limits()).refused == ()
    assert {step.reason.code for step in plan.steps() if isinstance(step.action, Move)} == {"MakesRoom"}


def test_a_move_that_costs_more_than_it_frees_is_not_made() -> None:
    dear = replace(CHEAP, move_price=MovePrice(per_pod_usd=10_000.0, per_gpu_usd=0.0, stay_h=1.0))

    assert moves(decided(scattered(), dear)) == []


def test_a_pod_that_may_not_move_stays() -> None:
    assert moves(decided(scattered(movable=False), CHEAP)) == []


def test_after_the_moves_the_wide_pods_have_room_and_then_nothing_moves_any_more() -> None:
    seen = scattered()
    for _ in range(4):
        plan = decided(seen, CHEAP)
        seen = seen.after(plan.actions)

    assert moves(decided(seen, CHEAP)) == []
    # Four pods of one GPU fill two of the nodes, so two wide pods run on the others.
    assert (seen.pods.node[4:] >= 0).sum() == 2


def test_one_plan_places_pods_rolls_gangs_back_and_names_what_it_leaves_out() -> None:
    why = Reason("AwaitsClaim", "its claim is not there yet")
    members = [pod("g0", gpus=1, on="a", devices=(0,), gang="g"), pod("g1", gpus=8, gang="g")]
    seen = replace(
        world([node("a", gpus=2)], [*members, pod("p", gpus=1)], gangs=[Gang("g", 2)]),
        at_s=400.0,
        half_started_since_s={"g": 100.0},
        left_out=(LeftOut("q", why.code, why.words),),
    )

    plan = decided(seen, Decisions(gang_deadline_s=300.0))

    assert plan.actions == (Bind("p", "a", (1,)), Evict("g0", "a"))
    assert plan.unplaced[-1] == Unplaced("Pod/q", why)


def test_on_a_cluster_instances_are_placed_once_their_pods_exist() -> None:
    """100 requests a second on instances that serve 60 each."""
    seen = world(
        [node("a", gpus=4)], services=[service(rate=100.0, gpu_types=("A100",))], profiles=[profile("A100", ((60.0,),))]
    )

    whole, first = decided(seen, Decisions()), decided(seen, Decisions(awaits_pods=True))

    assert {type(action) for action in whole.actions} == {Scale, Bind}
    assert {type(action) for action in first.actions} == {Scale}
    assert {each.reason.code for each in first.unplaced} == {"AwaitsPod"}


def test_a_service_whose_instances_others_run_gets_a_mix_and_no_action() -> None:
    apart = replace(service(rate=100.0, gpu_types=("A100",)), is_planned_only=True)
    seen = world([node("a", gpus=4)], services=[apart], profiles=[profile("A100", ((60.0,),))])

    plan = decided(seen, Decisions(awaits_pods=True))

    assert plan.actions == ()
    assert plan.unplaced == ()
    assert [sum(each.instances.values()) for each in plan.services] == [2]
    assert {type(a) for a in decided(seen, Decisions()).actions} == {Scale, Bind}, "files have no other way to show it"


def fails(seen: Snapshot, turn: Turn) -> Plan:
    raise TypeError("holds what a tenant wrote")


def test_a_decider_that_fails_is_named_and_the_others_go_on() -> None:
    order = (Decider("first", fails), *ORDER, Decider("last", fails))
    seen = world([node("a", gpus=2)], [pod("p", gpus=1)])

    plan = decide(seen, Decisions(isolates=True), deadline_s=1.0, clock=lambda: 0.0, order=order)

    assert plan.actions == (Bind("p", "a", (0,)),)
    assert [(each.about, each.reason.code) for each in plan.findings] == [
        ("Decider/first", "DeciderFailed"),
        ("Decider/last", "DeciderFailed"),
    ]
    words = plan.findings[0].reason.words
    assert "raised TypeError at controller/deciders/test_pipeline.py:" in words
    assert "tenant" not in words


def test_outside_an_operator_a_failure_is_raised() -> None:
    order = (Decider("first", fails), *ORDER)

    with pytest.raises(TypeError):
        decide(world([node("a")]), Decisions(), deadline_s=1.0, clock=lambda: 0.0, order=order)


def test_pods_are_placed_although_the_deciders_before_used_all_the_time() -> None:
    """A mix of many services, on a machine that is busy, left no time for packing, plan after plan."""
    now_s = [0.0]

    def slow(snapshot: Snapshot, turn: Turn) -> Plan:
        now_s[0] += 10.0
        return Plan()

    order = tuple(
        replace(each, decide=slow) if isinstance(each, Decider) and each.name == "replicas" else each for each in ORDER
    )
    seen = world([node("n", gpus=8)], [pod(f"p{i}", gpus=1) for i in range(4)])

    plan = decide(seen, Decisions(), deadline_s=2.0, clock=lambda: now_s[0], order=order)

    assert sum(isinstance(action, Bind) for action in plan.actions) == 4


def test_pods_beyond_the_assured_work_wait_and_the_plan_says_why() -> None:
    seen = world([node("n", gpus=8)], [pod(f"p{i}", gpus=1, cpu_milli=100 + i) for i in range(8)])
    hurried = Decisions(within_s=4 * PLACES_PER_POD / WORK_PER_S)

    plan = decide(seen, hurried, deadline_s=0.0, clock=lambda: 0.0)

    assert 0 < sum(isinstance(action, Bind) for action in plan.actions) < 8
    assert {each.reason.code for each in plan.unplaced} == {"DeadlinePassed"}
    assert [reason.code for reason in plan.cut_short] == ["PackingOutOfTime"]


@pytest.mark.parametrize("assured", [0.0, 50.0])
def test_work_that_is_assured_is_done_after_the_time_and_no_more(assured: float) -> None:
    late = Budget(100.0, lambda: 5.0, over_at_s=1.0, assured=assured)
    part = late.part(0.9)

    turns = 0
    while part.allows_more():
        part.spend(10.0)
        turns += 1

    assert turns == assured / 10.0
    assert (part.cut_short, part.time_ran_out, late.time_ran_out) == ("time", True, True)
