"""Seats: every instance that the mix sells has a place on a node, whatever else is sold."""

import pytest

from cluster.plans import Plan
from cluster.workloads import InstanceType, ModelService, Requirement
from placement.mix.planner import plan_mix
from placement.stock import Footprint, Stock, patterns_of, stock_of_nodes
from tests.builders.fleet import node, pod, world
from tests.builders.mix import ample, of_types, profile, service

GIB = 2**30


def mixes(plan: Plan) -> dict[str, dict[InstanceType, int]]:
    return {each.service: dict(each.instances) for each in plan.services if each.refusal is None}


def test_cpu_of_instances_bounds_the_mix() -> None:
    """8 cheap GPUs beside 8 cores hold one instance of 8 cores; the second goes to the dear GPUs."""
    nodes = [node("c", gpus=8, cpu_milli=8000, gpu_type="cheap"), node("d", gpus=8, cpu_milli=64000, gpu_type="dear")]
    profiles = [profile("cheap", [[10.0]]), profile("dear", [[10.0]])]
    chat = service(rate=15.0, instance_cpu_milli=8000)

    plan = plan_mix(world(nodes, services=[chat], profiles=profiles, prices={"cheap": 1.0, "dear": 2.0}), ample())

    assert mixes(plan) == {"ns/chat": of_types({"cheap": 1, "dear": 1})}
    assert plan.certificates["mix"].objective == pytest.approx(3.0)
    assert plan.certificates["mix"].gap == 0.0


def test_services_with_different_cpu_share_a_node_only_as_far_as_it_holds_both() -> None:
    """Two nodes of 2 GPUs and 10 cores: 6 + 6 cores do not fit one node, 6 + 4 do. In sum all three fit: 16 of 20."""
    nodes = [node("a", gpus=2, cpu_milli=10000), node("b", gpus=2, cpu_milli=10000)]
    large, small = (service(f"ns/{n}", rate=2.0, instance_cpu_milli=c) for n, c in (("large", 6000), ("small", 4000)))
    profiles = [profile("A100", [[1.0]])]

    assert len(mixes(plan_mix(world(nodes, services=[large, small], profiles=profiles), ample()))) == 2
    more = service("ns/small", rate=1.0, instance_cpu_milli=5000)
    plan = plan_mix(world(nodes, services=[large, more], profiles=profiles), ample())

    assert list(mixes(plan)) == ["ns/large"]


def test_memory_of_instances_bounds_the_mix() -> None:
    nodes = [node("a", gpus=8, memory_bytes=64 * GIB)]
    chat = service(rate=3.0, instance_memory_bytes=30 * GIB)

    plan = plan_mix(world(nodes, services=[chat], profiles=[profile("A100", [[1.0]])]), ample())

    assert [each.refusal.code for each in plan.services if each.refusal] == ["InventoryShort"]


@pytest.mark.parametrize(
    ("narrow_rate", "served"),
    [
        pytest.param(2.0, ["ns/narrow"], id="both stay"),
        pytest.param(1.0, ["ns/wide", "ns/narrow"], id="one stops and leaves its node free"),
    ],
)
def test_running_instances_that_stay_leave_no_seat_for_a_wider_one(narrow_rate: float, served: list[str]) -> None:
    """Two nodes of 4 GPUs, a running instance of one GPU on each, and a service of 4 GPUs that comes first."""
    nodes = [node("a", gpus=4), node("b", gpus=4)]
    profiles = [profile("A100", [[1.0]]), profile("A100", [[1.0]], model="w", gpus_per_instance=4)]
    wide = service("ns/wide", model="w", priority=10)
    narrow = service("ns/narrow", rate=narrow_rate, replicas={InstanceType("A100"): 2})
    pods = [
        pod(
            f"ns/narrow-{n}", 1, on=n, devices=(0,), owner="ns/narrow", gpu_types=("A100",), cpu_milli=0, memory_bytes=0
        )
        for n in "ab"
    ]

    plan = plan_mix(world(nodes, pods, services=[wide, narrow], profiles=profiles), ample())

    assert list(mixes(plan)) == served


def test_more_than_sixty_four_overlapping_sets_of_nodes_are_still_exact() -> None:
    """Seven services, each restricted to all but one of seven nodes with a device each, and an eighth one too many."""
    nodes = [node(f"n{i}", gpus=1, labels={"zone": str(i)}) for i in range(7)]
    services = [_without_zone(f"ns/s{i}", str(i)) for i in range(8)]

    plan = plan_mix(world(nodes, services=services, profiles=[profile("A100", [[1.0]])]), ample())

    assert len(mixes(plan)) == 7


def _without_zone(name: str, zone: str) -> ModelService:
    return service(name, node_terms=((Requirement("zone", "NotIn", (zone,)),),))


def test_a_pattern_of_a_node_leaves_no_room_for_another_instance() -> None:
    one, wide = Footprint(1, 4000), Footprint(4, 4000)

    # 8 devices and 16 cores hold four instances of 4 cores, two of them wide at most.
    assert set(patterns_of(Footprint(8, 16000), (one, wide))) == {(4, 0), (3, 1), (0, 2)}


def test_stock_of_one_footprint_counts_whole_instances_per_node() -> None:
    stock = stock_of_nodes([Footprint(4, 8000), Footprint(3, 8000)], [Footprint(1, 3000)])

    assert stock.holds(Footprint(1, 3000)) == 4
    assert stock.minus(Footprint(1, 3000), 3).holds(Footprint(1, 3000)) == 1


def test_widths_that_divide_each_other_are_counted_by_slots() -> None:
    stock = stock_of_nodes([Footprint(8, 64000), Footprint(3, 64000)], [Footprint(1, 1000), Footprint(4, 4000)])

    assert stock == Stock(11, {4: 2})
