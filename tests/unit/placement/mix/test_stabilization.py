"""A standing mix: scaled to its demand by starts or stops alone, and exchanged where that pays its starts."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cluster.actions import Scale
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType
from placement.mix.corrections import standing
from placement.mix.memory import SearchMemory
from placement.mix.planner import MixSettings, plan_mix
from tests.builders.fleet import node, pod, world
from tests.builders.mix import ample, of_types, profile, service


def fleet(rate: float, replicas: Mapping[str, int], start_share: float = 0.0, l4_price: float = 1.0) -> Snapshot:
    """A100s serve 10 requests/s for 3 $/h, L4s 2 requests/s for 1 $/h; starts cost nothing where not said."""
    wanted = service("ns/chat", rate=rate, replicas=of_types(replicas), start_share=start_share)
    nodes = [node("a", gpus=8, gpu_type="A100"), node("l", gpus=8, gpu_type="L4")]
    profiles = [profile("A100", [[10.0]]), profile("L4", [[2.0]])]
    return world(nodes, services=[wanted], profiles=profiles, prices={"A100": 3.0, "L4": l4_price})


def planned(snapshot: Snapshot) -> Plan:
    return standing(snapshot, plan_mix(snapshot, ample(), MixSettings(explain=False)), ample(), 0.001, SearchMemory())


def test_another_mix_is_taken_where_it_saves_more_than_its_starts_cost() -> None:
    # 3 requests/s need two L4s (2 $/h); one A100 (3 $/h) serves them, too. The saving of 1 $/h is what
    # two starts cost at half of an L4's price.
    assert planned(fleet(3.0, {"A100": 1}, start_share=0.49)).actions == (
        Scale("ns/chat", of_types({"A100": 0, "L4": 2})),
    )
    assert planned(fleet(3.0, {"A100": 1}, start_share=0.51)).actions == ()


def test_a_mix_that_a_little_more_demand_would_exchange_again_is_not_taken() -> None:
    # 3.9 requests/s fit two L4s, 3.9 × 1.05 = 4.1 do not: three cost as much as the A100.
    assert planned(fleet(3.9, {"A100": 1})).actions == ()


def test_a_mix_grows_by_the_cheapest_starts_and_shrinks_by_the_dearest_stops() -> None:
    # 15 requests/s cost least on one A100 and three L4s (6 $/h, as two A100s do); seven L4s lack one (8 $/h), which an
    # A100 and stops of five would save 2 $/h for, at the price of a start of 3 $/h.
    assert planned(fleet(15.0, {"L4": 7}, start_share=1.0)).actions == (Scale("ns/chat", of_types({"L4": 8})),)
    # 9 requests/s cost least on one A100 (3 $/h); of two A100s and two L4s, nothing need start for that.
    assert planned(fleet(9.0, {"A100": 2, "L4": 2}, start_share=1.0)).actions == (
        Scale("ns/chat", of_types({"A100": 1, "L4": 0})),
    )


def test_what_stops_serves_until_what_was_started_is_ready() -> None:
    # Two L4s (2 $/h) in place of an A100 (3 $/h).
    before = fleet(3.0, {"A100": 1})

    def loading(replicas: Mapping[str, int], *, is_loading: bool) -> Plan:
        (chat,) = before.services
        return planned(replace(before, services=(replace(chat, replicas=of_types(replicas), is_loading=is_loading),)))

    first = loading({"A100": 1}, is_loading=False)
    assert first.actions == (Scale("ns/chat", of_types({"L4": 2})),)
    assert first.services[0].instances == of_types({"L4": 2})
    assert loading({"A100": 1, "L4": 2}, is_loading=True).actions == ()
    assert loading({"A100": 1, "L4": 2}, is_loading=False).actions == (Scale("ns/chat", of_types({"A100": 0})),)


def test_what_stops_makes_room_at_once_where_there_is_none_beside_it() -> None:
    """One node of eight GPUs, all of them of instances that are to be exchanged for one of eight."""
    wide = InstanceType("A100", 8)
    profiles = [profile("A100", [[1.0]]), profile("A100", [[20.0]], gpus_per_instance=8)]
    had = service("ns/chat", rate=10.0, replicas=of_types({"A100": 8}), is_loading=False)

    def exchanged(*names: str) -> Plan:
        nodes = [node(name, gpus=8, gpu_type="A100") for name in names]
        held = [pod(f"ns/chat-{n}", 1, on="a", owner="ns/chat", gpu_types=("A100",), devices=(n,)) for n in range(8)]
        return planned(world(nodes, held, services=[had], profiles=profiles, prices={"A100": 3.0}))

    assert exchanged("a").actions == (Scale("ns/chat", {InstanceType("A100"): 0, wide: 1}),)
    assert exchanged("a", "b").actions == (Scale("ns/chat", {wide: 1}),)


def test_what_was_answered_of_a_standing_mix_is_not_searched_again() -> None:
    seen, memory, budget = fleet(3.9, {"A100": 1}), SearchMemory(), ample()
    plan = plan_mix(seen, ample(), MixSettings(explain=False))
    first = standing(seen, plan, budget, 0.001, memory)
    left = budget.work

    assert standing(seen, plan, budget, 0.001, memory).actions == first.actions == ()
    assert budget.work == left
    other = fleet(3.9, {"A100": 1}, start_share=0.5)
    standing(other, plan_mix(other, ample(), MixSettings(explain=False)), budget, 0.001, memory)
    assert budget.work < left


def test_among_mixes_of_one_price_what_runs_stays() -> None:
    for running in ({"A100": 1}, {"L4": 3}):
        assert planned(fleet(5.0, running)).actions == ()


def test_what_stands_says_what_runs_and_how_to_route_to_it() -> None:
    plan = planned(fleet(3.0, {"A100": 1}, start_share=1.0))
    (chat,) = plan.services

    assert chat.instances == of_types({"A100": 1})
    assert chat.cost_per_hour == pytest.approx(3.0)
    assert chat.routing is not None
    weights = dict(zip(chat.routing.instance_types, chat.routing.weight[0, 0], strict=True))
    assert weights[InstanceType("A100")] == pytest.approx(1.0)
    assert chat.notes[0].code == "Standing"
    assert chat.certificate is not None
    assert (chat.certificate.objective, chat.certificate.bound) == pytest.approx((3.0, 2.0), abs=0.6)
    assert plan.certificates["mix"].objective == pytest.approx(3.0)


def test_a_service_whose_instances_lost_their_seats_to_other_pods_takes_another_mix() -> None:
    # One A100 is requested, and all of them hold other pods: two L4s serve the demand.
    before = fleet(3.0, {"A100": 1}, start_share=1.0)
    others = [pod(f"other-{n}", gpus=1, on="a", devices=(n,)) for n in range(8)]
    waits = pod("chat", gpus=1, gpu_types=("A100",), owner="ns/chat")
    nodes = [node("a", gpus=8, gpu_type="A100"), node("l", gpus=8, gpu_type="L4")]
    full = replace(before, pods=world(nodes, [*others, waits]).pods)

    assert planned(full).actions == (Scale("ns/chat", of_types({"A100": 0, "L4": 2})),)

    runs = pod("chat", gpus=1, gpu_types=("A100",), owner="ns/chat", on="a", devices=(7,))
    assert planned(replace(before, pods=world(nodes, [*others[:7], runs]).pods)).actions == (), "it has its seat"


def test_a_service_that_was_never_planned_gets_the_cheapest_mix() -> None:
    never = fleet(3.0, {}, start_share=1.0)
    unplanned = replace(never, services=tuple(replace(each, replicas=None) for each in never.services))

    assert planned(unplanned).actions == (Scale("ns/chat", of_types({"L4": 2})),)
