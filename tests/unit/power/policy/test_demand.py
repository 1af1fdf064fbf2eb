"""Phases that alternate faster than they are read carry no information; swings of a draw are learnt and forgotten."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND
from power.control.state import allocator_of
from power.policy.by_class import ByClass, ByClassMemory, observed
from power.policy.interface import Plant, PolicyInput
from power.rules import PowerRules
from tests.builders.power import Device, row_of

IDLE_W = 60.0
ALTERNATES = 0.25


def plant() -> Plant:
    return allocator_of(row_of([Device("g", "n")], 1000.0), PowerRules()).plant


def seen(phase: int, draw_w: float, for_s: float = 2.0) -> PolicyInput:
    one, no = np.ones(1), np.zeros(1, dtype=np.bool_)
    return PolicyInput(
        for_s=for_s,
        draw_w=draw_w * one,
        shown_w=draw_w * one,
        phase=np.array([phase]),
        limit_w=400.0 * one,
        lease_w=400.0 * one,
        shows=~no,
        governed=~no,
        base_w=100.0 * one,
        free_w=1000.0 * one,
        drawn_w=draw_w * one,
        budget_w=1000.0 * one,
        is_clean=True,
        slowed=None,
    )


def after(*readings: PolicyInput) -> ByClassMemory:
    memory = ByClass(plant()).first()
    for each in readings:
        memory = observed(plant(), memory, each)
    return memory


def share_after(phases: list[int], every_s: float = 2.0) -> float:
    return float(after(*(seen(phase, 250.0, every_s) for phase in phases)).prompts[0])


def one_at_a_time(requests: int) -> list[int]:
    """A prompt of 2 s, tokens for 30 s, 10 s of rest, read every two seconds."""
    return ([PHASE_COMPUTE_BOUND] + [PHASE_MEMORY_BOUND] * 15 + [PHASE_IDLE] * 5) * requests


def batched(readings: int) -> list[int]:
    """Continuous batching: prompts hit by every other reading, rest by every tenth."""
    return [PHASE_IDLE if n % 10 == 9 else (PHASE_COMPUTE_BOUND, PHASE_MEMORY_BOUND)[n % 2] for n in range(readings)]


def test_requests_one_at_a_time_do_not_alternate() -> None:
    assert share_after(one_at_a_time(200)) < ALTERNATES


def test_continuous_batching_alternates_and_is_known_for_it_within_two_minutes() -> None:
    assert share_after(batched(60)) >= ALTERNATES


def test_who_goes_back_to_one_request_at_a_time_is_seen_to() -> None:
    assert share_after(batched(200) + one_at_a_time(10)) < ALTERNATES


def test_rest_tells_nothing_of_how_phases_follow_each_other() -> None:
    before = share_after(batched(200))

    assert share_after([*batched(200), PHASE_IDLE]) == pytest.approx(before)


def test_the_first_reading_and_one_after_a_long_silence_tell_nothing() -> None:
    assert share_after([PHASE_COMPUTE_BOUND], every_s=0.0) == 0.0
    assert share_after([PHASE_COMPUTE_BOUND], every_s=600.0) == 0.0


def swing_after(draws_w: list[float], *, slowed: bool = False) -> float:
    held = np.ones(1, dtype=np.bool_) if slowed else None
    return float(after(*(replace(seen(PHASE_MEMORY_BOUND, watts), slowed=held) for watts in draws_w)).swing_w[0])


def test_a_swing_is_the_usual_distance_from_the_smoothed_draw() -> None:
    """A draw that is 100 W above and below its mean by turns: smoothed over 8 s it moves by some 10 W either way."""
    assert swing_after([300.0, 100.0] * 5000) == pytest.approx(112.0, rel=0.02)
    assert swing_after([200.0] * 9000) < 0.2  # the guess of 20 W is forgotten in hours


def test_the_first_draw_and_what_a_brake_does_are_no_swings() -> None:
    guess_w = swing_after([])

    assert swing_after([390.0]) == guess_w == 20.0
    assert swing_after([300.0, 100.0] * 500, slowed=True) == guess_w
