import math
from dataclasses import replace

import numpy as np
import pytest

from cluster.autoscaling import Scaler
from cluster.demand import Forecast
from cluster.errors import ConfigError
from simulator.scaling.replay import (
    MISS_COST,
    LoadScenario,
    ReplayRun,
    ReplicaFleet,
    direction_changes,
    oracle_run,
    replay,
    scenario_of,
    score,
)
from simulator.scaling.rival_rules import Fixed, Recommendation
from simulator.scaling.traces import generated_trace


def scenario(*load: float) -> LoadScenario:
    return LoadScenario("test", 60.0, 0.0, np.array(load), np.array([1.0]), 1.0)


def nothing(_step: int) -> Forecast | None:
    return None


def after_load(scaler: Scaler, _at_s: float) -> Recommendation:
    """As many replicas as the present load needs."""
    return Recommendation.plain(math.ceil(scaler.load or 0.0))


def test_a_replica_is_billed_from_its_order_and_serves_after_its_lead_time() -> None:
    run = replay(scenario(1, 1, 5, 5, 5, 5, 5), after_load, 120.0, nothing)
    assert run.wanted.tolist() == [1, 1, 5, 5, 5, 5, 5]
    assert run.ready.tolist() == [1, 1, 1, 1, 5, 5, 5]


def test_a_scale_down_cancels_the_latest_orders_first() -> None:
    fleet = ReplicaFleet(3, 120.0)
    fleet.scale(5, 0.0)
    fleet.scale(6, 60.0)
    fleet.scale(4, 60.0)
    assert (fleet.ready, fleet.wanted, fleet.replicas().ordered_at_s) == (3, 4, (0.0,))
    assert fleet.reach(119.0) == []
    assert fleet.reach(120.0) == [120.0]
    fleet.scale(2, 180.0)
    assert (fleet.ready, fleet.wanted) == (2, 2)


def test_the_score_counts_hours_shortfall_and_violations_beside_the_oracle() -> None:
    """Load 1, 1, 3: with a lead of one step the oracle wants 1, 3, 3 = 7; two replicas at all times miss one of 3."""
    seen = scenario(1, 1, 3)
    run = ReplayRun(np.array([2, 2, 2]), np.array([2, 2, 2]))
    result = score(seen, run, 60.0)
    assert result.gpu_hours_ratio == pytest.approx(6 / 7)
    assert result.shortfall_ratio == pytest.approx(1 / 7)
    assert result.violation_minutes_pct == pytest.approx(100 / 3)
    assert result.j == pytest.approx(6 / 7 + MISS_COST / 7)


def test_the_oracle_has_the_lowest_cost_without_a_miss() -> None:
    seen = scenario(*np.random.default_rng(3).uniform(0, 20, 200))
    result = score(seen, oracle_run(seen, 300.0), 300.0)
    assert (result.gpu_hours_ratio, result.shortfall_ratio, result.violation_minutes_pct) == (1.0, 0.0, 0.0)


def test_load_that_was_not_observed_is_not_missed_and_not_zero() -> None:
    nan = float("nan")
    seen = scenario(4, 4, nan, nan, 4)
    run = replay(seen, after_load, 60.0, nothing)
    assert run.wanted.tolist() == [4] * 5
    assert score(seen, ReplayRun(run.wanted, np.zeros(5, dtype=np.int64)), 60.0).violation_minutes_pct == 100.0


def test_direction_changes_ignore_repeated_steps_of_one_direction() -> None:
    assert direction_changes(np.array([1, 2, 2, 3, 2, 1, 1, 4])) == 2


def test_a_policy_learns_the_lead_time_from_the_starts_of_the_replay() -> None:
    seen = scenario(*np.tile([1.0, 9.0], 200))
    learned: list[float] = []

    def listening(scaler: Scaler, at_s: float) -> Recommendation:
        learned.append(float(np.median(scaler.lead_time.points_s)))
        return after_load(scaler, at_s)

    replay(seen, listening, 900.0, nothing)
    assert learned[-1] == 900.0


def test_the_scale_is_forty_replicas_at_the_peak_of_the_training_days() -> None:
    seen = scenario_of(generated_trace(1, days=4, step_s=600.0), train_days=2, days=1)
    assert np.quantile(seen.trained, 0.995) == pytest.approx(40.0)
    assert len(seen.load) == 144


def test_a_trace_without_load_is_refused() -> None:
    trace = generated_trace(1, days=4, step_s=600.0)
    with pytest.raises(ConfigError):
        scenario_of(replace(trace, values=np.zeros_like(trace.values)))
    with pytest.raises(ConfigError):
        scenario_of(replace(trace, values=trace.values[:20]))


def test_fixed_replicas_never_change() -> None:
    run = replay(scenario(1, 9, 1), Fixed(7), 0.0, nothing)
    assert run.wanted.tolist() == [7, 7, 7]
