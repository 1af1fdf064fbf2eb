"""Measurements of policies, as sources put them and planning reads them."""

from controller.loops.autoscaler.measured import MOST_WAITING, Measured, Sample
from tests.clock import HandClock

CHAT = "default/chat"


def test_the_newest_sample_of_a_role_is_the_one_of_the_latest_instant() -> None:
    measured = Measured()
    for at_s, value in ((10.0, 1.0), (30.0, 3.0), (20.0, 2.0)):
        measured.put_sample(CHAT, "load", at_s, value)

    assert measured.of(CHAT).newest["load"] == Sample(30.0, 3.0)
    assert [each.value for each in measured.take_samples(CHAT, "load")] == [1.0, 3.0, 2.0]


def test_a_sample_of_the_future_gives_way_when_the_clock_was_set_back() -> None:
    clock = HandClock(4000.0)
    measured = Measured(clock)
    measured.put_sample(CHAT, "load", 4000.0, 9.0)

    clock.now_s = 400.0
    measured.put_sample(CHAT, "load", 400.0, 1.0)

    assert measured.of(CHAT).newest["load"] == Sample(400.0, 1.0)


def test_what_is_no_number_is_no_sample_and_never_zero() -> None:
    measured = Measured()
    for value in (float("nan"), float("inf"), -1.0):
        measured.put_sample(CHAT, "load", 10.0, value)

    assert measured.of(CHAT).newest == {}
    assert measured.take_samples(CHAT, "load") == []


def test_a_failed_reading_keeps_the_last_sample_and_is_forgotten_after_a_good_one() -> None:
    measured = Measured()
    measured.put_sample(CHAT, "load", 10.0, 5.0)
    measured.put_failure(CHAT, "load", 20.0, "PrometheusUnreachable", "no answer")
    failed = measured.of(CHAT)
    measured.put_sample(CHAT, "load", 30.0, 6.0)

    assert failed.newest["load"].value == 5.0
    assert failed.failures["load"].code == "PrometheusUnreachable"
    assert measured.of(CHAT).failures == {}


def test_a_sample_is_taken_once() -> None:
    measured = Measured()
    measured.put_sample(CHAT, "load", 10.0, 5.0)

    assert len(measured.take_samples(CHAT, "load")) == 1
    assert measured.take_samples(CHAT, "load") == []


def test_samples_that_are_not_taken_are_bounded() -> None:
    measured = Measured()
    for at_s in range(MOST_WAITING + 2):
        measured.put_sample(CHAT, "load", float(at_s), 1.0)

    waiting = measured.take_samples(CHAT, "load")

    assert len(waiting) == MOST_WAITING
    assert waiting[0].at_s == 2.0


def test_a_deleted_policy_is_forgotten() -> None:
    measured = Measured()
    measured.put_sample(CHAT, "load", 10.0, 5.0)
    measured.keep(())

    assert measured.of(CHAT).newest == {}
    assert measured.take_samples(CHAT, "load") == []
