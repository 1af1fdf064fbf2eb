"""Phases that alternate faster than they are read carry no information; those that last do. Idle draws are learnt."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN
from power.control.state import allocator_of
from power.policy.by_class import DeviceDemand, no_demand, observed
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
        at_s=0.0,
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


def after(*readings: PolicyInput, start: DeviceDemand | None = None) -> DeviceDemand:
    demand = start or no_demand(plant())
    for each in readings:
        demand = observed(plant(), demand, each)
    return demand


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


@pytest.mark.parametrize(
    ("prompts", "phase", "draw_w", "lasts"),
    [
        (0.05, PHASE_MEMORY_BOUND, 250.0, PHASE_MEMORY_BOUND),
        (0.05, PHASE_COMPUTE_BOUND, 380.0, PHASE_COMPUTE_BOUND),
        (0.05, PHASE_IDLE, 61.0, PHASE_IDLE),
        (0.40, PHASE_MEMORY_BOUND, 250.0, PHASE_UNKNOWN),
        (0.40, PHASE_COMPUTE_BOUND, 380.0, PHASE_UNKNOWN),
        (0.40, PHASE_IDLE, 61.0, PHASE_IDLE),
    ],
)
def test_only_phases_count_that_will_still_hold(prompts: float, phase: int, draw_w: float, lasts: int) -> None:
    start = replace(no_demand(plant()), prompts=np.array([prompts]))

    assert after(seen(phase, draw_w), start=start).phase.tolist() == [lasts]


@pytest.mark.parametrize(("prompts", "rests"), [(0.05, True), (0.40, False)])
def test_an_idle_device_rests_unless_its_phases_alternate(prompts: float, *, rests: bool) -> None:
    start = replace(no_demand(plant()), prompts=np.array([prompts]))

    assert after(seen(PHASE_IDLE, IDLE_W), start=start).rests.tolist() == [rests]
