"""When a server first draws what no honest one could have drawn: the instant from which naming it is counted."""

import numpy as np
import pytest

from simulator.power.agents import Fault, LeaseViolations

HIGHEST_W = 5000.0
PERIOD_S = 2.0
FAULT = Fault("lying", 10.0, 100.0)
BURST_J = 10_000.0


def first_offence(draws_w: list[float], *, cap_w: float = 3000.0, burst_w: float = np.inf) -> float | None:
    """When server 0 of two violates its lease, with constant grants, read every period."""
    offences = LeaseViolations([(FAULT, np.array([True, False]))], 2, HIGHEST_W)
    granted = (np.full(2, cap_w), np.full(2, BURST_J), np.full(2, burst_w))
    for period, draw_w in enumerate(draws_w, 1):
        offences.read(period * PERIOD_S, PERIOD_S, np.full(2, draw_w), granted, credit_back_s=20.0)
    assert 1 not in offences.at_s
    return offences.at_s.get(0)


def test_whoever_keeps_to_its_lease_and_its_bursts_offends_never() -> None:
    assert first_offence([1000.0] * 10 + [3100.0, 2900.0] * 10) is None
    assert first_offence([1000.0] * 10 + [5000.0] * 2) is None


def test_the_credit_of_bursts_is_what_an_honest_server_had() -> None:
    """10,000 J carry 2,000 W above the lease for five seconds, and an agent checks every half second."""
    assert first_offence([1000.0] * 10 + [5000.0] * 5) == pytest.approx(28.0, abs=2.0)


def test_a_draw_above_the_bound_on_bursts_is_an_offence_at_once() -> None:
    assert first_offence([1000.0] * 10 + [3900.0], burst_w=3600.0) == 22.0
    assert first_offence([1000.0] * 10 + [3700.0], burst_w=3600.0) is None  # meters err


def test_before_the_fault_nothing_is_held_against_a_server() -> None:
    assert first_offence([5000.0] * 3) is None


def test_a_lease_that_has_just_fallen_is_no_offence_yet() -> None:
    offences = LeaseViolations([(FAULT, np.array([True]))], 1, HIGHEST_W)
    nothing = np.zeros(1)
    for now_s, cap_w in ((12.0, 4000.0), (14.0, 3000.0), (16.0, 3000.0)):
        offences.read(now_s, PERIOD_S, np.array([4000.0]), (np.array([cap_w]), nothing, np.full(1, np.inf)), 20.0)

    assert offences.at_s == {0: 16.0}
