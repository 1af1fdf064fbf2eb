"""Batch planning: the nodes that start, the pods that get scarce capacity, and the unplaced remainder."""

import pytest

from cluster.actions import Bind
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PlannerMemory
from controller.deciders.pipeline import decide
from placement.batch.column_generation import rounds_at_most
from placement.batch.columns import Memory
from placement.batch.ladder import BatchPlan, BatchSettings, Rung, plan_batch, rounds_for, rung_for
from placement.batch.problem import SYSTEM_PRIORITY, batch_of
from tests.builders.fleet import GIB, node, pod, world

RACK = "topology.tonnage.dev/rack"
RUNGS: tuple[Rung, ...] = ("best-fit", "relaxation", "columns")


def planned(seen: Snapshot, rung: Rung = "columns", memory: Memory | None = None) -> BatchPlan:
    return plan_batch(seen, memory or Memory(), BatchSettings(), rung=rung)


def decided(seen: Snapshot, *, preempt: bool = True, memory: PlannerMemory | None = None) -> Plan:
    decisions = Decisions(planner="columns", policy="bestfit", preempt=preempt)
    return decide(seen, decisions, deadline_s=20.0, clock=lambda: 0.0, memory=memory)


def binds(plan: Plan) -> dict[str, str]:
    return {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}


@pytest.mark.parametrize("rung", RUNGS)
def test_the_cheaper_node_starts(rung: Rung) -> None:
    nodes = [node("dear", gpus=4, gpu_type="H100"), node("cheap", gpus=4, gpu_type="L4", cpu_milli=16_000)]
    seen = world(nodes, [pod(f"p{n}", gpus=1) for n in range(3)], prices={"H100": 4.0, "L4": 1.0})

    plan = planned(seen, rung)

    # 4 L4 at 1 $; its host is 16 cores and 512 GiB: 0.48 + 2.05 = 2.53 $, less than its GPUs.
    assert plan.usd_per_hour == pytest.approx(4.0)
    assert set(plan.seats.node.tolist()) == {1}


@pytest.mark.parametrize("rung", RUNGS)
def test_free_resources_of_nodes_in_use_cost_nothing(rung: Rung) -> None:
    nodes = [node("used", gpus=4), node("idle", gpus=4)]
    seen = world(nodes, [pod("r", gpus=1, on="used", devices=(0,)), *(pod(f"p{n}", gpus=1) for n in range(3))])

    plan = planned(seen, rung)

    assert (plan.usd_per_hour, len(plan.seats), set(plan.seats.node.tolist())) == (0.0, 3, {0})


def test_a_node_that_runs_only_its_own_pods_is_idle() -> None:
    seen = world([node("a", cpu_milli=8_000)], [pod("daemon", on="a", priority=SYSTEM_PRIORITY), pod("p")])

    batch = batch_of(seen)

    assert not batch.in_use.any()
    assert batch.kinds[0].cpu_milli == 7_000


def test_two_kinds_of_pods_share_nodes_where_that_needs_fewer() -> None:
    """Each node takes one GPU pod of 6 cores and one CPU pod of 6 (12 of 12 cores); apart, they need three nodes."""
    nodes = [node(f"n{i}", gpus=1, cpu_milli=12_000) for i in range(4)]
    pods = [
        *(pod(f"g{i}", gpus=1, cpu_milli=6_000) for i in range(2)),
        *(pod(f"c{i}", cpu_milli=6_000) for i in range(2)),
    ]
    seen = world(nodes, pods, prices={"A100": 10.0})

    plan = planned(seen)

    assert plan.usd_per_hour == pytest.approx(20.0)
    assert plan.bound_usd == pytest.approx(20.0)


@pytest.mark.parametrize("rung", RUNGS)
def test_a_gang_that_does_not_fit_whole_leaves_its_resources_to_others(rung: Rung) -> None:
    nodes = [node("a", gpus=4)]
    pods = [*(pod(f"g{i}", gpus=1, gang="big") for i in range(5)), *(pod(f"p{i}", gpus=1) for i in range(4))]
    seen = world(nodes, pods, gangs=[Gang("big", 5)])

    plan = planned(seen, rung)

    assert [seen.pods.names[row] for row in sorted(plan.seats.row.tolist())] == ["p0", "p1", "p2", "p3"]


@pytest.mark.parametrize("rung", RUNGS)
def test_a_gang_within_a_rack_is_placed_in_one(rung: Rung) -> None:
    nodes = [node(f"{rack}{i}", gpus=2, labels={RACK: rack}) for rack in "xyz" for i in range(2 if rack == "y" else 1)]
    seen = world(nodes, [pod(f"g{i}", gpus=1, gang="g") for i in range(4)], gangs=[Gang("g", 4, within=RACK)])

    plan = planned(seen, rung)

    assert {seen.nodes.names[n][0] for n in plan.seats.node.tolist()} == {"y"}
    assert not len(plan.waiting)


def test_a_gang_with_too_few_pods_is_not_planned() -> None:
    seen = world([node("a", gpus=4)], [pod("g0", gpus=1, gang="g")], gangs=[Gang("g", 2)])

    plan = planned(seen)

    assert (len(plan.seats), plan.waiting.tolist(), plan.usd_per_hour) == (0, [0], 0.0)


def test_when_capacity_is_short_the_most_important_pods_get_it() -> None:
    seen = world([node("a", gpus=2)], [pod(f"p{i}", gpus=1, priority=i) for i in range(4)])

    assert set(binds(decided(seen))) == {"p2", "p3"}


def test_a_pod_of_lower_priority_takes_no_place_that_a_more_important_one_could_have() -> None:
    """Two small pods fill the node more cheaply per pod, but the large one comes first in service."""
    pods = [pod("large", gpus=4, priority=10), *(pod(f"small{i}", gpus=2) for i in range(2))]
    seen = world([node("a", gpus=4)], pods)

    assert set(binds(decided(seen))) == {"large"}


def test_an_unplaced_pod_is_reported_with_what_was_short() -> None:
    plan = decided(world([node("a", gpus=2)], [pod("wide", gpus=4), pod("p", gpus=1)]))

    assert binds(plan) == {"p": "a"}
    assert [u.workload for u in plan.unplaced] == ["Pod/wide"]


def test_running_pods_of_lower_priority_are_preempted() -> None:
    running = pod("low", gpus=2, on="a", devices=(0, 1), movable=True)
    plan = decided(world([node("a", gpus=2)], [running, pod("high", gpus=2, priority=10)]))

    assert binds(plan) == {"high": "a"}
    assert "batch" not in plan.certificates


def test_the_certificate_has_the_cost_and_the_bound_of_the_plan() -> None:
    seen = world([node("a", gpus=2), node("b", gpus=2)], [pod("p", gpus=1)], prices={"A100": 40.0})

    certificate = decided(seen).certificates["batch"]

    assert (certificate.objective, certificate.bound) == (pytest.approx(80.0), pytest.approx(80.0))
    assert certificate.gap == pytest.approx(0.0, abs=1e-6)


def test_a_batch_that_was_carried_out_asks_for_nothing_more() -> None:
    seen = world([node("a", gpus=2), node("b", gpus=2)], [pod(f"p{i}", gpus=1) for i in range(3)])
    plan = decided(seen)

    assert decided(seen.after(plan.actions)).actions == ()


def test_two_brains_that_saw_the_same_make_the_same_plans() -> None:
    worlds = [world([node(f"n{i}", gpus=4) for i in range(6)], _pods(count)) for count in (7, 9, 8)]
    brains = [InlineBrain(Decisions(planner="columns", policy="bestfit"), clock=lambda: 0.0) for _ in range(2)]

    first, second = ([brain.plan(seen, 20.0) for seen in worlds] for brain in brains)

    assert [plan.actions for plan in first] == [plan.actions for plan in second]


def _pods(count: int) -> list[object]:
    return [pod(f"p{i}", gpus=1 + i % 2, cpu_milli=1000 * (1 + i % 3)) for i in range(count)]  # type: ignore[misc]


def test_what_is_remembered_spares_the_search_after_a_little_churn() -> None:
    before = world([node(f"n{i}", gpus=4, memory_bytes=64 * GIB) for i in range(40)], _pods(100))
    after = world([node(f"n{i}", gpus=4, memory_bytes=64 * GIB) for i in range(40)], _pods(102))
    memory = planned(before).memory

    warm, cold = planned(after, memory=memory), planned(after)

    assert warm.rounds <= cold.rounds
    assert warm.bound_usd == pytest.approx(cold.bound_usd, rel=0.01)


def test_the_deadline_decides_the_stage() -> None:
    batch = batch_of(world([node("a", gpus=2)], [pod("p", gpus=1)]))
    # One kind takes 0.01 s a round, eleven take 0.11 s; half of the time is for columns.
    many = batch_of(world([node(f"n{i}", gpus=1 + i) for i in range(11)], [pod("p", gpus=1)]))

    assert rung_for(batch, 0.01) == "best-fit"
    assert rung_for(many, 0.2) == "relaxation"
    assert rung_for(batch, 1.0) == "columns"


def test_many_classes_of_pods_get_fewer_rounds_in_the_same_time() -> None:
    nodes = [node(f"n{i}", gpus=4) for i in range(4)]
    few, many = (batch_of(world(nodes, [pod(f"p{i}", cpu_milli=100 + i) for i in range(n)])) for n in (24, 96))

    assert (rounds_for(few, 2.0), rounds_for(many, 2.0)) == (100, 50)  # four times the classes, twice the time


def test_a_longer_deadline_compares_the_plans_of_a_shorter_one() -> None:
    rounds = [rounds_at_most(most) for most in (0, 1, 2, 7, 8, 49, 1000)]

    assert rounds == [1, 1, 1, 3, 8, 20, 50]


def test_half_a_node_is_no_proof_in_a_small_pool() -> None:
    nodes = [node(f"n{n}", gpus=8, gpu_type="L4") for n in range(4)]
    seen = world(nodes, [pod(f"p{n}", gpus=4) for n in range(3)], prices={"L4": 1.0})

    plan = planned(seen)

    # Two pods fit on a node of 8 $: fractions prove one and a half nodes, whole nodes prove two.
    assert plan.usd_per_hour == pytest.approx(16.0)
    assert plan.bound_usd == pytest.approx(16.0, rel=1e-4)
    assert plan.bound_usd <= plan.usd_per_hour
