"""Limits of autoscaling/v2; figures worked by hand after calculateScaleUpLimitWithScalingRules and its siblings."""

from typing import Literal

import pytest

from autoscaler.decision.decide import stabilized, within_steps
from cluster.autoscaling import Behavior, ScalingRules, ScalingStep

NOW_S = 1000.0


def rules(select: Literal["Max", "Min", "Disabled"], *steps: ScalingStep) -> ScalingRules:
    return ScalingRules(select=select, steps=steps)


FOUR_PODS = ScalingStep("Pods", 4, 15.0)
DOUBLE = ScalingStep("Percent", 100, 15.0)


@pytest.mark.parametrize(
    ("select", "current", "up_to"),
    [("Max", 2, 6), ("Max", 10, 20), ("Min", 2, 4), ("Min", 10, 14), ("Disabled", 10, 10)],
)
def test_scaling_up_goes_as_far_as_the_selected_step(
    select: Literal["Max", "Min", "Disabled"], current: int, up_to: int
) -> None:
    assert within_steps(99, current, Behavior(up=rules(select, FOUR_PODS, DOUBLE)), (), NOW_S) == up_to


@pytest.mark.parametrize(("select", "down_to"), [("Max", 8), ("Min", 9), ("Disabled", 10)])
def test_scaling_down_goes_as_far_as_the_selected_step(select: Literal["Max", "Min", "Disabled"], down_to: int) -> None:
    # One pod, or 20 % of ten.
    steps = (ScalingStep("Pods", 1, 60.0), ScalingStep("Percent", 20, 60.0))
    assert within_steps(0, 10, Behavior(down=rules(select, *steps)), (), NOW_S) == down_to


def test_changes_within_the_period_count_and_older_ones_do_not() -> None:
    up = Behavior(up=rules("Max", FOUR_PODS))
    assert within_steps(99, 10, up, ((NOW_S - 10.0, 3),), NOW_S) == 11  # 7 at the start of the period, plus 4
    assert within_steps(99, 10, up, ((NOW_S - 15.0, 3),), NOW_S) == 14
    assert within_steps(99, 10, up, ((NOW_S - 10.0, 4), (NOW_S - 5.0, 2)), NOW_S) == 10  # spent: never below current


def test_a_percentage_of_nothing_still_starts_one() -> None:
    assert within_steps(5, 0, Behavior(up=rules("Max", DOUBLE)), (), NOW_S) == 1


def test_small_changes_are_left_out_within_the_tolerance() -> None:
    behavior = Behavior(up=ScalingRules(tolerance=0.1), down=ScalingRules(tolerance=0.2))
    assert within_steps(11, 10, behavior, (), NOW_S) == 10
    assert within_steps(12, 10, behavior, (), NOW_S) == 12
    assert within_steps(8, 10, behavior, (), NOW_S) == 10
    assert within_steps(7, 10, behavior, (), NOW_S) == 7


def test_the_highest_recommendation_of_the_window_holds_a_scale_down_back() -> None:
    behavior = Behavior(down=ScalingRules(stabilization_s=300.0))
    recommended = ((NOW_S - 301.0, 9), (NOW_S - 200.0, 6), (NOW_S - 100.0, 4))
    assert stabilized(3, 10, behavior, recommended, NOW_S) == 6
    assert stabilized(12, 10, behavior, recommended, NOW_S) == 12


def test_the_lowest_recommendation_of_the_window_holds_a_scale_up_back() -> None:
    behavior = Behavior(up=ScalingRules(stabilization_s=60.0))
    assert stabilized(20, 10, behavior, ((NOW_S - 30.0, 12), (NOW_S - 90.0, 5)), NOW_S) == 12
    assert stabilized(20, 10, behavior, ((NOW_S - 30.0, 5),), NOW_S) == 10
