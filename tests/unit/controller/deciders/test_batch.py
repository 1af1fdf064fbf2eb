"""A batch and its remainder: pods for which no work is left are still placed, the most important first."""

from cluster.actions import Bind
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.deciders.decider import Turn
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PlannerMemory
from controller.deciders.packing import pack_batch
from placement.budget import Budget
from tests.builders.fleet import node, pod, world

DECISIONS = Decisions(planner="columns", policy="bestfit")


def planned(seen: Snapshot, work: float) -> Plan:
    return pack_batch(seen, Turn(DECISIONS, Budget(work), PlannerMemory(), seen))


def binds(plan: Plan) -> dict[str, str]:
    return {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}


def waiting(plan: Plan) -> set[str]:
    return {each.workload for each in plan.unplaced}


def test_a_pod_that_waits_for_room_keeps_no_other_from_starting() -> None:
    """The wide pod could start if others left, so it is served alone; with its work used up, the rest is dealt."""
    running = [pod(f"r{n}", gpus=1, on=f"n{n}", devices=(0,)) for n in range(4)]
    nodes = [node(f"n{n}", gpus=4) for n in range(4)]
    small = [pod(f"p{n}", gpus=1) for n in range(12)]
    seen = world(nodes, [*running, *(pod(f"wide{n}", gpus=4, priority=10) for n in range(2)), *small])

    plan = planned(seen, work=1.0)

    assert len([name for name in binds(plan) if name.startswith("p")]) >= 8
    assert not {f"Pod/{name}" for name in binds(plan)} & waiting(plan)


def test_what_is_dealt_without_work_goes_to_the_most_important_first() -> None:
    seen = world(
        [node("a", gpus=4)],
        [
            pod("r", gpus=1, on="a", devices=(0,)),
            pod("wide", gpus=4, priority=9),
            *(pod(f"low{n}", gpus=1) for n in range(3)),
            *(pod(f"high{n}", gpus=1, priority=5) for n in range(2)),
        ],
    )

    plan = planned(seen, work=0.0)

    # Three devices are free: for both of high priority, and for one of the others.
    assert {"high0", "high1"} < set(binds(plan))
    assert len(binds(plan)) == 3


def test_a_gang_that_is_dealt_without_work_starts_whole() -> None:
    pods = [
        pod("r", gpus=1, on="a", devices=(0,)),
        pod("wide", gpus=4, priority=9),
        *(pod(f"g{n}", gpus=1, gang="g") for n in range(2)),
        *(pod(f"h{n}", gpus=1, gang="h") for n in range(2)),
    ]
    plan = planned(world([node("a", gpus=4)], pods, gangs=[Gang("g", 2), Gang("h", 2)]), work=0.0)

    assert set(binds(plan)) in ({"g0", "g1"}, {"h0", "h1"})
    assert len({"Gang/g", "Gang/h"} & waiting(plan)) == 1
