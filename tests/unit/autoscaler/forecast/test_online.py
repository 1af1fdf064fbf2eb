import numpy as np
import pytest

from autoscaler.forecast.fits import fit
from autoscaler.forecast.grid import LEVELS
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import Series, regular
from cluster.arrays import FloatArray
from cluster.demand import Forecast
from simulator.scaling.traces import generated_trace

MINUTE_S = 60.0
MEDIAN, LOW, HIGH = 8, 0, len(LEVELS) - 1


def history(days: int, seed: int = 1) -> FloatArray:
    return generated_trace(seed, days).values


def after(values: FloatArray, *, with_fit: bool = False) -> OnlineForecaster:
    series = regular(0.0, MINUTE_S, values)
    return OnlineForecaster.of(series, fit(series) if with_fit else None)


def test_nothing_is_forecast_after_too_little_history() -> None:
    forecaster = OnlineForecaster(MINUTE_S)
    assert forecaster.forecast() is None
    for n in range(20):
        forecaster.observe(n * MINUTE_S, 5.0)
    assert forecaster.forecast() is None


def test_without_a_fit_there_are_forecasts_within_the_first_hour() -> None:
    forecaster = OnlineForecaster(MINUTE_S)
    for n, value in enumerate(history(1)[:61]):
        forecaster.observe(n * MINUTE_S, value)
    forecast = forecaster.forecast()
    assert forecast is not None
    assert forecast.leads_s.tolist() == [60, 120, 180, 300, 420, 600, 900, 1800]
    assert forecast.model in {"naive", "ewma"}


def test_a_forecaster_restored_from_a_history_goes_on_as_the_one_that_saw_it() -> None:
    values = history(4)
    learned = fit(regular(0.0, MINUTE_S, values[: 3 * 1440]))
    restored = OnlineForecaster.of(regular(0.0, MINUTE_S, values[: 3 * 1440 + 600]), learned)
    seen = OnlineForecaster.of(regular(0.0, MINUTE_S, values[: 3 * 1440]), learned)
    for n in range(3 * 1440, 4 * 1440):
        seen.observe(n * MINUTE_S, values[n])
        if n >= 3 * 1440 + 600:
            restored.observe(n * MINUTE_S, values[n])
    one, other = seen.forecast(), restored.forecast()
    assert one is not None
    assert other is not None
    # The window of errors of the restored one still begins with the fit's trial, so tails differ a little.
    np.testing.assert_allclose(one.quantiles[:, 4:13], other.quantiles[:, 4:13], rtol=0.02)
    np.testing.assert_allclose(one.quantiles, other.quantiles, rtol=0.15)


def test_a_new_fit_keeps_the_calibration_of_the_models_that_were_there() -> None:
    values = history(4)
    forecaster = after(values[: 3 * 1440], with_fit=True)
    for n in range(3 * 1440, 4 * 1440):
        forecaster.observe(n * MINUTE_S, values[n])
    skill = forecaster.skill
    forecaster.adopt(fit(forecaster.history.whole()))
    assert forecaster.skill == skill
    assert forecaster.observe(4 * 1440 * MINUTE_S, values[-1])


def test_the_core_is_trusted_where_it_wins() -> None:
    forecaster = after(history(4, seed=3), with_fit=True)
    assert forecaster.skill.trusted == "core"
    assert forecaster.skill.relative_loss["core"] < forecaster.skill.relative_loss["naive"] == 1.0


def test_a_model_that_loses_is_demoted_and_may_return() -> None:
    values = history(3, seed=3)
    chance = np.random.default_rng(2)
    forecaster = after(values, with_fit=True)
    assert forecaster.skill.trusted == "core"
    # Levels that jump every quarter of an hour: nothing that was learned before helps.
    jumps = np.repeat(chance.uniform(200.0, 4000.0, 192), 15)
    for n, value in enumerate(jumps):
        forecaster.observe((len(values) + n) * MINUTE_S, value)
    assert forecaster.skill.trusted != "core"
    for n, value in enumerate(history(3, seed=3)):
        forecaster.observe((len(values) + len(jumps) + n) * MINUTE_S, value)
    assert forecaster.skill.trusted == "core"


@pytest.mark.parametrize("value", [float("nan"), 0.0, -5.0, float("inf")])
def test_missing_samples_and_zero_gaps_never_enter_the_model(value: float) -> None:
    values = history(2)
    clean, dirty = after(values, with_fit=True), after(values, with_fit=True)
    for n in range(10):
        assert not dirty.observe((len(values) + n) * MINUTE_S, value)
    one, other = clean.forecast(), dirty.forecast()
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.quantiles, other.quantiles)
    assert one.made_at_s == other.made_at_s


def test_duplicates_and_samples_out_of_order_change_nothing() -> None:
    values = history(2)
    clean, dirty = after(values[:2000], with_fit=True), after(values[:2000], with_fit=True)
    for n in range(2000, 2100):
        clean.observe(n * MINUTE_S, values[n])
        dirty.observe(n * MINUTE_S, values[n])
        assert not dirty.observe(n * MINUTE_S + 1.0, 10 * values[n])
        assert not dirty.observe((n - 7) * MINUTE_S, 0.1 * values[n])
    one, other = clean.forecast(), dirty.forecast()
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.quantiles, other.quantiles)


def test_the_interval_widens_with_the_age_of_the_last_sample() -> None:
    """In its median, from half an hour on: before, the median itself is a forecast of its own at each age."""
    values = history(3)
    forecaster = after(values, with_fit=True)
    last_s = (len(values) - 1) * MINUTE_S
    for lead_s in (60.0, 300.0, 900.0):
        ahead = []
        for age_s in np.arange(0.0, 7200.0, 60.0):
            forecast = forecaster.forecast(last_s + age_s)
            assert forecast is not None
            quantiles = forecast.at(age_s + lead_s)
            ahead.append(quantiles[[LOW, HIGH]] / quantiles[8])
        low, high = np.array(ahead).T
        assert (high >= 0.99 * high[0]).all()
        assert (low <= 1.01 * low[0]).all()
        assert (np.diff(high[30:]) >= -1e-9).all()
        assert (np.diff(low[30:]) <= 1e-9).all()


@pytest.mark.parametrize("hours", [2, 4, 6])
def test_a_forecast_without_news_goes_on_as_the_season_does(hours: int) -> None:
    """History and what comes are one day's rhythm with noise; the last value alone would be far off after hours."""
    days, minute = 8, np.arange(9 * 1440)
    chance = np.random.default_rng(7)
    course = 300 * (1 + 0.6 * np.sin(2 * np.pi * minute / 1440))
    values = chance.poisson(course).astype(np.float64)
    for begin in range(days * 1440, days * 1440 + 1080, 180):
        forecaster = after(values[:begin], with_fit=True)
        end = begin - 1 + 60 * hours
        forecast = forecaster.forecast(end * MINUTE_S)
        assert forecast is not None
        later = forecast.at((end - begin + 1 + 5) * MINUTE_S)
        assert later[8] == pytest.approx(course[end + 5], rel=0.1)
        assert later[-1] < 1.6 * course[end + 5]


def test_what_is_unusual_in_a_lull_is_not_multiplied_by_the_job_that_follows() -> None:
    """A job of 100 each night from 2:00, almost nothing by day; the last half hour before silence has a load of 1."""
    minute = np.arange(8 * 1440 - 600)
    values = np.where((minute % 1440 >= 120) & (minute % 1440 < 180), 100.0, 0.0)
    values += np.random.default_rng(2).gamma(2, 0.01, len(minute))
    values[-30:] = 1.0
    forecast = after(values, with_fit=True).forecast((8 * 1440 + 135) * MINUTE_S)

    assert forecast is not None
    assert forecast.quantiles[0, MEDIAN] > 25
    assert forecast.quantiles.max() < 1000


def test_ten_minutes_without_metrics_widen_the_interval_and_the_next_sample_ends_that() -> None:
    values = history(3)
    forecaster = after(values, with_fit=True)
    end_s = len(values) * MINUTE_S
    before = forecaster.forecast(end_s - MINUTE_S)
    for n in range(10):
        forecaster.observe(end_s + n * MINUTE_S, float("nan"))
    during = forecaster.forecast(end_s + 9 * MINUTE_S)
    forecaster.observe(end_s + 10 * MINUTE_S, values[-1])
    then = forecaster.forecast(end_s + 10 * MINUTE_S)
    assert before is not None
    assert during is not None
    assert then is not None
    assert width(before) < width(during)
    assert width(then) < width(during)
    assert during.made_at_s == before.made_at_s < then.made_at_s


def width(forecast: Forecast) -> float:
    """Width of the interval at 99 percent at the first lead."""
    return float(forecast.quantiles[0, HIGH] - forecast.quantiles[0, LOW])


def test_a_saturated_sample_below_the_last_value_says_nothing_and_one_above_it_does() -> None:
    values = history(2)
    forecaster = after(values, with_fit=True)
    end = len(values)
    assert not forecaster.observe(end * MINUTE_S, 0.5 * values[-1], is_censored=True)
    assert forecaster.observe((end + 1) * MINUTE_S, 1.5 * values[-1], is_censored=True)


def inside_after_step(factor: float, lead: int, seed: int) -> FloatArray:
    """Whether each of the samples from an hour after a level shift on lay inside its interval at 99 percent."""
    values = history(5, seed)
    shift = 4 * 1440
    shifted = np.concatenate([values[:shift], factor * values[shift:]])
    forecaster = after(shifted[:shift], with_fit=True)
    inside, given = [], {}
    for n in range(shift, shift + 300):
        forecaster.observe(n * MINUTE_S, shifted[n])
        forecast = forecaster.forecast()
        assert forecast is not None
        given[n + lead] = forecast.at(lead * MINUTE_S)
        if n in given:
            inside.append(given[n][LOW] <= shifted[n] <= given[n][HIGH])
    return np.array(inside[60:], dtype=float)


@pytest.mark.parametrize("lead", [1, 5, 10])
def test_an_hour_after_the_level_doubled_the_coverage_at_99_is_back(lead: int) -> None:
    assert np.mean([inside_after_step(2.0, lead, seed).mean() for seed in (1, 2, 3)]) >= 0.97


@pytest.mark.parametrize("step_s", [10.0, 300.0, 600.0, 1800.0])
def test_other_steps_than_a_minute_are_forecast_too(step_s: float) -> None:
    trace = generated_trace(seed=3, days=14 if step_s > 10 else 1, step_s=step_s)
    series = Series(0.0, step_s, trace.values.astype(np.float32), np.zeros(len(trace.values), dtype=np.bool_))
    forecast = OnlineForecaster.of(series, fit(series)).forecast()
    assert forecast is not None
    assert forecast.leads_s[0] == step_s
    assert forecast.leads_s[-1] >= 1800.0
    assert (np.diff(forecast.quantiles, axis=1) >= 0).all()


def test_a_series_that_is_measured_at_every_other_step_is_forecast_at_the_leads_that_it_shows() -> None:
    values = np.array(history(3))
    values[1::2] = np.nan
    series = regular(0.0, MINUTE_S, values)
    forecast = OnlineForecaster.of(series, fit(series)).forecast()
    assert forecast is not None
    assert forecast.leads_s.tolist() == [120.0, 600.0, 1800.0]


def test_a_burst_of_samples_after_a_long_gap_is_no_fault() -> None:
    values = history(2)
    forecaster = after(values, with_fit=True)
    later_s = (len(values) + 50_000) * MINUTE_S
    for n in range(70):
        forecaster.observe(later_s + n * MINUTE_S, values[n])
    forecast = forecaster.forecast()
    assert forecast is not None
    assert np.isfinite(forecast.quantiles).all()


def test_a_series_without_load_has_no_fit() -> None:
    assert fit(regular(0.0, MINUTE_S, np.zeros(5000))) is None
    assert fit(regular(0.0, MINUTE_S, np.full(5000, np.nan))) is None


def test_a_constant_series_is_forecast_as_constant() -> None:
    series = regular(0.0, MINUTE_S, np.full(5000, 7.0))
    forecast = OnlineForecaster.of(series, fit(series)).forecast()
    assert forecast is not None
    np.testing.assert_allclose(forecast.quantiles, 7.0, rtol=1e-3)


def hourly(days: int, *, jobs: float) -> FloatArray:
    """A load of 100 with its noise, and jobs in the first eight minutes of each hour."""
    minute = np.arange(days * 1440)
    noise = np.random.default_rng(5).normal(0.0, 5.0, len(minute))
    return np.asarray(100.0 + noise + np.where(minute % 60 < 8, jobs, 0.0))


def test_jobs_that_start_by_the_clock_are_foreseen() -> None:
    """At minute 58 the load is 100, and five minutes later it is 300."""
    series = regular(0.0, MINUTE_S, hourly(4, jobs=200.0)[: 3 * 1440 + 59])
    forecast = OnlineForecaster.of(series, fit(series)).forecast()
    assert forecast is not None
    assert forecast.quantile(0.5, 300.0) == pytest.approx(300.0, rel=0.1)


def test_hours_without_jobs_have_no_season_of_their_own() -> None:
    found = fit(regular(0.0, MINUTE_S, hourly(4, jobs=0.0)))
    assert found is not None
    assert not found.linear.season.hour.any()


@pytest.mark.parametrize("is_restored", [False, True])
def test_the_first_sample_after_hours_without_any_is_not_the_end_of_a_steep_change(is_restored: bool) -> None:
    at = np.arange(8 * 1440)
    values = 100.0 + 60.0 * np.sin(2 * np.pi * at / 1440) + np.random.default_rng(5).normal(0.0, 2.0, len(at))
    values[7 * 1440 + 400 : 7 * 1440 + 700] = np.nan
    now = 7 * 1440 + 700
    known = regular(0.0, MINUTE_S, values[: now + 1 if is_restored else 7 * 1440 + 390])
    forecaster = OnlineForecaster.of(known, fit(regular(0.0, MINUTE_S, values[: 7 * 1440])))
    for n in range(len(known.values), now + 1):
        forecaster.observe(n * MINUTE_S, values[n])

    forecast = forecaster.forecast()
    assert forecast is not None
    # The wave falls from 159 to 106 meanwhile; a change of 4 in the next ten minutes is usual.
    assert forecast.quantile(0.5, 600.0) == pytest.approx(values[now], abs=10.0)
