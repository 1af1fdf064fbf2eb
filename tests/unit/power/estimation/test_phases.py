"""Phases that alternate faster than they are read carry no information; those that last do."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import FloatArray
from cluster.power import (
    PHASE_COMPUTE_BOUND,
    PHASE_IDLE,
    PHASE_MEMORY_BOUND,
    PHASE_UNKNOWN,
    PowerReadings,
)
from power.estimation.phases import alternate, highest_rest_w, lasting, prompts_share, rest_after_w
from tests.builders.power import no_readings

IDLE_W = np.full(1, 60.0)


def share_after(phases: list[int], every_s: float = 2.0) -> FloatArray:
    share = np.zeros(1)
    for phase in phases:
        share = prompts_share(share, np.array([phase]), every_s)
    return share


def one_at_a_time(requests: int) -> list[int]:
    """A prompt of 2 s, tokens for 30 s, 10 s of rest, read every two seconds."""
    return ([PHASE_COMPUTE_BOUND] + [PHASE_MEMORY_BOUND] * 15 + [PHASE_IDLE] * 5) * requests


def batched(readings: int) -> list[int]:
    """Continuous batching: prompts hit by every other reading, rest by every tenth."""
    return [PHASE_IDLE if n % 10 == 9 else (PHASE_COMPUTE_BOUND, PHASE_MEMORY_BOUND)[n % 2] for n in range(readings)]


def test_requests_one_at_a_time_do_not_alternate() -> None:
    assert not alternate(share_after(one_at_a_time(200))).any()


def test_continuous_batching_alternates_and_is_known_for_it_within_two_minutes() -> None:
    assert alternate(share_after(batched(60))).all()


def test_who_goes_back_to_one_request_at_a_time_is_seen_to() -> None:
    assert not alternate(share_after(batched(200) + one_at_a_time(10))).any()


def test_rest_tells_nothing_of_how_phases_follow_each_other() -> None:
    before = share_after(batched(200))

    assert prompts_share(before, np.array([PHASE_IDLE]), 60.0) == pytest.approx(before)


def test_the_first_reading_and_one_after_a_long_silence_tell_nothing() -> None:
    assert prompts_share(np.zeros(1), np.array([PHASE_COMPUTE_BOUND]), float("inf")) == 0.0


def seen(phase: int, draw_w: float) -> PowerReadings:
    return replace(no_readings(1, 2), phase=np.array([phase]), draw_w=np.array([draw_w]))


@pytest.mark.parametrize(
    ("prompts", "phase", "draw_w", "lasts"),
    [
        (0.05, PHASE_MEMORY_BOUND, 250.0, PHASE_MEMORY_BOUND),
        (0.05, PHASE_COMPUTE_BOUND, 380.0, PHASE_COMPUTE_BOUND),
        (0.05, PHASE_IDLE, 61.0, PHASE_IDLE),
        (0.05, PHASE_IDLE, 120.0, PHASE_COMPUTE_BOUND),  # it worked until a moment ago
        (0.40, PHASE_MEMORY_BOUND, 250.0, PHASE_UNKNOWN),
        (0.40, PHASE_COMPUTE_BOUND, 380.0, PHASE_UNKNOWN),
        (0.40, PHASE_IDLE, 61.0, PHASE_IDLE),
        (0.40, PHASE_IDLE, 120.0, PHASE_UNKNOWN),
    ],
)
def test_only_phases_count_that_will_still_hold(prompts: float, phase: int, draw_w: float, lasts: int) -> None:
    assert lasting(np.array([prompts]), seen(phase, draw_w), IDLE_W).phase.tolist() == [lasts]


@pytest.mark.parametrize("idle_share", [0.05, 0.12, 0.2])
def test_what_a_device_draws_at_rest_is_learnt_and_counts_as_rest(idle_share: float) -> None:
    """The operator knows no type's idle draw: an idle A100 would count as at work by what an H100 draws."""
    most_w, idle_w = np.array([400.0]), 400.0 * idle_share
    rest_w = rest_after_w(highest_rest_w(most_w), seen(PHASE_IDLE, idle_w), 2.0, most_w)

    assert rest_w.tolist() == [idle_w]
    assert lasting(np.zeros(1), seen(PHASE_IDLE, idle_w * 1.02), rest_w).phase.tolist() == [PHASE_IDLE]
    assert lasting(np.zeros(1), seen(PHASE_IDLE, 240.0), rest_w).phase.tolist() == [PHASE_COMPUTE_BOUND]


def test_a_wrong_reading_at_rest_is_forgotten_and_work_teaches_nothing() -> None:
    most_w = np.array([400.0])
    rest_w = rest_after_w(np.array([80.0]), seen(PHASE_IDLE, float("nan")), 2.0, most_w)
    rest_w = rest_after_w(rest_w, seen(PHASE_MEMORY_BOUND, 20.0), 2.0, most_w)
    assert rest_w == pytest.approx(80.0, rel=0.01)

    rest_w = rest_after_w(rest_w, seen(PHASE_IDLE, 20.0), 2.0, most_w)
    for _ in range(3600):
        rest_w = rest_after_w(rest_w, seen(PHASE_IDLE, 80.0), 2.0, most_w)
    assert rest_w == pytest.approx(80.0, rel=0.01)
