"""Start times of lasting conditions survive a restart of the operator."""

import pytest

from controller.kube_world.planning_view import StateStartTimes


def test_what_is_written_on_the_object_counts_for_every_leader() -> None:
    assert StateStartTimes().of({"a": 10.0}, 500.0, 500.0) == {"a": 10.0}


def test_what_is_not_written_counts_from_when_it_was_first_seen_until_it_is_over() -> None:
    when = StateStartTimes()

    assert when.of({"a": None}, 500.0, 500.0) == {"a": 500.0}
    assert when.of({"a": None}, 510.0, 510.0) == {"a": 500.0}
    assert when.of({}, 520.0, 520.0) == {}
    assert when.of({"a": None}, 530.0, 530.0) == {"a": 530.0}


def test_what_is_still_written_of_an_earlier_time_does_not_count() -> None:
    """The gang recovered at 20 s and broke again at 30 s; its status is not updated yet."""
    when = StateStartTimes(may_lag=True)
    when.of({"a": 10.0}, 15.0, 15.0)
    when.of({}, 20.0, 20.0)

    assert when.of({"a": 10.0}, 30.0, 30.0) == {"a": 30.0}


def test_of_what_two_leaders_saw_the_later_beginning_counts() -> None:
    """This process led until 20 s; the other leader saw the gang recover and break again at 40 s."""
    when = StateStartTimes(may_lag=True)
    when.of({"a": None}, 20.0, 20.0)

    assert when.of({"a": 40.0}, 90.0, 90.0) == {"a": 40.0}
    assert StateStartTimes(may_lag=True).of({"a": 40.0}, 90.0, 90.0) == {"a": 40.0}


def test_an_instant_that_lies_ahead_does_not_stop_the_deadline() -> None:
    when, ahead = StateStartTimes(), {"a": 9_000_000.0}

    assert when.of(ahead, 500.0, 500.0) == {"a": 500.0}
    assert when.of(ahead, 560.0, 560.0) == {"a": 500.0}


def test_a_process_that_did_not_lead_for_a_while_knows_nothing_any_more() -> None:
    when = StateStartTimes(may_lag=True)
    when.of({"a": None}, 500.0, 500.0)

    assert when.of({"a": None}, 4100.0, 4100.0) == {"a": 4100.0}


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 86400.0, -86400.0])
@pytest.mark.parametrize("written", [None, 490.0])
def test_a_state_is_as_old_as_before_when_somebody_sets_the_clock(step_s: float, written: float | None) -> None:
    when = StateStartTimes()
    began_s = when.of({"a": written}, 500.0, 1.0)["a"]

    assert when.of({"a": written}, 510.0 + step_s, 11.0) == {"a": began_s + step_s}
    assert when.of({"a": written}, 520.0 + step_s, 21.0) == {"a": began_s + step_s}
    # What is stored after the step is by the new clock.
    assert when.of({"a": 525.0 + step_s}, 530.0 + step_s, 31.0) == {"a": 525.0 + step_s}
