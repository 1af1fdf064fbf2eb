"""What the reaction benchmark reads off a run: a command that never came is infinite, not left out."""

import pytest

from tests.agents.power_rack import NEVER, allowed_by, answered, at_floor_after, lowered_after
from tests.rigs.power_reaction import spread

BREACH_S = 10.0
TWO = {"a": [(1.0, 400.0), (10.2, 300.0)], "b": [(2.0, 500.0), (10.5, 350.0), (10.9, 300.0)]}


def test_the_first_command_and_the_one_that_is_enough_are_told_apart() -> None:
    """At 10.2 s 300 + 500 W, at 10.5 s 650 W, at 10.9 s 600 W."""
    first_s, enough_s = answered(TWO, 700.0, 620.0, BREACH_S)

    assert (first_s, enough_s) == (pytest.approx(0.2), pytest.approx(0.9))


def test_what_was_commanded_before_the_breach_is_no_answer_to_it() -> None:
    assert answered({"a": [(9.9, 100.0)]}, 700.0, 620.0, BREACH_S) == (NEVER, NEVER)


def test_a_rise_is_no_command() -> None:
    assert answered({"a": [(1.0, 300.0), (10.3, 400.0)]}, 700.0, 200.0, BREACH_S) == (NEVER, NEVER)


def test_a_node_that_was_told_nothing_counts_at_its_highest_limits() -> None:
    assert answered({"a": [(10.3, 100.0)], "b": []}, 700.0, 620.0, BREACH_S) == (pytest.approx(0.3), NEVER)


def test_an_agents_allowance_is_what_its_devices_were_set_to() -> None:
    orders = [(1.0, "g0", 400.0), (2.0, "g1", 300.0), (3.0, "g0", 350.0)]

    assert allowed_by(orders, {"g0": 700.0, "g1": 700.0}) == ((1.0, 1100.0), (2.0, 700.0), (3.0, 650.0))


def test_a_limit_is_set_when_a_device_gets_less_than_it_had() -> None:
    orders = [(1.0, "g0", 400.0), (10.1, "g0", 450.0), (10.2, "g1", 300.0), (10.4, "g0", 350.0)]

    assert lowered_after(orders, BREACH_S) == pytest.approx(0.4)
    assert lowered_after(orders[:3], BREACH_S) == NEVER


def test_the_floor_counts_from_when_the_last_device_reached_it_for_good() -> None:
    orders = [(11.0, "g0", 350.0), (12.0, "g1", 350.0), (13.0, "g1", 350.0)]

    assert at_floor_after(orders, 350.0, BREACH_S) == pytest.approx(2.0)
    assert at_floor_after([*orders, (14.0, "g0", 400.0)], 350.0, BREACH_S) == NEVER
    assert at_floor_after([], 350.0, BREACH_S) == NEVER


def test_one_answer_in_a_hundred_that_never_came_is_the_ninety_ninth_percentile() -> None:
    found = spread([*[0.1] * 98, NEVER, NEVER])

    assert (found["p50"], found["p99"], found["max"]) == (0.1, NEVER, NEVER)
