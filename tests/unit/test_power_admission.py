"""Admission: floors must fit every budget above, and headroom tells placement what is left."""

from dataclasses import replace

import numpy as np
import pytest

from power.admission import headroom_w, objection_to_more, objections_to_floors
from power.allocator import Allocator, AllocatorState, allocator_of, first_state, step
from power.explain import reason_of_cap
from power.rules import PowerRules
from power.tree import tree_of
from tests.watts import Device, Domain, power_table, row_of

PAIR = [Device("h", "n1", "high"), Device("l", "n2", "low")]


def after(budget_w: float, draws_w: tuple[float, float], seconds: int = 20) -> tuple[Allocator, AllocatorState]:
    """A row of a high and a low device in a world that obeys."""
    allocator = allocator_of(row_of(PAIR, budget_w), PowerRules(burst_share=0.0))
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
    assert objections_to_floors(tree_of(row_of(PAIR, 400.0))) == ()  # 200 + 200


def test_floors_over_a_budget_are_named_with_the_watts_that_are_missing() -> None:
    (why,) = objections_to_floors(tree_of(row_of(PAIR, 390.0)))

    assert (why.code, why.figures["over_w"]) == ("FloorsOverBudget", 10.0)


@pytest.mark.parametrize(("floor_w", "refused"), [(100.0, False), (101.0, True)])
def test_one_more_server_is_refused_when_its_floor_does_not_fit(floor_w: float, refused: bool) -> None:
    assert (objection_to_more(tree_of(row_of(PAIR, 500.0)), "n1", floor_w) is not None) == refused


def test_a_twice_fed_rack_must_fit_each_of_its_feeds() -> None:
    domains = [
        Domain("a", 1000.0),
        Domain("b", 250.0),
        Domain("rack", feeds={"a": 1.0, "b": 1.0}, kind="node"),
    ]

    why = objection_to_more(tree_of(power_table(domains, [Device("g", "rack")])), "rack", 60.0)

    assert why is not None
    assert "b's devices" in why.words  # 200 + 60 > 250


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


def test_the_low_class_gives_first_and_its_cap_says_so() -> None:
    allocator, state = after(620.0, (390.0, 390.0))

    assert reason_of_cap(allocator, state, 0, 2).code in ("NotCapped", "HasItsNeed")
    why = reason_of_cap(allocator, state, 1, 2)
    assert why.code == "BudgetShort"
    assert "row cannot carry all needs: class low gives up" in why.words
    assert 0.4 < why.figures["speed"] < 0.7  # about 220 of 400 W while computing prompts
