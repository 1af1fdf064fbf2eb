"""What can never start is no part of a batch: it changes neither the nodes that start nor the gap."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from placement.batch.columns import Memory
from placement.batch.ladder import BatchPlan, BatchSettings, plan_batch
from tests.builders.fleet import node, pod, shape, world
from tests.builders.plan_fleets import fleet, odd_asks, with_batch, with_pods

RACK = "topology.tonnage.dev/rack"


def planned(seen: Snapshot) -> BatchPlan:
    return plan_batch(seen, Memory(), BatchSettings(), rung="columns")


def startable(seen: Snapshot) -> set[str]:
    return {seen.pods.names[row] for row in np.flatnonzero(planned(seen).startable).tolist()}


@pytest.mark.parametrize("impossible", [20, 500])
def test_pods_that_can_never_start_change_neither_the_nodes_nor_the_gap(impossible: int) -> None:
    asks = odd_asks(1)
    seen = with_batch(fleet(100, asks), 1000, 1, asks)
    beside = with_pods(seen, shape(gpus=16, cpu_milli=4_000), impossible)  # no server has 16 GPUs

    without, plan = planned(seen), planned(beside)

    assert plan.cost == without.cost
    assert (plan.gap, plan.rounds) == (without.gap, without.rounds)
    assert len(plan.waiting) == impossible + len(without.waiting)


def test_a_pod_that_fits_on_no_node_beside_what_runs_cannot_start() -> None:
    seen = world([node("a", gpus=2)], [pod("r", gpus=1, on="a", devices=(0,)), pod("wide", gpus=2), pod("p", gpus=1)])

    assert startable(seen) == {"p"}


def test_a_gang_larger_than_the_free_resources_cannot_start() -> None:
    pods = [*(pod(f"g{i}", gpus=1, gang="big") for i in range(5)), pod("p", gpus=1)]

    assert startable(world([node("a", gpus=4)], pods, gangs=[Gang("big", 5)])) == {"p"}


def test_a_gang_whose_classes_fit_only_one_by_one_cannot_start() -> None:
    """Two nodes of 4 GPUs take two pods of 4, or four of 2, but not both: 16 GPUs of 8."""
    pods = [pod("w0", 4, gang="g"), pod("w1", 4, gang="g"), *(pod(f"h{i}", 2, gang="g") for i in range(4))]

    assert startable(world([node("a", gpus=4), node("b", gpus=4)], pods, gangs=[Gang("g", 6)])) == set()


def test_a_gang_that_fits_in_no_rack_cannot_start() -> None:
    nodes = [node(name, gpus=2, labels={RACK: name}) for name in "xyz"]
    pods = [*(pod(f"g{i}", gpus=1, gang="g") for i in range(3)), *(pod(f"h{i}", gpus=1, gang="h") for i in range(2))]

    assert startable(world(nodes, pods, gangs=[Gang("g", 3, within=RACK), Gang("h", 2, within=RACK)])) == {"h0", "h1"}


def test_members_beyond_the_minimum_do_not_rule_a_gang_out() -> None:
    pods = [pod(f"g{i}", gpus=1, gang="g") for i in range(6)]

    assert len(startable(world([node("a", gpus=4)], pods, gangs=[Gang("g", 4)]))) == 6


def test_a_gang_whose_running_members_are_in_a_full_rack_cannot_grow() -> None:
    nodes = [node(name, gpus=1, labels={RACK: name}) for name in "xy"]
    running = pod("g0", gpus=1, gang="g", on="x", devices=(0,))
    seen = world(nodes, [running, pod("g1", gpus=1, gang="g")], gangs=[Gang("g", 1, within=RACK)])

    assert startable(seen) == set()
    assert startable(replace(seen, gangs=(Gang("g", 1),))) == {"g1"}


def test_the_gap_is_a_fraction_of_the_nodes_that_start() -> None:
    """Two of three pods fit on 2 GPUs of 1 $ each. One is left out whatever is planned, so the node is proven."""
    plan = planned(
        world([node("a", gpus=2, cpu_milli=2_000, memory_bytes=2**31)], [pod(f"p{i}", gpus=1) for i in range(3)])
    )

    assert plan.cost.node_usd == pytest.approx(2.0)
    assert plan.cost.left_out_usd == pytest.approx(2.02)  # 1 % more than the node
    assert plan.gap == pytest.approx(0.0, abs=1e-4)
