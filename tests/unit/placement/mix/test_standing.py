"""Mixes that stand from plan to plan: where a search finds nothing more, and while pods wait."""

from dataclasses import replace

import pytest

from cluster.snapshot import Snapshot
from placement.mix.memory import MOST_RESTED, FoundMixes, SearchMemory, StandingMixes
from placement.mix.problem import MixQuestion
from tests.builders.fleet import node, pod, world
from tests.builders.many_services import definitions, fleet
from tests.mix_exact.comparison import observed
from tests.unit.placement.mix.test_search_memory import SETTINGS, cluster, gap, planned

WITHIN_S = 0.2
"""Planning time whose work does not close the gap of these services."""


@pytest.fixture(scope="module")
def services() -> Snapshot:
    return cluster(load=0.2, count=2)


def with_a_waiting_pod(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, pods=world([node("n")], [pod("ns/waits", gpus=1)]).pods)


def on_a_fleet_of(snapshot: Snapshot, nodes: int) -> Snapshot:
    return replace(snapshot, nodes=observed([*fleet(nodes), *definitions()]).nodes)


def test_while_pods_wait_mixes_with_a_gap_stand_and_are_searched_again_in_one_plan_of_twenty(
    services: Snapshot,
) -> None:
    memory, waits = SearchMemory(), with_a_waiting_pod(services)

    first, *more = [planned(waits, memory, WITHIN_S) for _ in range(MOST_RESTED + 2)]

    assert first[1] > 0
    assert gap(first[0]) > SETTINGS.gap
    assert [work for _, work in more[:-1]] == [0.0] * MOST_RESTED
    assert more[-1][1] > 0
    assert gap(more[-1][0]) < gap(more[-2][0]) == gap(first[0])


@pytest.mark.parametrize("nodes", [52, 55])
def test_another_stock_that_holds_the_mixes_starts_no_search_while_pods_wait(services: Snapshot, nodes: int) -> None:
    memory, waits = SearchMemory(), with_a_waiting_pod(services)
    planned(waits, memory, WITHIN_S)

    plan, work = planned(on_a_fleet_of(waits, nodes), memory, WITHIN_S)

    assert work == 0.0
    assert plan.certificates["mix"].cut_short == "work", "the bound is that of the stock before"


def test_the_same_objects_read_anew_start_no_search(services: Snapshot) -> None:
    """A planner in another process decodes each snapshot from a frame."""
    memory = SearchMemory()
    planned(with_a_waiting_pod(services), memory, WITHIN_S)
    anew = tuple(replace(profile) for profile in services.profiles)

    assert planned(replace(with_a_waiting_pod(services), profiles=anew), memory, WITHIN_S)[1] == 0.0


def test_mixes_without_seats_do_not_stand(services: Snapshot) -> None:
    memory, waits = SearchMemory(), with_a_waiting_pod(services)
    planned(waits, memory, WITHIN_S)

    assert planned(on_a_fleet_of(waits, 5), memory, WITHIN_S)[1] > 0


def test_without_waiting_pods_another_stock_is_searched_at_once(services: Snapshot) -> None:
    memory = SearchMemory()
    planned(services, memory, WITHIN_S)

    assert planned(on_a_fleet_of(services, 55), memory, WITHIN_S)[1] > 0


def test_another_demand_is_searched_at_once_although_pods_wait(services: Snapshot) -> None:
    memory, waits = SearchMemory(), with_a_waiting_pod(services)
    planned(waits, memory, WITHIN_S)
    first, *others = waits.services
    assert first.demand is not None
    more = replace(first, demand=replace(first.demand, rate_per_s=1.5 * first.demand.rate_per_s))

    assert planned(replace(waits, services=(more, *others)), memory, WITHIN_S)[1] > 0


def test_searches_that_find_nothing_rest_ever_longer(services: Snapshot) -> None:
    """A gap that no search closes: at rest, an operator's plans would search for it for ever."""
    memory = SearchMemory()
    planned(services, memory, WITHIN_S)
    assert memory.standing is not None
    first = memory.standing.found

    standing, rests = memory.standing, list[int]()
    for _ in range(6):
        standing = StandingMixes.after(first, lambda *_: services_question(first), standing)
        rests.append(standing.rest)
    better = replace(first, certificate=replace(first.certificate, objective=0.9 * first.certificate.objective))

    assert rests[1:] == [1, 3, 7, 15, MOST_RESTED]
    assert StandingMixes.after(better, lambda *_: services_question(first), standing).rest == 0


def services_question(found: FoundMixes) -> MixQuestion:
    return MixQuestion(found.needs)
