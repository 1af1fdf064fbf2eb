"""Searches that go on from plan to plan, where the same question is asked again."""

from dataclasses import replace

import numpy as np

from cluster.clock import Clock
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from placement.budget import Budget
from placement.mix.memory import SearchMemory
from placement.mix.optimizer import work_of
from placement.mix.planner import MixSettings, plan_mix
from tests.builders.fleet import node, world
from tests.builders.many_services import GPUS_PER_NODE, definitions, fleet, services
from tests.builders.mix import profile, service
from tests.mix_exact.comparison import observed

SETTINGS = MixSettings(explain=False)
STOPPED: Clock = lambda: 0.0  # noqa: E731 - no plan here ends by time


def cluster(load: float, count: int = 4) -> Snapshot:
    """Ten nodes of each GPU type. load: fraction of the fleet's dollars that the services need."""
    nodes = 50
    return observed([*fleet(nodes), *definitions(), *services(count, nodes * GPUS_PER_NODE, 42, load)])


def planned(snapshot: Snapshot, memory: SearchMemory, within_s: float = 0.2) -> tuple[Plan, float]:
    """The plan, and the work that it took."""
    budget = Budget(work_of(within_s), STOPPED)
    before = budget.work
    return plan_mix(snapshot, budget, SETTINGS, memory), before - budget.work


def gap(plan: Plan) -> float:
    return plan.certificates["mix"].gap


def test_plans_of_the_same_question_close_the_gap_and_then_cost_no_work() -> None:
    snapshot, memory = cluster(load=0.2, count=10), SearchMemory()

    plans = [planned(snapshot, memory, within_s=0.1) for _ in range(8)]

    gaps = [gap(plan) for plan, _ in plans]
    assert gaps[0] > SETTINGS.gap, "the first plan's work must not suffice, or this test shows nothing"
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] <= SETTINGS.gap
    assert plans[-1][1] == 0.0


def test_services_that_compete_cost_no_work_again_once_their_exact_model_is_solved() -> None:
    """Two services that each want both of the cheap devices: one has to use the dear ones."""
    nodes = [node("c", gpus=2, gpu_type="cheap"), node("d", gpus=8, gpu_type="dear")]
    profiles = [profile("cheap", [[1.0]]), profile("dear", [[1.0]])]
    both = [service(f"ns/{name}", rate=2.0) for name in "ab"]
    snapshot = world(nodes, services=both, profiles=profiles, prices={"cheap": 1.0, "dear": 3.0})
    memory = SearchMemory()

    first, second = (planned(snapshot, memory, within_s=2.0) for _ in range(2))

    assert first[1] > 0.0
    assert gap(second[0]) == 0.0
    assert second[0].certificates["mix"].objective == first[0].certificates["mix"].objective
    assert second[1] == 0.0


def test_without_memory_every_plan_stops_at_the_same_gap() -> None:
    snapshot = cluster(load=0.2)

    assert gap(planned(snapshot, SearchMemory())[0]) == gap(planned(snapshot, SearchMemory())[0]) > SETTINGS.gap


def test_another_demand_is_another_question() -> None:
    snapshot, memory = cluster(load=0.2, count=1), SearchMemory()
    planned(snapshot, memory, within_s=5.0)
    (service,) = snapshot.services
    assert service.demand is not None
    more = replace(service, demand=replace(service.demand, rate_per_s=1.5 * service.demand.rate_per_s))

    again, _ = planned(replace(snapshot, services=(more,)), memory, within_s=5.0)

    fresh, _ = planned(replace(snapshot, services=(more,)), SearchMemory(), within_s=5.0)
    assert again.services[0].cost_per_hour == fresh.services[0].cost_per_hour


def test_a_bound_that_held_for_another_stock_is_not_used() -> None:
    """With less stock every mix is dearer; with more it may be cheaper than what was proven before."""
    small, memory = cluster(load=0.6, count=2), SearchMemory()
    planned(small, memory, within_s=5.0)
    large = cluster(load=0.6, count=2)
    large = replace(large, nodes=observed([*fleet(200), *definitions()]).nodes)

    plan, _ = planned(large, memory, within_s=5.0)

    fresh, _ = planned(large, SearchMemory(), within_s=5.0)
    certificate = plan.certificates["mix"]
    assert certificate.bound <= fresh.certificates["mix"].objective + 1e-6


def test_services_that_compete_for_a_stock_go_on_with_their_columns() -> None:
    snapshot, memory = cluster(load=0.6, count=6), SearchMemory()

    gaps = [gap(planned(snapshot, memory, within_s=0.5)[0]) for _ in range(8)]

    assert memory.shared is not None, "they must compete, or this test shows nothing"
    assert gaps[-1] < gaps[0]


def test_many_services_on_a_stock_that_binds_are_close_to_their_bound_and_good_by_their_fourth_plan() -> None:
    """20 services, five GPU types, 1,000 nodes, of which one type is used up. A later plan changes instances only for
    more than the changes cost, also where another planner makes it, such as one on Ray that takes over."""
    machines, count = 1000, 20
    manifests = [*fleet(machines), *definitions(), *services(count, machines * GPUS_PER_NODE, 42)]
    snapshot, memory = observed(manifests), SearchMemory()

    first, _ = planned(snapshot, memory, within_s=2.0)
    after = snapshot.after(first.actions)
    second, _ = planned(after, memory, within_s=2.0)
    later = after.after(second.actions)
    third, _ = planned(later, memory, within_s=2.0)
    fourth, _ = planned(later.after(third.actions), memory, within_s=2.0)
    of_another_planner, _ = planned(after, SearchMemory(), within_s=2.0)

    assert memory.shared is not None, "they must compete, or this test shows nothing"
    assert SETTINGS.gap < gap(second) <= gap(first) < 0.003
    assert gap(fourth) <= SETTINGS.gap
    assert gap(of_another_planner) < 0.003
    kept = sum(each.cost_per_hour for each in first.services)
    assert second.certificates["mix"].objective <= kept + 1e-6
    assert of_another_planner.certificates["mix"].objective <= kept + 1e-6


def test_after_a_change_of_demand_services_that_compete_go_on_from_the_prices_of_their_stock() -> None:
    """A new search spends this work on prices, and is 0.6 % dearer."""
    machines, count = 1000, 20
    manifests = [*fleet(machines), *definitions(), *services(count, machines * GPUS_PER_NODE, 42)]
    snapshot, memory = observed(manifests), SearchMemory()
    for _ in range(2):
        snapshot = snapshot.after(planned(snapshot, memory, within_s=1.0)[0].actions)
    chance, moved = np.random.default_rng(7), []
    for each in snapshot.services:
        assert each.demand is not None
        rate_per_s = each.demand.rate_per_s * float(chance.uniform(0.97, 1.03))
        moved.append(replace(each, demand=replace(each.demand, rate_per_s=rate_per_s)))
    snapshot = replace(snapshot, services=tuple(moved))

    costs = [
        sum(each.cost_per_hour for each in planned(snapshot, kept, within_s=0.5)[0].services)
        for kept in (memory, SearchMemory())
    ]

    assert costs[0] < 0.997 * costs[1]


def with_devices_taken(snapshot: Snapshot, share: float) -> Snapshot:
    """The same nodes, of which this share has a single device left, as where other pods hold the others."""
    nodes = snapshot.nodes
    gpus = nodes.gpus.copy()
    gpus[: round(share * len(gpus))] = 1
    return replace(snapshot, nodes=replace(nodes, gpus=gpus))


def test_devices_that_others_take_of_an_ample_stock_cost_no_work_and_change_no_mix() -> None:
    snapshot, memory = cluster(load=0.02), SearchMemory()
    plans = [planned(snapshot, memory, within_s=2.0) for _ in range(4)]
    assert plans[-1][1] == 0.0, "the searches must be done, or this test shows nothing"

    after, work = planned(with_devices_taken(snapshot, 0.1), memory)

    assert work == 0.0
    assert [each.instances for each in after.services] == [each.instances for each in plans[-1][0].services]


def test_a_stock_that_binds_is_searched_anew_when_it_changes() -> None:
    snapshot, memory = cluster(load=0.6, count=1), SearchMemory()
    planned(snapshot, memory, within_s=5.0)
    fewer = with_devices_taken(snapshot, 0.9)

    plan, work = planned(fewer, memory, within_s=5.0)

    fresh, _ = planned(fewer, SearchMemory(), within_s=5.0)
    assert work > 0.0
    assert [each.refusal for each in plan.services] == [each.refusal for each in fresh.services]
    assert plan.services[0].cost_per_hour == fresh.services[0].cost_per_hour
