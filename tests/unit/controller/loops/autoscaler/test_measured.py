"""Measurements of policies, as sources put them and planning reads them."""

import numpy as np
import pytest

from cluster.demand import Forecast
from controller.loops.autoscaler.measured import MOST_WAITING, Measured, PolicyMeasurement, Sample
from tests.clock import HandClock

CHAT = "default/chat"


def test_the_newest_sample_of_a_role_is_the_one_of_the_latest_instant() -> None:
    measured = Measured()
    for at_s, value in ((10.0, 1.0), (30.0, 3.0), (20.0, 2.0)):
        measured.put_sample(CHAT, "load", Sample(at_s, value))

    assert measured.of(CHAT).newest["load"] == Sample(30.0, 3.0)
    assert [each.value for each in measured.take_samples(CHAT, "load")] == [1.0, 3.0, 2.0]


def test_a_sample_of_the_future_gives_way_when_the_clock_was_set_back() -> None:
    clock = HandClock(4000.0)
    measured = Measured(clock)
    measured.put_sample(CHAT, "load", Sample(4000.0, 9.0))

    clock.now_s = 400.0
    measured.put_sample(CHAT, "load", Sample(400.0, 1.0))

    assert measured.of(CHAT).newest["load"] == Sample(400.0, 1.0)


def test_what_is_no_number_is_no_sample_and_never_zero() -> None:
    measured = Measured()
    for value in (float("nan"), float("inf"), -1.0):
        measured.put_sample(CHAT, "load", Sample(10.0, value))

    assert measured.of(CHAT).newest == {}
    assert measured.take_samples(CHAT, "load") == []


def test_a_failed_reading_keeps_the_last_sample_and_is_forgotten_after_a_good_one() -> None:
    measured = Measured()
    measured.put_sample(CHAT, "load", Sample(10.0, 5.0))
    measured.put_failure(CHAT, "load", 20.0, "PrometheusUnreachable", "no answer")
    failed = measured.of(CHAT)
    measured.put_sample(CHAT, "load", Sample(30.0, 6.0))

    assert failed.newest["load"].value == 5.0
    assert failed.failures["load"].code == "PrometheusUnreachable"
    assert measured.of(CHAT).failures == {}


def test_a_sample_is_taken_once() -> None:
    measured = Measured()
    measured.put_sample(CHAT, "load", Sample(10.0, 5.0))

    assert len(measured.take_samples(CHAT, "load")) == 1
    assert measured.take_samples(CHAT, "load") == []


def test_samples_that_are_not_taken_are_bounded() -> None:
    measured = Measured()
    for at_s in range(MOST_WAITING + 2):
        measured.put_sample(CHAT, "load", Sample(float(at_s), 1.0))

    waiting = measured.take_samples(CHAT, "load")

    assert len(waiting) == MOST_WAITING
    assert waiting[0].at_s == 2.0


def test_a_deleted_policy_is_forgotten() -> None:
    measured = Measured()
    measured.put_sample(CHAT, "load", Sample(10.0, 5.0))
    measured.keep({})

    assert measured.of(CHAT).newest == {}
    assert measured.take_samples(CHAT, "load") == []


def expecting(value: float) -> Measured:
    """Half an hour of samples around a load, and a forecast that holds up to three times as much for possible."""
    measured = Measured()
    for minute in range(31):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, value + minute % 2))
    quantiles = np.array([[value, value]])
    measured.put_forecast(CHAT, Forecast(1800.0, np.array([60.0]), np.array([0.5, 0.9]), quantiles), None)
    measured.take_samples(CHAT, "load")
    return measured


@pytest.mark.parametrize("samples", [1, 5])
def test_a_load_beyond_all_that_is_possible_is_not_obeyed_before_it_lasts(samples: int) -> None:
    measured = expecting(100.0)
    for minute in range(31, 31 + samples):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, 1e6))
    doubted = measured.of(CHAT)
    measured.put_sample(CHAT, "load", Sample(60.0 * (31 + samples), 102.0))

    assert doubted.newest["load"].value == 100.0
    assert doubted.failures["load"].code == "LoadImplausible"
    assert measured.of(CHAT).newest["load"].value == 102.0
    assert [each.value for each in measured.take_samples(CHAT, "load")] == [102.0]


def test_a_load_that_stays_beyond_all_that_was_possible_is_obeyed_with_all_its_samples() -> None:
    measured = expecting(100.0)
    for minute in range(31, 37):  # five minutes from the first to the last
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, 1e6))

    assert measured.of(CHAT).newest["load"].value == 1e6
    assert measured.of(CHAT).failures == {}
    assert len(measured.take_samples(CHAT, "load")) == 6


def test_a_number_that_no_load_reaches_is_said_and_never_counts() -> None:
    measured = expecting(100.0)
    for minute in range(31, 1031):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, 1e300))

    assert measured.of(CHAT).newest["load"].value == 100.0
    assert measured.of(CHAT).failures["load"].code == "LoadImplausible"
    assert measured.take_samples(CHAT, "load") == []


@pytest.mark.parametrize("begin", [0, 1000, 5750])
@pytest.mark.parametrize("minutes", [1, 5, 250])
def test_a_load_far_beyond_a_history_is_left_out_of_it(minutes: int, begin: int) -> None:
    """At its begin, amid it, or at its end: four hours of four days say less than the others."""
    usual = [Sample(60.0 * minute, 100.0 + minute % 7) for minute in range(6000)]
    wrong = [Sample(each.at_s, 1e4 * each.value) for each in usual[begin : begin + minutes]]
    measured = Measured()
    measured.put_history(CHAT, "load", usual[:begin] + wrong + usual[begin + minutes :])
    learned = measured.take_samples(CHAT, "load")
    for minute in range(6001, 6011):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, 1e6 + minute))

    assert learned == usual[:begin] + usual[begin + minutes :]
    assert measured.of(CHAT).newest == {}
    assert measured.of(CHAT).failures["load"].code == "LoadImplausible"


@pytest.mark.parametrize("minutes", [6, 30])
def test_a_load_that_lasts_to_the_end_of_a_history_or_comes_again_stays_in_it(minutes: int) -> None:
    """As a service that is new, or a job that runs each day."""
    lasting = [Sample(60.0 * minute, 1.0 if minute < 3000 - minutes else 100.0) for minute in range(3000)]
    again = [Sample(60.0 * minute, 100.0 if minute % 1440 < minutes else 1.0) for minute in range(3000)]
    measured = Measured()
    for history in (lasting, again):
        measured.put_history(CHAT, "load", history)
        assert measured.take_samples(CHAT, "load") == history


def far_load(measured: Measured, minutes: int, *, is_full: bool | None, factor: float = 1e4) -> PolicyMeasurement:
    """What is known after a load far beyond all before. measured: as of `expecting`."""
    for minute in range(31, 31 + minutes):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, factor * 100.0 + minute, is_full=is_full))
    return measured.of(CHAT)


def expecting_for_days(value: float) -> Measured:
    """As of `expecting`, after four days of history."""
    measured = expecting(value)
    measured.put_history(CHAT, "load", [Sample(60.0 * minute, value) for minute in range(-5729, 31)])
    measured.take_samples(CHAT, "load")
    measured.served = {CHAT: 2 * value}
    return measured


@pytest.mark.parametrize("is_full", [None, False])
def test_a_load_far_beyond_days_of_history_is_not_obeyed_for_hours(is_full: bool | None) -> None:
    known = far_load(expecting_for_days(100.0), 250, is_full=is_full)

    assert known.newest["load"].value == 100.0
    assert known.failures["load"].code == "LoadImplausible"


@pytest.mark.parametrize(("minutes", "is_obeyed"), [(286, False), (291, True)])
def test_a_far_load_without_a_second_signal_weighs_by_what_is_known(minutes: int, is_obeyed: bool) -> None:
    """A twentieth of four days, 288 minutes."""
    known = far_load(expecting_for_days(100.0), minutes, is_full=None)

    assert (known.newest["load"].value > 1e6) is is_obeyed


def test_a_far_load_is_obeyed_after_minutes_where_the_servers_are_full_and_never_where_they_have_room() -> None:
    full = far_load(expecting_for_days(100.0), 6, is_full=True)
    roomy = far_load(expecting_for_days(100.0), 5000, is_full=False)
    at_times = expecting_for_days(100.0)
    for minute in range(31, 91):
        at_times.put_sample(CHAT, "load", Sample(60.0 * minute, 1e6 + minute, is_full=minute % 3 == 0))

    assert full.newest["load"].value > 1e6
    assert roomy.newest["load"].value == 100.0
    assert "the servers have room" in roomy.failures["load"].words
    assert at_times.of(CHAT).newest["load"].value == 100.0


def test_a_launch_that_grows_tenfold_each_minute_is_obeyed_after_minutes() -> None:
    """None of its samples is a hundred times the one before; the last is, of all that was known before it."""
    measured = expecting_for_days(100.0)
    for minute in range(31, 37):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, min(1e3 * 10 ** (minute - 31), 1e6)))

    assert measured.of(CHAT).newest["load"].value == 1e6


def test_a_surprise_that_is_obeyed_makes_no_usual_load_a_far_one() -> None:
    """A thousand each day is known, and in the night five where less than one is expected."""
    measured = Measured()
    measured.put_history(CHAT, "load", [Sample(60.0 * minute, 1000.0 + minute % 7) for minute in range(1440)])
    quantiles = np.array([[0.1, 0.2]])
    measured.put_forecast(CHAT, Forecast(86400.0, np.array([60.0]), np.array([0.5, 0.9]), quantiles), None)
    for minute in range(1440, 1446):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, 5.0 + minute % 2))
    surprised = measured.of(CHAT).newest["load"].value
    measured.put_sample(CHAT, "load", Sample(60.0 * 1446, 1000.0))

    assert surprised == 6.0
    assert measured.of(CHAT).newest["load"].value == 1000.0


def test_a_jump_is_obeyed_after_minutes_where_servers_with_room_could_have_it() -> None:
    """Ten times the load of before is five times what the replicas are declared to serve."""
    known = far_load(expecting_for_days(100.0), 6, is_full=False, factor=10.0)

    assert known.newest["load"].value > 1e3


def test_a_load_that_the_ready_replicas_serve_is_believed_at_once() -> None:
    """As the first request of a service that was idle for days."""
    measured = expecting(0.0)
    measured.served = {CHAT: 8.0}
    measured.put_sample(CHAT, "load", Sample(1860.0, 5.0))

    assert measured.of(CHAT).newest["load"].value == 5.0
    assert measured.of(CHAT).failures == {}


def test_a_long_run_of_equal_values_is_learned_when_it_ends_and_never_of_a_source_that_stands() -> None:
    """Runs of a minute each: what is equal for three minutes waits, at the twentieth minute the source stands."""
    learned = {}
    for equal in (10, 30):
        measured = Measured()
        for minute in range(61 + equal):
            measured.put_sample(CHAT, "load", Sample(60.0 * minute, float(min(minute, 60))))
        assert len(measured.take_samples(CHAT, "load")) == 63
        measured.put_sample(CHAT, "load", Sample(60.0 * (61 + equal), 61.0))
        learned[equal] = [each.at_s / 60.0 for each in measured.take_samples(CHAT, "load")]

    assert learned == {10: list(range(63, 72)), 30: [91]}


def test_equal_values_in_a_series_that_changes_are_those_of_a_source_that_stands() -> None:
    """Runs of a minute each: at the twentieth equal minute the source stands."""
    measured = Measured()
    for minute in range(120):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, float(min(minute, 60))))

    assert measured.of(CHAT).failures["load"].code == "LoadFrozen"
    assert measured.of(CHAT).newest["load"].at_s == 60.0 * (60 + 19)
    measured.put_sample(CHAT, "load", Sample(60.0 * 120, 61.0))
    assert measured.of(CHAT).failures == {}


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_load_that_is_constant_by_itself_is_no_source_that_stands(value: float) -> None:
    measured = Measured()
    for minute in range(600):
        measured.put_sample(CHAT, "load", Sample(60.0 * minute, value))

    assert measured.of(CHAT).failures == {}
    assert measured.of(CHAT).newest["load"].at_s == 60.0 * 599


def test_of_another_query_or_target_nothing_stays() -> None:
    measured = expecting(100.0)
    measured.keep({CHAT: "one"})
    assert measured.of(CHAT).forecast is not None
    measured.keep({CHAT: "other"})

    assert measured.of(CHAT).newest == {}
    assert measured.of(CHAT).forecast is None
