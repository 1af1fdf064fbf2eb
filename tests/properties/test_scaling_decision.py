"""Rules that every scaling decision keeps, for arbitrary forecasts, lead times, limits and histories."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from autoscaler.decision.decide import decide, within_steps
from autoscaler.decision.outcome import ScalingDecision
from cluster.autoscaling import Behavior, LeadTime, Replicas, Scaler, ScalingObjective, ScalingRules, ScalingStep
from cluster.demand import Forecast
from tests.builders.scalers import LEVELS, NOW_S, scaler

BOUNDS = {"min", "max", "schedule", "disabled"}


def rules(draw: st.DrawFn) -> ScalingRules:
    steps = draw(
        st.lists(
            st.builds(
                ScalingStep,
                kind=st.sampled_from(["Pods", "Percent"]),
                value=st.integers(1, 150).map(float),
                period_s=st.sampled_from([15.0, 60.0, 600.0]),
            ),
            max_size=2,
        )
    )
    return ScalingRules(
        stabilization_s=draw(st.sampled_from([0.0, 0.0, 60.0, 300.0])),
        select=draw(st.sampled_from(["Max", "Max", "Min", "Disabled"])),
        steps=tuple(steps),
        tolerance=draw(st.sampled_from([0.0, 0.0, 0.1])),
    )


def events(draw: st.DrawFn, low: int, high: int) -> tuple[tuple[float, int], ...]:
    found = draw(st.lists(st.tuples(st.floats(0.0, 900.0), st.integers(low, high)), max_size=5))
    return tuple(sorted((NOW_S - age_s, number) for age_s, number in found))


@st.composite
def scalers(draw: st.DrawFn) -> Scaler:
    """A scaler in Auto with a forecast that is up to ten minutes old, of a load between 0 and about 100 replicas."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    wanted = draw(st.integers(0, 60))
    level = chance.uniform(0.0, 100.0) * chance.integers(0, 2)
    quantiles = np.sort(level + chance.gamma(1.0, 0.1 + level / 4, (20, len(LEVELS))), axis=1)
    low = draw(st.integers(0, 10))
    age_s = draw(st.sampled_from([0.0, 30.0, 600.0]))
    return scaler(
        wanted,
        replicas=Replicas(wanted, draw(st.integers(0, wanted))),
        min_replicas=low,
        max_replicas=low + draw(st.integers(0, 120)),
        replica_load=draw(st.sampled_from([0.5, 1.0, 7.0])),
        objective=ScalingObjective(
            price_per_hour=draw(st.sampled_from([0.5, 1.0, 30.0])),
            miss_cost=draw(st.sampled_from([1.0, 20.0, 99.0, 999.0])),
            switch_s=draw(st.sampled_from([0.0, 60.0, 3600.0])),
        ),
        behavior=Behavior(up=rules(draw), down=rules(draw)),
        load=float(chance.uniform(0, 100)),
        observed_at_s=NOW_S - age_s,
        forecast=Forecast(NOW_S - age_s, 60.0 * np.arange(1, 21), LEVELS, quantiles),
        lead_time=LeadTime(tuple(np.sort(chance.uniform(5.0, 1500.0, chance.integers(1, 40))).tolist())),
        recommended=events(draw, 0, 80),
        changes=events(draw, -20, 20),
        capacity_limit=draw(st.sampled_from([None, 0, 20, 60])),
        capacity_limited_by=draw(st.sampled_from(["power", "health", "stock", "quota"])),
    )


def decided(one: Scaler) -> ScalingDecision:
    decision = decide(one, NOW_S)
    assert decision is not None
    return decision


def without_limits(one: Scaler) -> Scaler:
    return replace(
        one,
        behavior=Behavior(ScalingRules(), ScalingRules()),
        min_replicas=0,
        max_replicas=10_000,
        capacity_limit=None,
        observed_at_s=NOW_S,
    )


@given(scalers())
def test_replicas_are_within_the_policys_bounds(one: Scaler) -> None:
    decision = decided(one)
    assert decision.limited_by == "disabled" or one.min_replicas <= decision.replicas <= one.max_replicas


@given(scalers())
def test_the_same_input_gives_the_same_decision(one: Scaler) -> None:
    assert decided(one) == decided(one)


@given(scalers())
def test_stale_metrics_never_scale_down_except_into_the_bounds(one: Scaler) -> None:
    assert one.replicas is not None
    late = replace(one, observed_at_s=NOW_S - one.max_age_s)
    assert decided(late).replicas >= min(one.replicas.wanted, one.max_replicas)


@given(scalers(), st.floats(1.0, 3.0))
def test_a_higher_load_never_gets_fewer_replicas(one: Scaler, factor: float) -> None:
    assert one.forecast is not None
    assert one.load is not None
    higher = replace(
        one, load=one.load * factor, forecast=replace(one.forecast, quantiles=one.forecast.quantiles * factor)
    )
    assert decided(higher).replicas >= decided(one).replicas


@given(scalers())
def test_the_load_offered_now_is_served_unless_something_is_named_that_prevents_it(one: Scaler) -> None:
    decision = decided(one)
    assert one.load is not None
    if decision.replicas < math.ceil(one.load / one.replica_load - 1e-9):
        assert decision.limited_by not in ("none", "load", "stale")


@given(scalers())
def test_changes_are_as_small_as_the_behaviour_says_unless_a_bound_is_behind_them(one: Scaler) -> None:
    decision = decided(one)
    current = decision.current
    furthest = within_steps(10_000 if decision.replicas > current else 0, current, one.behavior, one.changes, NOW_S)
    if decision.limited_by not in BOUNDS:
        assert min(current, furthest) <= decision.replicas <= max(current, furthest)


@given(scalers())
def test_without_a_limit_neither_one_fewer_nor_one_more_is_cheaper(one: Scaler) -> None:
    decision = decided(without_limits(one))
    assert decision.cost is not None
    if decision.limited_by == "none":
        assert decision.cost.one_more >= decision.cost.chosen - 1e-9
        assert decision.cost.one_fewer is None or decision.cost.one_fewer >= decision.cost.chosen - 1e-9


@given(scalers())
def test_a_recommendation_that_was_moved_has_a_limit_that_moved_it(one: Scaler) -> None:
    decision = decided(one)
    assert decision.replicas == decision.recommended or decision.limited_by != "none"


@given(scalers())
def test_hardware_that_is_short_prevents_starts_and_stops_nothing(one: Scaler) -> None:
    short = replace(one, capacity_limit=0)
    decision = decided(short)
    assert decision.replicas <= max(decision.current, one.min_replicas)
    if decided(one).replicas <= decision.current and one.capacity_limit is None:
        assert decision.replicas == decided(one).replicas
