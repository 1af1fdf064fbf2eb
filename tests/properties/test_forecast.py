"""Forecasts that hold for arbitrary samples: quantiles in order, nothing negative, wider with age, repeatable."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings, strategies as st

from autoscaler.forecast.fits import fit
from autoscaler.forecast.grid import aged
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import regular
from cluster.arrays import FloatArray
from cluster.demand import Forecast

STEP_S = 600.0


@st.composite
def loads(draw: st.DrawFn) -> FloatArray:
    """Two to four days in steps of ten minutes, of any size, with bursts, gaps, runs of zeros and level shifts."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    points = draw(st.integers(300, 600))
    size = 10.0 ** draw(st.floats(-6, 9))
    values = (
        size * (1 + np.sin(np.arange(points) * 2 * np.pi / 144)) * chance.lognormal(0.0, draw(st.floats(0, 2)), points)
    )
    for _ in range(draw(st.integers(0, 5))):
        start, length = chance.integers(points), chance.integers(1, 60)
        values[start : start + length] *= chance.choice([0.0, np.nan, 2.0, 100.0])
    return np.asarray(values)


@st.composite
def samples(draw: st.DrawFn) -> list[tuple[float, float, bool]]:
    """Samples after a history: in order and not, twice, missing, saturated."""
    number = st.one_of(st.floats(0, 1e9), st.sampled_from([float("nan"), float("inf"), -1.0, 0.0]))
    return draw(st.lists(st.tuples(st.floats(-5e4, 2e5), number, st.booleans()), max_size=60))


def seen(history: FloatArray, after: list[tuple[float, float, bool]]) -> OnlineForecaster:
    series = regular(0.0, STEP_S, history)
    forecaster = OnlineForecaster.of(series, fit(series))
    end_s = len(history) * STEP_S
    for at_s, value, is_censored in after:
        forecaster.observe(end_s + at_s, value, is_censored=is_censored)
    return forecaster


def all_forecasts(forecaster: OnlineForecaster, now_s: float | None = None) -> list[Forecast]:
    trusted = forecaster.forecast(now_s)
    return [*forecaster.rivals(now_s).values(), *([] if trusted is None else [trusted])]


@settings(max_examples=25)
@given(loads(), samples(), st.floats(0, 1e5))
def test_quantiles_never_cross_and_are_never_negative(
    history: FloatArray, after: list[tuple[float, float, bool]], age_s: float
) -> None:
    forecaster = seen(history, after)
    newest_s = max([len(history) * STEP_S, *(len(history) * STEP_S + at_s for at_s, _, _ in after)])
    for forecast in all_forecasts(forecaster, newest_s + age_s):
        assert np.isfinite(forecast.quantiles).all()
        assert (forecast.quantiles >= 0).all()
        assert (np.diff(forecast.quantiles, axis=1) >= -1e-9 * forecast.quantiles[:, 1:]).all()
        assert (np.diff(forecast.leads_s) > 0).all()


@settings(max_examples=25)
@given(
    st.lists(st.floats(0, 100), min_size=17, max_size=17),
    st.floats(1, 10),
    st.lists(st.floats(0, 2e5), min_size=2, max_size=6),
)
def test_an_interval_around_its_median_contains_those_of_younger_samples(
    levels: list[float], growth: float, ages_s: list[float]
) -> None:
    leads_s = np.array([600.0, 1800.0])
    roots = np.tile(np.sort(levels), (2, 1))
    rows = [aged(roots, leads_s, age_s, np.full(2, growth)) for age_s in sorted(ages_s)]
    for younger, older in pairwise(rows):
        assert (older[:, -1] >= younger[:, -1] - 1e-9).all()
        assert (older[:, 0] <= younger[:, 0] + 1e-9).all()


@settings(max_examples=15)
@given(loads(), samples())
def test_the_same_samples_give_the_same_forecast(history: FloatArray, after: list[tuple[float, float, bool]]) -> None:
    for one, other in zip(all_forecasts(seen(history, after)), all_forecasts(seen(history, after)), strict=True):
        np.testing.assert_array_equal(one.quantiles, other.quantiles)


@settings(max_examples=15)
@given(loads(), samples(), st.floats(-3, 3))
def test_forecasts_have_the_unit_of_their_samples(
    history: FloatArray, after: list[tuple[float, float, bool]], exponent: float
) -> None:
    factor = 4.0 ** round(exponent)
    scaled = [(at_s, factor * value, is_censored) for at_s, value, is_censored in after]
    for one, other in zip(
        all_forecasts(seen(history, after)), all_forecasts(seen(factor * history, scaled)), strict=True
    ):
        np.testing.assert_allclose(
            factor * one.quantiles, other.quantiles, rtol=1e-3, atol=1e-4 * factor * one.quantiles.max()
        )
