import numpy as np
import pytest

from controller.loops.autoscaler.forecasting import Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured, Sample
from tests.builders.background import Here
from tests.clock import HandClock

NAME = "team-a/chat"
DAY_S = 86_400.0
NOW_S = 20_000 * DAY_S
WANTED = {NAME: LoadSeries("requests", 4 * DAY_S)}


def _history() -> list[Sample]:
    """Three days that rise and fall by the hour of the day, with a little noise."""
    at_s = np.arange(NOW_S - 3 * DAY_S, NOW_S, 60.0)
    noise = 1 + 0.05 * np.random.default_rng(1).standard_normal(len(at_s))
    load = (20 - 16 * np.cos(2 * np.pi * at_s / DAY_S)) * noise
    return [Sample(float(at), float(value)) for at, value in zip(at_s, load, strict=True)]


@pytest.mark.parametrize("first", [[], [Sample(NOW_S, 4.0)]], ids=["nothing", "the newest value"])
def test_a_history_that_comes_after_the_first_turn_is_learned_from_at_once(first: list[Sample]) -> None:
    measured, clock = Measured(), HandClock(NOW_S)
    forecasts = Forecasts(measured, clock, Here())
    for sample in first:
        measured.put_sample(NAME, "requests", Sample(sample.at_s, sample.value))
    forecasts.turn(WANTED)

    measured.put_history(NAME, "requests", _history())
    clock.now_s += 1
    forecasts.turn(WANTED)
    forecasts.turn(WANTED)  # with what was fitted since

    known = measured.of(NAME)
    assert known.skill is not None
    assert known.skill.model not in ("naive", "ewma")
    assert known.forecast is not None
    # In an hour the load is 20 - 16 cos(2π/24) = 4.5; at midnight, where it begins, it is 4.
    assert known.forecast.quantile(0.5, 3600.0) == pytest.approx(4.5, rel=0.1)


def test_a_clock_that_is_set_back_stops_no_forecast() -> None:
    clock = HandClock(NOW_S)
    measured = Measured(clock)
    forecasts = Forecasts(measured, clock, Here())
    measured.put_history(NAME, "requests", _history())
    forecasts.turn(WANTED)

    clock.now_s = NOW_S - DAY_S / 2
    for minute in range(5):
        clock.now_s += 60
        measured.put_sample(NAME, "requests", Sample(clock.now_s, 70.0 + minute))
        forecasts.turn(WANTED)

    known = measured.of(NAME)
    assert known.forecast is not None
    assert known.forecast.made_at_s == clock.now_s
    assert known.forecast.quantile(0.5, 60.0) > 50  # by the history of the future, it would be 4
