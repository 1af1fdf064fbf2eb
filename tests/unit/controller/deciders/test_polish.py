"""Polish: after a plan, nodes whose pods fit beside others are emptied, only where that pays."""

from dataclasses import replace

from cluster.actions import Bind, Move
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders import packing
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from controller.guard import Limits, guard
from placement.budget import Budget
from placement.move_price import MovePrice
from tests.builders.fleet import node, pod, world
from tests.builders.turns import turn
from tests.clock import ticking

FREE = MovePrice(per_pod_usd=0.0, per_gpu_usd=0.0, stay_h=1.0)
DECISIONS = Decisions(policy="bestfit", move_share=1.0, move_price=FREE)
LONG_S = 30.0


def halves(*more: object, gpus_of_q: int = 2) -> Snapshot:
    """Two nodes of 4 $ an hour, half full each: one could run both pods."""
    nodes = [node("a", gpus=4), node("b", gpus=4)]
    pods = [
        pod("p", gpus=2, on="a", devices=(0, 1), movable=True),
        pod("q", gpus=gpus_of_q, on="b", devices=tuple(range(4 - gpus_of_q, 4)), movable=True),
    ]
    return world(nodes, [*pods, *more], prices={"A100": 1.0})  # type: ignore[list-item]


def planned(snapshot: Snapshot, decisions: Decisions = DECISIONS) -> Plan:
    return decide(snapshot, decisions, deadline_s=LONG_S, clock=lambda: 0.0)


def moves(plan: Plan) -> list[tuple[str, str]]:
    return [(action.pod, action.node) for action in plan.actions if isinstance(action, Move)]


def test_a_node_that_it_pays_to_empty_is_emptied_once() -> None:
    plan = planned(halves())

    assert moves(plan) == [("p", "b")]
    assert guard(halves(), plan, Limits()).refused == ()
    assert moves(planned(halves().after(plan.actions))) == []


def test_without_room_elsewhere_nothing_moves() -> None:
    """q asks for three of its four GPUs."""
    assert moves(planned(halves(gpus_of_q=3))) == []


def test_a_move_that_costs_more_than_the_node_is_not_made() -> None:
    """96 cores and 512 GiB are 4.93 $ an hour, so is the node; two GPUs at 2.5 $ are 5 $."""
    dear = MovePrice(per_pod_usd=0.0, per_gpu_usd=2.5, stay_h=1.0)

    assert moves(planned(halves(), replace(DECISIONS, move_price=dear))) == []


def test_room_that_the_plan_itself_takes_is_not_moved_into() -> None:
    """Two pods wait for the four GPUs that are free: the plan seats them, and then no node can be emptied."""
    plan = planned(halves(*(pod(f"w{n}", gpus=2) for n in range(2))))

    assert sum(isinstance(action, Bind) for action in plan.actions) == 2
    assert moves(plan) == []


def test_what_a_plan_starts_is_left_where_it_is() -> None:
    """Only w fits beside q, and it was started by this very plan."""
    plan = planned(halves(pod("w", gpus=2, movable=True)))

    assert "w" not in [name for name, _ in moves(plan)]


def test_no_more_pods_move_than_their_share() -> None:
    assert moves(planned(halves(), replace(DECISIONS, move_share=0.4))) == [], "0.4 of two pods is none"


def test_in_a_large_fleet_every_node_has_its_turn() -> None:
    """20,000 nodes are examined, divided by the fleet's 15,000: two in each plan, and three have pods."""
    running = [pod(f"p{n}", gpus=1, on=f"n{n}", devices=(0,), movable=True) for n in range(3)]
    seen = world([node(f"n{n}", gpus=1) for n in range(15_000)], running)
    asked = turn(seen, DECISIONS)

    examined = []
    for _ in range(2):
        packing.decide_moves(seen, asked)
        examined.append(asked.memory.polished)

    assert examined == ["n1", "n0"]


def test_a_plan_without_time_for_it_says_so() -> None:
    late = replace(turn(halves(), DECISIONS), budget=Budget(1.0, ticking(1.0), 0.0))

    assert [reason.code for reason in packing.decide_moves(halves(), late).cut_short] == ["MovesOutOfTime"]


def test_by_default_nothing_moves() -> None:
    assert moves(planned(halves(), Decisions(move_price=FREE))) == []
