import pickle
import sys

import lightgbm
import numpy as np
import pytest

from autoscaler.forecast.boosted import is_held_out, trees_from
from autoscaler.forecast.fits import Fit, fit, fit_shard
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import Series, regular
from simulator.scaling.traces import generated_trace

MINUTE_S = 60.0


def history(days: int = 4, seed: int = 3) -> Series:
    return regular(0.0, MINUTE_S, generated_trace(seed, days).values)


@pytest.fixture(scope="module")
def found() -> Fit:
    made = fit(history())
    assert made is not None
    return made


def test_trees_as_arrays_are_what_lightgbm_learned() -> None:
    chance = np.random.default_rng(1)
    rows = chance.random((3000, 5)).astype(np.float32)
    data = lightgbm.Dataset(rows, rows[:, 0] * rows[:, 1] + (rows[:, 2] > 0.5))
    boosters = [
        lightgbm.train({"num_leaves": leaves, "num_threads": 1, "verbosity": -1, "use_missing": False}, data, 20)
        for leaves in (7, 31)
    ]
    dumps = [[tree["tree_structure"] for tree in each.dump_model()["tree_info"]] for each in boosters]
    expected = np.stack([np.asarray(each.predict(rows[:300], num_threads=1)) for each in boosters], -1)
    np.testing.assert_allclose(trees_from(dumps).values(rows[:300]), expected, atol=1e-5)


def test_a_fit_is_a_small_plain_value(found: Fit) -> None:
    assert len(pickle.dumps(found)) < 100_000
    again = pickle.loads(pickle.dumps(found))  # noqa: S301 (our own bytes)
    forecasts = [OnlineForecaster.of(history(), each).forecast() for each in (found, again)]
    assert forecasts[0] is not None
    assert forecasts[1] is not None
    np.testing.assert_array_equal(forecasts[0].quantiles, forecasts[1].quantiles)


def test_the_same_history_gives_the_same_fit(found: Fit) -> None:
    again = fit(history())
    assert again is not None
    assert pickle.dumps(again) == pickle.dumps(found)


def test_trees_are_a_rival_of_the_core(found: Fit) -> None:
    forecaster = OnlineForecaster.of(history(), found)
    assert forecaster.models == ("naive", "ewma", "core", "boosted")
    assert forecaster.skill.relative_loss["boosted"] < 1.0
    assert set(forecaster.rivals()) == set(forecaster.models)


def test_trees_that_lose_are_demoted(found: Fit) -> None:
    forecaster = OnlineForecaster.of(history(), found)
    jumps = np.repeat(np.random.default_rng(2).uniform(200.0, 4000.0, 100), 15)
    for n, value in enumerate(jumps):
        forecaster.observe((4 * 1440 + n) * MINUTE_S, value)
    assert forecaster.skill.trusted not in {"boosted", "core"}


def test_a_shard_shares_one_booster_and_a_short_series_has_no_fit() -> None:
    short = regular(0.0, MINUTE_S, np.ones(100))
    first, none, second = fit_shard((history(3, 1), short, history(3, 2)))
    assert none is None
    assert first is not None
    assert second is not None
    assert first.boosted is second.boosted is not None


def test_a_series_without_load_has_no_fit() -> None:
    assert fit(regular(0.0, MINUTE_S, np.zeros(5000))) is None
    assert fit(regular(0.0, MINUTE_S, np.full(5000, np.nan))) is None


def test_a_constant_series_is_forecast_as_constant() -> None:
    series = regular(0.0, MINUTE_S, np.full(5000, 7.0))
    forecast = OnlineForecaster.of(series, fit(series)).forecast()
    assert forecast is not None
    np.testing.assert_allclose(forecast.quantiles, 7.0, rtol=1e-3)


def test_a_tenth_of_the_history_is_held_out_also_of_its_end() -> None:
    held_out = is_held_out(7 * 1440, MINUTE_S)
    assert held_out.mean() == pytest.approx(0.1, abs=0.01)
    assert held_out[6 * 1440 :].any()


def test_without_lightgbm_the_core_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    made = fit(history(2))
    assert made is not None
    assert made.boosted is None
    assert OnlineForecaster.of(history(2), made).models == ("naive", "ewma", "core")
