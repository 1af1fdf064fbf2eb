"""Headroom for bursts."""

import math

import numpy as np
import pytest

from placement.mix.problem import ATTAINMENT_Z, IDLE_SHARE, burst_room, in_flight_at_slo, room_needed


def test_the_tangents_lie_on_or_little_above_the_square_root() -> None:
    for variance in np.geomspace(4.0**-5, 4.0**4, 200):
        curve = ATTAINMENT_Z * math.sqrt(IDLE_SHARE * variance)
        assert curve * (1 - 1e-12) <= burst_room(variance) <= curve * 1.0607


def test_a_larger_pool_needs_a_smaller_share_of_headroom() -> None:
    shares = [burst_room(load / 20) / load for load in (1, 4, 16, 64)]

    assert shares == sorted(shares, reverse=True)


def test_room_for_bursts_of_a_pool_that_was_worked_out() -> None:
    # 4 busy instances of 16 requests each: variance 4/16 = 0.25 touches a tangent, so the room is exactly
    # 3.29 × √(0.5 × 0.25) = 1.1632.
    assert room_needed(4.0, 0.25, None) == pytest.approx(4 + 1.1632, abs=1e-4)


def test_a_fixed_share_divides() -> None:
    assert room_needed(3.0, 99.0, 0.25) == pytest.approx(4.0)


def test_zero_load_needs_no_headroom() -> None:
    assert room_needed(0.0, 0.0, None) == 0.0


def test_requests_in_flight_follow_littles_law() -> None:
    # 5 requests/s, each 100 tokens at 0.04 s: 20 at a time. A bucket that cannot be served holds none, and one that
    # can be served holds at least one.
    held = in_flight_at_slo(np.array([5.0, 0.0, 0.01]), 0.04, np.array([100.0, 100.0, 100.0]))

    assert held.tolist() == [20.0, 0.0, 1.0]
