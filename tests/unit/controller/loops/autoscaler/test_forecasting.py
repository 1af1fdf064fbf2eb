from dataclasses import replace

import numpy as np

from cluster.frame import framed
from controller.background import load_fits
from controller.background.tasks import TaskResult
from controller.loops.autoscaler.forecasting import HISTORIES_PER_TURN, LONG, REFIT_S, RETRY_S, Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured, Sample
from tests.builders.background import Here
from tests.clock import HandClock

MINUTE_S, DAY_S = 60.0, 86_400.0
CORE = LoadSeries("load", 14 * DAY_S)


class Bench:
    """Forecasts of two policies with two days of history."""

    def __init__(self, minutes: int = 2880, names: tuple[str, ...] = ("d/a", "d/b")) -> None:
        self.names = names
        self.clock = HandClock(2 * DAY_S)
        self.measured, self.here = Measured(), Here(at_once=False)
        self.forecasts = Forecasts(self.measured, self.clock, self.here)
        self.add(minutes)

    def add(self, minutes: int, *names: str) -> None:
        """Takes this many minutes of history, of all policies by default."""
        for name in names or self.names:
            for minute in range(minutes):
                load = 50 + 20 * np.sin(minute / 240) + minute % 7
                self.measured.put_sample(name, "load", Sample(minute * MINUTE_S, float(load)))
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

    def asked(self) -> list[list[str]]:
        """Policies of each batch that is being fitted."""
        return [list(each.lengths) for each in self.forecasts._asked.values()]


def test_policies_that_are_due_are_fitted_in_the_background_and_nothing_waits() -> None:
    bench = Bench()
    assert bench.asked() == [["d/a", "d/b"]]
    assert bench.models() == {"naive", "ewma"}
    bench.here.run()
    assert bench.forecasts.take_fits()
    assert "core" in bench.models()
    assert not bench.forecasts.take_fits()


def test_fits_are_not_asked_for_again_until_they_are_old() -> None:
    bench = Bench()
    bench.here.run()
    bench.turn()
    assert bench.asked() == []
    bench.turn(after_s=REFIT_S)
    assert bench.asked() == [["d/a", "d/b"]]


def test_a_batch_stays_the_same_until_it_is_answered() -> None:
    bench = Bench()
    before = list(bench.here.open)
    bench.turn(after_s=MINUTE_S)
    assert list(bench.here.open) == before


def test_a_batch_that_a_replica_forgot_when_it_lost_the_lease_is_asked_for_again() -> None:
    bench = Bench()
    before = list(bench.here.open)
    bench.here.open.clear()
    bench.turn()
    assert list(bench.here.open) == before


def test_a_history_that_comes_while_its_beginning_is_fitted_is_fitted_next() -> None:
    bench = Bench(minutes=300)
    bench.add(2880)
    bench.here.run()
    bench.turn()
    assert [list(each.lengths.values()) for each in bench.forecasts._asked.values()] == [[2880, 2880]]


def test_who_is_due_decides_when_a_batch_is_fitted_and_not_who_is_in_it() -> None:
    bench = Bench(minutes=0, names=("d/a", "d/b"))
    bench.add(2880, "d/a")
    assert bench.asked() == [["d/a"]], "d/b has measured nothing yet"
    bench.here.run()
    bench.add(2880, "d/b")
    assert bench.asked() == [["d/a", "d/b"]]


def test_a_history_that_is_too_short_delays_and_repeats_no_batch() -> None:
    bench = Bench(minutes=0)
    bench.add(2880, "d/a")
    bench.here.run()
    bench.add(10, "d/b")
    assert bench.asked() == []
    bench.turn(after_s=RETRY_S)
    assert bench.asked() == []
    assert bench.forecasts.waiting == 0


def test_a_batch_that_failed_is_tried_again_later() -> None:
    bench = Bench()
    (task,) = bench.here.open.values()
    bench.here.open.clear()
    bench.here.done.append(TaskResult(task.kind, task.digest, error="its process ended"))
    bench.turn()
    assert bench.asked() == []
    bench.turn(after_s=RETRY_S)
    assert bench.asked() == [["d/a", "d/b"]]


def test_a_result_that_was_not_asked_for_or_cannot_be_read_changes_nothing() -> None:
    bench = Bench()
    (task,) = bench.here.open.values()
    bench.here.done += [TaskResult(task.kind, "other", b""), TaskResult(task.kind, task.digest, b"nonsense")]
    bench.turn()
    assert "core" not in bench.models()


def test_a_fit_that_does_not_suit_its_series_costs_the_fit_and_not_the_forecast() -> None:
    bench = Bench()
    bench.here.run()
    (result,) = bench.here.done
    read = load_fits.unframed(load_fits._BatchFits, result.value)
    heads = tuple(replace(each, linear=replace(each.linear, weights=each.linear.weights[:1, :1])) for each in read.fits)
    bench.here.done = [replace(result, value=framed(replace(read, fits=heads)))]
    bench.turn()
    assert bench.models() == {"naive", "ewma"}
    assert bench.model("d/a") in ("naive", "ewma")
    assert bench.asked() == []


def test_a_turn_takes_a_bounded_number_of_histories_and_the_others_wait() -> None:
    clock, measured = HandClock(2 * DAY_S), Measured()
    forecasts, wanted = (
        Forecasts(measured, clock, Here(at_once=False)),
        {f"d/s{n}": CORE for n in range(HISTORIES_PER_TURN + 1)},
    )
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
    forecasts = Forecasts(measured, HandClock(DAY_S), Here())
    forecasts.turn({f"d/{n}": CORE for n in range(1000)})
    assert (len(forecasts._kept), forecasts.waiting) == (0, 0)

    measured.put_sample("d/7", "load", Sample(DAY_S, 1.0))
    forecasts.turn({f"d/{n}": CORE for n in range(1000)})

    assert list(forecasts._kept) == ["d/7"]


def test_a_new_leader_fits_nothing_that_the_last_one_saved_and_forecasts_the_same() -> None:
    last = Bench()
    last.here.run()
    last.turn()
    saved = last.forecasts.take_unsaved()
    assert list(saved) == [0]
    assert last.forecasts.take_unsaved() == {}

    new = Bench(minutes=0)
    new.forecasts.restore(saved.values())
    new.add(2880)

    assert (new.asked(), new.forecasts.waiting) == ([], 0)
    for name in new.names:
        one, other = last.measured.of(name).forecast, new.measured.of(name).forecast
        assert one is not None
        assert other is not None
        assert one.model == other.model
        np.testing.assert_array_equal(one.quantiles, other.quantiles)
    new.turn(after_s=REFIT_S)
    assert new.asked() == [["d/a", "d/b"]], "a saved fit is as old as when it was made"


def test_a_saved_fit_outlives_a_history_that_comes_after_the_first_value() -> None:
    last = Bench()
    last.here.run()
    last.turn()

    new = Bench(minutes=0)
    new.forecasts.restore(last.forecasts.take_unsaved().values())
    new.measured.put_sample("d/a", "load", Sample(2879 * MINUTE_S, 50.0))
    new.turn()
    assert "core" in new.models()
    new.add(2880, "d/a")
    assert "core" in new.models()
    assert new.asked() == []


def test_saved_fits_that_cannot_be_read_or_are_of_another_series_are_made_again() -> None:
    last = Bench()
    last.here.run()
    last.turn()
    (value,) = last.forecasts.take_unsaved().values()

    new = Bench(minutes=0)
    new.forecasts.restore([b"nonsense"])
    new.add(2880)
    assert new.asked() == [["d/a", "d/b"]]

    other = Bench(minutes=0)
    other.forecasts.restore([value])
    other.add(2880)
    other.forecasts.turn(dict.fromkeys(other.names, replace(CORE, history_s=7 * DAY_S)))
    assert "core" not in other.models()


def test_a_load_of_another_size_is_forecast_by_itself_and_the_one_before_goes_on_when_it_is_back() -> None:
    """A load that is forty times as high for an hour: two minutes after it, the forecast is as before."""
    bench = Bench(2880, ("d/a",))
    before = bench.measured.of("d/a").forecast
    for minute in range(2880, 2940):
        bench.measured.put_sample("d/a", "load", Sample(minute * MINUTE_S, 2_000.0 + minute % 7))
        bench.turn(MINUTE_S)
    amid = bench.measured.of("d/a").forecast
    for minute in range(2940, 2943):
        bench.measured.put_sample("d/a", "load", Sample(minute * MINUTE_S, 40.0 + minute % 7))
        bench.turn(MINUTE_S)
    after = bench.measured.of("d/a").forecast

    assert before is not None
    assert amid is not None
    assert after is not None
    assert amid.quantile(0.5, 300.0) > 1_600
    assert after.quantile(0.99, 300.0) < 2 * before.quantile(0.99, 300.0)


def test_of_another_query_nothing_that_was_learned_stays() -> None:
    bench = Bench(2880, ("d/a",))
    bench.here.run()
    bench.forecasts.take_fits()
    assert "core" in bench.models()

    bench.forecasts.turn({"d/a": replace(CORE, about="other")})
    bench.measured.put_sample("d/a", "load", Sample(2880 * MINUTE_S, 5.0))
    bench.forecasts.turn({"d/a": replace(CORE, about="other")})

    assert bench.models() == {"naive", "ewma"}
    assert bench.measured.of("d/a").forecast is None
