"""Packing within a budget of work: what has no turn says so, and what fits nowhere takes nobody's turn."""

from cluster.actions import Bind
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.draft import PLACES_PER_POD
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import node, pod, world

ONE_POD = PLACES_PER_POD + 1
"""Work for a pod in a fleet of one node."""


def packed(seen: Snapshot, budget: Budget) -> Plan:
    return pack(seen, Packer(seen, BestFit()), budget)


def bound(plan: Plan) -> list[str]:
    return [action.pod for action in plan.actions if isinstance(action, Bind)]


def why(plan: Plan) -> dict[str, str]:
    return {each.workload: each.reason.code for each in plan.unplaced}


def test_what_the_work_does_not_suffice_for_waits_and_says_so() -> None:
    seen = world([node("a", gpus=8)], [pod(f"p{n}", gpus=1) for n in range(4)])

    plan = packed(seen, Budget(2 * ONE_POD))

    assert bound(plan) == ["p0", "p1"]
    assert why(plan) == {"Pod/p2": "WorkUsedUp", "Pod/p3": "WorkUsedUp"}
    assert plan.cut_short == ()


def test_time_that_ends_packing_is_named() -> None:
    seen = world([node("a", gpus=8)], [pod("p", gpus=1)])

    plan = packed(seen, Budget(1e9, clock=lambda: 2.0, over_at_s=1.0))

    assert why(plan) == {"Pod/p": "DeadlinePassed"}
    assert [reason.code for reason in plan.cut_short] == ["PackingOutOfTime"]


def test_pods_that_fit_nowhere_leave_the_work_for_those_behind_them() -> None:
    too_wide = [pod(f"wide{n}", gpus=4) for n in range(50)]
    seen = world([node("a", gpus=2)], [*too_wide, pod("small", gpus=1)])

    plan = packed(seen, Budget(2 * ONE_POD))

    assert bound(plan) == ["small"]
    assert set(why(plan).values()) == {"NoNodeFits"}


def test_what_had_its_turn_says_what_it_lacks_although_others_had_none() -> None:
    seen = world([node("a", gpus=2)], [pod("wide", gpus=4), pod("p1", gpus=1), pod("p2", gpus=1)])

    plan = packed(seen, Budget(2 * ONE_POD))

    assert why(plan) == {"Pod/wide": "NoNodeFits", "Pod/p2": "WorkUsedUp"}


def test_room_that_a_preemption_leaves_is_found_by_those_that_found_none_before() -> None:
    """`wide` stops the only pod of lower priority. That held four GPUs, one more than it needs: `small` fits there."""
    runs = pod("low", gpus=4, on="a", devices=(0, 1, 2, 3), priority=0)
    seen = world([node("a", gpus=4)], [runs, pod("wide", gpus=3, priority=5), pod("small", gpus=1, priority=0)])

    plan = packed(seen, Budget(1e9))

    assert bound(plan) == ["wide", "small"]
