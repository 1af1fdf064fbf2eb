from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from autoscaler.forecast.fits import Fit
from controller.deciders.load_fits import fitted, slot_of
from controller.loops.autoscaler.forecasting import HISTORIES_PER_TURN, LONG, OFFER_S, REFIT_S, Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured, Sample
from tests.clock import HandClock

MINUTE_S, DAY_S = 60.0, 86_400.0
CORE = LoadSeries("load", 14 * DAY_S, boosted=False)


class Bench:
    """Forecasts of two policies with two days of history."""

    names = ("d/a", "d/b")

    def __init__(self, slots: int, minutes: int = 2880) -> None:
        self.clock = HandClock(2 * DAY_S)
        self.measured = Measured()
        self.forecasts = Forecasts(self.measured, self.clock, slots)
        self.add(minutes)

    def add(self, minutes: int) -> None:
        """Takes this many minutes of history."""
        for name in self.names:
            for minute in range(minutes):
                load = 50 + 20 * np.sin(minute / 240) + minute % 7
                self.measured.put_sample(name, "load", minute * MINUTE_S, float(load))
        self.turn()

    def turn(self, after_s: float = 0.0) -> None:
        self.clock.now_s += after_s
        self.forecasts.turn(dict.fromkeys(self.names, CORE))

    def model(self, name: str) -> str:
        forecast = self.measured.of(name).forecast
        assert forecast is not None
        return forecast.model

    def models(self) -> set[str]:
        return set().union(*(kept.forecaster.models for kept in self.forecasts._kept.values()))

    def answer(self) -> Mapping[str, Fit | None]:
        return fitted(list(self.forecasts.offered))


def test_without_slots_histories_are_fitted_here_and_none_is_offered() -> None:
    bench = Bench(slots=0)
    assert bench.forecasts.offered == ()
    assert "core" in bench.models()


def test_with_slots_histories_are_offered_and_nothing_is_fitted_here() -> None:
    bench = Bench(slots=1)
    assert [each.scaler for each in bench.forecasts.offered] == ["d/a", "d/b"]
    assert "core" not in bench.models()


def test_fits_that_come_are_adopted_and_not_asked_for_again_until_they_are_old() -> None:
    bench = Bench(slots=1)
    bench.forecasts.put_fits(bench.answer())
    assert bench.forecasts.has_fits
    bench.turn()
    assert "core" in bench.models()
    assert bench.forecasts.offered == ()
    bench.turn(after_s=REFIT_S)
    assert len(bench.forecasts.offered) == 2


def test_an_offer_stays_the_same_until_it_is_answered() -> None:
    bench = Bench(slots=1)
    before = bench.forecasts.offered
    bench.turn(after_s=MINUTE_S)
    assert bench.forecasts.offered == before


def test_a_history_that_comes_while_its_beginning_is_fitted_is_offered_next() -> None:
    bench = Bench(slots=1, minutes=2)
    bench.add(2880)
    bench.forecasts.put_fits(bench.answer())
    bench.turn()
    assert [len(each.values) for each in bench.forecasts.offered] == [2880, 2880]


def test_each_slot_is_offered_its_own_histories() -> None:
    bench = Bench(slots=8)
    assert {slot_of(each.scaler, 8) for each in bench.forecasts.offered} == {slot_of(name, 8) for name in bench.names}
    assert len(bench.forecasts.offered) == 2


def test_while_the_brain_is_away_histories_are_fitted_here() -> None:
    bench = Bench(slots=1)
    bench.turn(after_s=OFFER_S + 1)
    assert "core" in bench.models()


def test_a_fit_that_was_not_asked_for_changes_nothing() -> None:
    bench = Bench(slots=1)
    bench.forecasts.put_fits({"d/other": None, "d/a": None})
    bench.forecasts.put_fits({"d/other": bench.answer()["d/a"]})
    bench.turn()
    assert "core" not in bench.models()


def test_a_fit_that_does_not_suit_its_series_costs_the_fit_and_not_the_forecast() -> None:
    bench = Bench(slots=1)
    wrong = {}
    for name, fit in bench.answer().items():
        assert fit is not None
        wrong[name] = replace(fit, linear=replace(fit.linear, weights=fit.linear.weights[:1, :1]))
    bench.forecasts.put_fits(wrong)
    bench.turn()
    assert bench.models() == {"naive", "ewma"}
    assert bench.model("d/a") in ("naive", "ewma")
    assert bench.forecasts.offered == ()


def test_a_turn_takes_a_bounded_number_of_histories_and_the_others_wait() -> None:
    clock, measured = HandClock(2 * DAY_S), Measured()
    forecasts, wanted = Forecasts(measured, clock, slots=1), {f"d/s{n}": CORE for n in range(HISTORIES_PER_TURN + 1)}
    samples = [Sample(minute * MINUTE_S, 5.0) for minute in range(LONG + 1)]
    for name in wanted:
        measured.put_history(name, "load", samples)
    left = []
    for _ in range(2):
        forecasts.turn(wanted)
        left.append(sum(measured.waiting(name, "load") > 0 for name in wanted))
    assert left == [1, 0]


def test_policies_that_measure_nothing_take_no_memory() -> None:
    """Each had a forecaster of 200 kB, so a few thousand of one tenant took the operator's memory."""
    measured = Measured()
    forecasts = Forecasts(measured, HandClock(DAY_S))
    forecasts.turn({f"d/{n}": CORE for n in range(1000)})
    assert (len(forecasts._kept), forecasts.waiting) == (0, 0)

    measured.put_sample("d/7", "load", DAY_S, 1.0)
    forecasts.turn({f"d/{n}": CORE for n in range(1000)})

    assert list(forecasts._kept) == ["d/7"]
