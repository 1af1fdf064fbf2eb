"""Burst credit: joules above a lease that no breaker notices, earned no faster than the breaker cools."""

from dataclasses import replace

import numpy as np
import pytest

from power.leases.holder import may_burst
from power.safety.bursts import burst_of, burst_share_s, credit_after
from power.tree import tree_of
from tests.builders.power import CURVE, Device, Domain, power_table, row_of

BUDGET_W = 2000.0


def test_all_bursts_of_a_domain_together_are_half_of_what_its_breaker_tolerates() -> None:
    """The other half is for bursts that follow while it still cools. Four devices rise by 300 W each, 1.6 times the
    budget with it."""
    tree = tree_of(row_of([Device(f"g{n}", f"n{n}") for n in range(4)], BUDGET_W))

    burst_j = burst_of(tree, 1.0)

    assert burst_j.sum() == pytest.approx(0.5 * burst_share_s(CURVE, 1.0 + 1200.0 / BUDGET_W) * BUDGET_W)
    assert burst_of(tree, 0.0).tolist() == [0.0] * 4


def test_a_class_with_hard_limits_never_bursts_and_leaves_the_breakers_tolerance_to_others() -> None:
    table = row_of([Device(f"g{n}", f"n{n}", "high" if n < 2 else "low") for n in range(4)], BUDGET_W)
    hard = replace(table, classes=(table.classes[0], replace(table.classes[1], bursts=False)))

    burst_j = burst_of(tree_of(hard), 1.0)

    assert (burst_j[:2] > burst_of(tree_of(table), 1.0)[:2]).all()
    assert burst_j[2:].tolist() == [0.0, 0.0]


def test_the_tightest_breaker_above_a_device_bounds_its_bursts() -> None:
    domains = [Domain("site", 1e5), Domain("row", 1000.0, {"site": 1.0}), Domain("n", feeds={"row": 1.0})]
    alone = row_of([Device("g", "n")], 1000.0)

    both = burst_of(tree_of(power_table(domains, [Device("g", "n")])), 1.0)

    assert both == pytest.approx(burst_of(tree_of(alone), 1.0))


def credit(had_j: float, draw_w: float, for_s: float = 10.0) -> float:
    """Credit of a device with a lease of 300 W and bursts of 900 J, which come back in 300 s."""
    columns = (np.array([value]) for value in (had_j, draw_w, 300.0, 900.0))
    return float(credit_after(*columns, for_s, 300.0)[0])


def test_credit_comes_back_no_faster_than_the_breaker_cools() -> None:
    assert credit(0.0, 100.0) == pytest.approx(30.0), "200 W stay unused for 10 s, and 900 J need 300 s"
    assert credit(0.0, 299.0) == pytest.approx(10.0), "no more than was not used"
    assert credit(890.0, 100.0) == pytest.approx(900.0), "never more than the whole"


def test_what_is_drawn_above_the_lease_is_spent_at_once() -> None:
    assert credit(900.0, 350.0) == pytest.approx(400.0)
    assert credit(100.0, 350.0) == pytest.approx(-400.0)


def test_after_running_out_half_of_the_credit_must_be_back() -> None:
    """Else a device would flicker above its lease at every look."""
    credit_j, burst_j = np.array([1.0, 449.0, 451.0, 0.0]), np.full(4, 900.0)

    assert may_burst(credit_j, np.zeros(4, dtype=bool), burst_j).tolist() == [False, False, True, False]
    assert may_burst(credit_j, np.ones(4, dtype=bool), burst_j).tolist() == [True, True, True, False]
    assert not may_burst(credit_j, np.ones(4, dtype=bool), np.zeros(4)).any()
