"""Departures per arrival, from events of real pods alone."""

import pytest

from placement.policies.bid_price import WINDOW_PODS, Turnover


def test_a_fleet_that_only_fills_up_has_no_turnover() -> None:
    turnover = Turnover()
    for _ in range(3 * WINDOW_PODS):
        turnover.arrived()

    assert turnover.share == 0.0


def test_where_as_many_leave_as_arrive_the_turnover_nears_one() -> None:
    turnover = Turnover()
    for _ in range(5 * WINDOW_PODS):
        turnover.departed()
        turnover.arrived()

    assert turnover.share == pytest.approx(1 - 2**-5)  # half of the remaining distance each window


def test_pods_that_arrive_together_count_as_so_many_arrivals() -> None:
    turnover = Turnover()
    turnover.departed(WINDOW_PODS)
    turnover.arrived(2 * WINDOW_PODS)

    assert turnover.share == pytest.approx(0.25)  # (0 + 512 / 1,024) / 2
