"""Admission: floors must fit every budget above, and placement receives the remaining headroom."""

from dataclasses import replace

import numpy as np

from power.control.admission import headroom_w, held_back, objections_to_floors, speed_at, tightest
from power.control.state import Allocator, AllocatorState, allocator_of, first_state
from power.control.step import step
from power.rules import PowerRules
from power.tree import tree_of
from tests.builders.power import Device, Domain, power_table, row_of

PAIR = [Device("h", "n1", "high"), Device("l", "n2", "low")]


def after(budget_w: float, draws_w: tuple[float, float], seconds: int = 20) -> tuple[Allocator, AllocatorState]:
    """A row of a high and a low device in a world that obeys."""
    allocator = allocator_of(row_of(PAIR, budget_w), PowerRules(burst_share=0.0, first_swing_share=0.0))
    state, cap_w, sequence = first_state(allocator), np.array([400.0, 400.0]), np.array([-1, -1])
    for second in range(0, seconds, 2):
        seen = replace(
            allocator.tree.table.readings,
            at_s=np.full(2, float(second)),
            draw_w=np.minimum(draws_w, cap_w),
            cap_w=cap_w,
            sequence=sequence,
            phase=np.array([2, 2]),
        )
        state, grants = step(allocator, state, seen, float(second))
        cap_w, sequence = grants.cap_w, grants.sequence
    return allocator, state


def test_floors_that_fit_are_admitted() -> None:
    assert objections_to_floors(tree_of(row_of(PAIR, 400.0))) == {}  # 200 + 200


def test_floors_over_a_budget_are_named_with_the_watts_that_are_missing() -> None:
    ((domain, why),) = objections_to_floors(tree_of(row_of(PAIR, 390.0))).items()

    assert (domain, why.code, why.figures["over_w"]) == ("row", "FloorsOverBudget", 10.0)


def test_a_twice_fed_rack_must_fit_each_of_its_feeds() -> None:
    domains = [
        Domain("a", 1000.0),
        Domain("b", 190.0),
        Domain("rack", feeds={"a": 1.0, "b": 1.0}, kind="node"),
    ]

    assert objections_to_floors(tree_of(power_table(domains, [Device("g", "rack")]))).keys() == {"b"}  # 200 > 190


def test_headroom_is_what_the_draw_and_its_spike_leave() -> None:
    allocator, state = after(1000.0, (300.0, 250.0))

    # 1000 less 550 drawn; the draw never rose
    assert headroom_w(allocator, state) == {"row": 450.0, "n1": 450.0, "n2": 450.0}


def test_floors_of_devices_at_rest_take_no_headroom_from_pods_that_start_on_them() -> None:
    allocator, state = after(1000.0, (60.0, 60.0))

    assert headroom_w(allocator, state)["row"] == 880.0  # 1000 - 60 - 60; both floors of 200 fit


def test_nothing_more_may_start_where_the_floors_do_not_fit() -> None:
    allocator, state = after(390.0, (60.0, 60.0))

    assert headroom_w(allocator, state)["row"] == -10.0  # 390 - 200 - 200


def test_the_low_class_gives_first_and_what_that_costs_is_said() -> None:
    allocator, state = after(620.0, (390.0, 390.0))

    assert held_back(allocator, state).tolist() == [False, True]
    assert tightest(allocator, state).tolist() == [0, 0]  # the row, the only limit
    # about 220 of 400 W while computing prompts
    assert 0.4 < speed_at("A100", 2, float(state.ledger.cap_w[1]) / 400.0) < 0.7


def test_other_loads_of_a_domain_count_beside_the_floors() -> None:
    objections = objections_to_floors(tree_of(row_of(PAIR, 400.0, other_w=30.0)))

    assert objections["row"].figures["over_w"] == 30.0


def test_a_device_that_opted_out_is_admitted_at_its_highest_limit() -> None:
    pair = [replace(PAIR[0], managed=False), PAIR[1]]

    assert objections_to_floors(tree_of(row_of(pair, 590.0)))["row"].figures["over_w"] == 10.0  # 400 + 200
    assert objections_to_floors(tree_of(row_of(pair, 600.0))) == {}


def test_the_measured_spike_is_left_free() -> None:
    allocator, state = after(1000.0, (300.0, 250.0))
    rises = replace(state, memory=replace(state.memory, spike_w=np.array([70.0])))

    assert headroom_w(allocator, rises)["row"] == 380.0


def test_metered_power_that_no_device_accounts_for_is_not_free() -> None:
    allocator, state = after(1000.0, (300.0, 250.0))

    assert headroom_w(allocator, state, np.array([100.0]))["row"] == 350.0
