from pathlib import Path

import numpy as np
import pytest

from autoscaler.forecast import linear
from autoscaler.forecast.grid import LEVELS
from benchmarks.forecast import forecast, forecast_rows
from simulator.scaling.traces import generated_trace
from tests.rigs.scaling.forecast_scores import PEERS, peer_quantiles, scores, taken_out


def test_the_crps_of_a_certain_forecast_is_its_absolute_error() -> None:
    quantiles = np.full((4, len(LEVELS)), 10.0)
    found = scores(LEVELS, quantiles, np.array([7.0, 13.0, 10.0, 18.0]), unit=1.0, day=2)
    # |errors| 3, 3, 0, 8: mean 3.5. Two times the mean pinball loss over levels that are even around 0.5 is that.
    assert found["crps"] == pytest.approx(3.5)
    assert found["pinball_50"] == pytest.approx(1.75)


def test_coverage_counts_what_lies_between_the_bounds() -> None:
    quantiles = np.tile(np.linspace(0.0, 16.0, len(LEVELS)), (4, 1))
    # The interval at 90 percent reaches from 3 to 13, the one at 99 from 0 to 16.
    found = scores(LEVELS, quantiles, np.array([3.0, 13.0, 15.0, 17.0]), unit=1.0, day=2)
    assert (found["coverage_90"], found["coverage_99"]) == (0.5, 0.75)
    assert (found["coverage_90_day_low"], found["coverage_90_day_high"]) == (0.0, 1.0)


def test_the_crps_of_a_normal_forecast_is_the_known_one() -> None:
    chance = np.random.default_rng(1)
    quantiles = np.tile(np.quantile(chance.normal(size=200_000), LEVELS), (20_000, 1))
    # A standard normal forecast of standard normal values: 1 / sqrt(pi); half a percent of each tail is left out.
    found = scores(LEVELS, quantiles, chance.normal(size=20_000), unit=1.0, day=1440)
    assert found["crps"] == pytest.approx(1 / np.sqrt(np.pi), rel=0.03)


def test_every_model_is_scored_on_the_same_samples() -> None:
    trace = generated_trace(seed=3, days=3)
    records = list(forecast_rows(trace, 2880, 2880 + 288, (1, 5)))
    assert {record["model"] for record in records} == {"naive", "ewma", "core", "auto", *PEERS}
    for lead in (1.0, 5.0):
        assert len({record["n"] for record in records if record["lead_min"] == lead}) == 1


def test_a_coarse_trace_is_forecast_by_its_steps_and_a_week_is_five_days_and_two(tmp_path: Path) -> None:
    load = generated_trace(seed=2, days=7, step_s=1800.0).values
    week = tmp_path / "week.csv"
    week.write_text("t_s,rides\n" + "".join(f"{1800 * n},{value:g}\n" for n, value in enumerate(load)))

    records = list(forecast(traces=(week,), leads=(1.0, 5.0)))

    assert {record["lead_min"] for record in records} == {30.0, 60.0}
    # Two days of half hours, less the lead before the first that can be judged.
    assert {record["n"] for record in records if record["lead_min"] == 60.0} == {2 * 48 - 2}


def test_a_mechanism_that_was_taken_out_is_back_afterwards() -> None:
    before = linear.seasons
    with taken_out("season"):
        assert linear.seasons is not before
    assert linear.seasons is before


def test_a_peer_knows_nothing_of_the_points_that_it_forecasts() -> None:
    values = generated_trace(seed=1, days=1).values[:400].copy()
    before = peer_quantiles(values, 0.3, 5, 100, 200)
    values[301:] *= 10.0
    np.testing.assert_array_equal(peer_quantiles(values, 0.3, 5, 100, 200)[: 301 + 5], before[: 301 + 5])
