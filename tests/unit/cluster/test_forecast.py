import numpy as np
import pytest

from cluster.demand import TAIL_FACTOR, Forecast

LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.9, 0.99])


def forecast_of(*rows: list[float], leads_s: tuple[float, ...] = (60.0, 300.0)) -> Forecast:
    return Forecast(0.0, np.array(leads_s[: len(rows)]), LEVELS, np.array(rows, dtype=float))


SPREAD = [10.0, 20.0, 30.0, 40.0, 50.0, 70.0]


def test_a_quantile_at_a_level_of_the_forecast_is_its_own() -> None:
    forecast = forecast_of(SPREAD)
    assert [forecast.quantile(level, 60.0) for level in LEVELS] == pytest.approx(SPREAD)


def test_between_two_leads_quantiles_are_interpolated_and_outside_of_them_constant() -> None:
    forecast = forecast_of(SPREAD, [2 * each for each in SPREAD])
    assert forecast.quantile(0.5, 180.0) == pytest.approx(45.0)
    assert forecast.quantile(0.5, 0.0) == pytest.approx(30.0)
    assert forecast.quantile(0.5, 9999.0) == pytest.approx(60.0)


def test_quantiles_never_fall_with_their_level() -> None:
    forecast = forecast_of(SPREAD)
    values = [forecast.quantile(level, 60.0) for level in np.linspace(0.001, 0.9999, 200)]
    assert values == sorted(values)
    assert values[-1] <= TAIL_FACTOR * SPREAD[-1]


def test_the_points_are_a_distribution_whose_quantiles_are_the_forecasts() -> None:
    values, weights = forecast_of(SPREAD).points(60.0)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights[values <= 50.0]).sum() == pytest.approx(0.9, abs=0.01)
    assert (weights[values <= 70.0]).sum() == pytest.approx(0.99, abs=0.005)


def test_a_certain_forecast_has_no_tail() -> None:
    forecast = forecast_of([0.0] * 6)
    assert forecast.quantile(0.999, 60.0) == 0.0
    assert (forecast.points(60.0)[0] == 0.0).all()


def test_several_leads_at_once_are_the_leads_one_by_one() -> None:
    forecast = forecast_of(SPREAD, [2 * each for each in SPREAD])
    values, weights = forecast.points_at_leads(np.array([0.0, 100.0, 9999.0]))
    for row, lead_s in enumerate((0.0, 100.0, 9999.0)):
        one, same_weights = forecast.points(lead_s)
        assert values[row] == pytest.approx(one)
        assert weights == pytest.approx(same_weights)
