"""Limit on the pods that one plan starts: by priority, gangs whole, nothing stopped in vain."""

from cluster.actions import Bind, Evict, Scale
from cluster.clock import Clock
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, InstanceType
from controller.brain.inline import decisions_from
from controller.deciders.decisions import Decisions
from controller.deciders.edits import MOST_STARTS, with_first_starts
from controller.deciders.pipeline import decide
from controller.settings import settings_from
from tests.builders.fleet import node, pod, world

STOPPED: Clock = float


def fleet(pods: int, members: int = 0) -> Snapshot:
    nodes = [node(f"n{n}", gpus=8) for n in range((pods + members) // 8 + 1)]
    alone = [pod(f"p{n:04d}", gpus=1, priority=pods - n) for n in range(pods)]
    gang = [pod(f"g{n}", gpus=1, gang="ns/g") for n in range(members)]
    return world(nodes, [*alone, *gang], gangs=[Gang("ns/g", members)] if members else [])


def starts(*pods: str) -> tuple[Step, ...]:
    return tuple(Step(Bind(each, "n0", (0,)), Reason("LeastCost", "it fits")) for each in pods)


def test_what_one_plan_leaves_the_next_ones_start_in_order_of_priority() -> None:
    seen, decisions, started = fleet(25), Decisions(most_starts=10), []
    for expected in (10, 10, 5, 0):
        plan = decide(seen, decisions, deadline_s=60.0, clock=STOPPED)
        bound = [action.pod for action in plan.actions if isinstance(action, Bind)]
        assert len(bound) == expected
        assert len(plan.unplaced) == 25 - len(started) - expected
        assert all(each.reason.code == "WorkUsedUp" for each in plan.unplaced)
        started += bound
        seen = seen.after(plan.actions)
    assert started == sorted(started), "the highest priority first"


def test_a_gang_is_never_cut() -> None:
    gang = Phase("start gang ns/g", starts("g0", "g1", "g2"), whole=True)
    alone = Phase("place", starts("p0000", "p0001"))

    plan = with_first_starts(fleet(2, 3), Plan(phases=(gang, alone)), 2)
    assert [len(phase.steps) for phase in plan.phases] == [3], "it starts whole where it begins within the limit"
    assert [each.workload for each in plan.unplaced] == ["Pod/p0000", "Pod/p0001"]

    plan = with_first_starts(fleet(2, 3), Plan(phases=(alone, gang)), 2)
    assert [len(phase.steps) for phase in plan.phases] == [2]
    assert [each.workload for each in plan.unplaced] == ["Gang/ns/g"], "it waits whole, and is told of once"


def test_nothing_is_stopped_for_a_pod_that_is_left_to_the_next_plan() -> None:
    room = Step(Evict("victim", "n0"), Reason("PREEMPTED", "for a pod of higher priority"))
    first, second = Phase("place", starts("p0000")), Phase("preempt", (room, *starts("p0001")))
    scale = Phase("scale", (Step(Scale("ns/s", {InstanceType("A100"): 1}), Reason("CheapestMix", "it is")),))

    plan = with_first_starts(fleet(2), Plan(phases=(first, second, scale)), 1)
    assert plan.phases == (first, scale)

    plan = with_first_starts(fleet(2), Plan(phases=(first, second, scale)), 2)
    assert plan.phases == (first, second, scale)


def test_an_operators_plans_are_limited_and_what_if_plans_are_not() -> None:
    settings = settings_from({})

    assert decisions_from(settings).most_starts == MOST_STARTS
    assert decisions_from(settings, awaits_pods=False).most_starts is None
