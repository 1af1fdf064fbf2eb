"""Placement that knows hours: peaks of workloads that peak together are kept apart."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.policies.best_fit import BestFit
from placement.power_room import PowerRoom
from power.burst import credit_after, overdrawn
from simulator.power.demand import made_up_rates
from simulator.power.machine import DGX_A100
from simulator.power.requests import Load
from simulator.power.rows import Service, expected_course_w, place, shifted

DAY, NIGHT = np.array([500.0, 100.0]), np.array([100.0, 500.0])


def room(of_node: list[int], *expected_w: list[float], budget_w: float = 2000.0) -> PowerRoom:
    return PowerRoom(np.array(of_node), np.full(len(expected_w), budget_w), np.array(expected_w))


def test_a_workload_goes_where_others_rest_while_it_works() -> None:
    both = room([0, 1], [1000.0, 200.0], [200.0, 1000.0])
    assert both.preferred(DAY, np.array([True, True])).tolist() == [False, True]  # type: ignore[union-attr]
    assert both.preferred(NIGHT, np.array([True, True])).tolist() == [True, False]  # type: ignore[union-attr]


def test_only_domains_with_a_feasible_node_are_preferred() -> None:
    both = room([0, 1], [1000.0, 200.0], [200.0, 1000.0])
    assert both.preferred(DAY, np.array([True, False])).tolist() == [True, False]  # type: ignore[union-attr]


def test_nodes_outside_every_domain_are_left_to_the_policy() -> None:
    assert room([-1, -1], [0.0, 0.0]).preferred(DAY, np.array([True, True])) is None


def test_what_was_placed_counts_for_the_next() -> None:
    empty = room([0, 1], [0.0, 0.0], [0.0, 0.0])
    assert empty.after(DAY, 0).preferred(DAY, np.array([True, True])).tolist() == [False, True]  # type: ignore[union-attr]


@given(st.integers(0, 10_000))
def test_the_domain_taken_ends_with_the_lowest_peak_that_any_could(seed: int) -> None:
    chance = np.random.default_rng(seed)
    made = PowerRoom(np.arange(6) % 3, chance.uniform(900, 2000, 3), chance.uniform(0, 900, (3, 5)))
    course_w, feasible = chance.uniform(0, 300, 5), chance.random(6) < 0.6
    chosen = made.preferred(course_w, feasible)
    if chosen is None:
        assert not feasible.any()
        return
    shares = made.peak_share_with(course_w)
    assert chosen.any()
    assert not (chosen & ~feasible).any()
    taken = made.of_node[np.flatnonzero(chosen)[0]]
    assert shares[taken] <= min(shares[made.of_node[n]] for n in np.flatnonzero(feasible)) + 1e-9


def test_services_with_different_hours_share_rows_and_blind_packing_separates_them() -> None:
    curve, load = made_up_rates(), Load()
    services = [Service(f"s{n}", shifted(curve, 12.0 * n), 8) for n in range(2)]
    courses = [expected_course_w(DGX_A100, service.curve, load, 7) for service in services]
    order = np.repeat([0, 1], 8)
    rest = PowerRoom(np.arange(16) // 8, np.full(2, 50_000.0), np.full((2, 24), 8 * DGX_A100.idle_w))
    blind = place(services, 2, 8, BestFit(), room=None, courses_w=courses, order=order)
    aware = place(services, 2, 8, BestFit(), room=rest, courses_w=courses, order=order)
    assert sorted(blind.tolist()) == [[0, 8], [8, 0]]
    assert abs(aware - 4).max() <= 1


def test_a_liar_is_found_by_its_account_and_an_honest_burst_is_not() -> None:
    burst_j, lease_w = np.array([4000.0, 4000.0]), np.array([1000.0, 1000.0])
    credit_j = burst_j.copy()
    for _ in range(40):  # 80 s: the first never keeps to its lease, the second bursts for 2 s and then keeps to it
        draw_w = np.array([1500.0, 1000.0 if _ else 3000.0])
        credit_j = credit_after(credit_j, draw_w, lease_w, burst_j, 2.0, 300.0)
    assert overdrawn(credit_j, burst_j).tolist() == [True, False]
