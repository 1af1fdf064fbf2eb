"""Account of bursts: credit returns soon only below a breaker that is surely cold, and liars are found by debt."""

from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from cluster.power import PowerReadings
from power.rules import PowerRules
from power.safety.bursts import BurstAccount, burst_of, counted, first_account, restoring
from power.tree import Tree, tree_of
from tests.builders.power import Device, no_readings, row_of

RULES = PowerRules(control_delay_s=6.0)
LEASE_W, MOST_W, BUDGET_W = 200.0, 400.0, 2000.0


def tree() -> Tree:
    return tree_of(row_of([Device(f"g{n}", f"n{n}", "high" if n < 2 else "low") for n in range(4)], BUDGET_W))


def fresh_account() -> BurstAccount:
    return first_account(tree(), RULES, burst_of(tree(), 1.0))


def drawing(account: BurstAccount, share: float, now_s: float, *, braked: bool = False) -> BurstAccount:
    """The account after a draw of this fraction of the budget."""
    budget_w = np.array([BUDGET_W])
    return restoring(account, tree(), RULES, share * budget_w, budget_w, now_s, braked=braked)


def test_credit_comes_back_quickly_only_while_the_row_is_calm() -> None:
    assert drawing(fresh_account(), 0.95, 100.0).back_s[0] == RULES.calm_credit_back_s
    assert drawing(fresh_account(), 0.98, 100.0).back_s[0] == RULES.credit_back_s


def test_a_row_under_a_brake_only_looks_calm() -> None:
    assert drawing(fresh_account(), 0.5, 100.0, braked=True).back_s[0] == RULES.credit_back_s


def test_credit_comes_back_slowly_until_a_breaker_that_was_passed_has_cooled() -> None:
    warm = drawing(fresh_account(), 1.005, 100.0)

    assert drawing(warm, 0.75, 110.0).back_s[0] == RULES.credit_back_s
    assert drawing(warm, 0.75, 100.0 + RULES.credit_back_s + 1.0).back_s[0] == RULES.calm_credit_back_s


def readings(at_s: float, draw_w: FloatArray) -> PowerReadings:
    return replace(no_readings(4, 5), at_s=np.full(4, at_s), draw_w=draw_w, cap_w=np.full(4, LEASE_W))


def found_within(draw_w: FloatArray, for_s: float) -> BoolArray:
    account, burst_j = fresh_account(), burst_of(tree(), 1.0)
    found: BoolArray = np.zeros(4, dtype=np.bool_)
    for at_s in np.arange(0.0, for_s, 2.0):
        account, now = counted(account, tree(), RULES, burst_j, readings(float(at_s), draw_w))
        found |= now
    return found


def test_who_draws_above_its_lease_for_longer_than_any_burst_is_found() -> None:
    draw_w = np.array([LEASE_W, LEASE_W, MOST_W, LEASE_W])

    assert found_within(draw_w, 120.0).tolist() == [False, False, True, False]


def test_who_errs_by_a_twentieth_is_not_found() -> None:
    assert not found_within(np.full(4, 1.05 * LEASE_W), 3600.0).any()


def test_who_claims_a_limit_that_no_device_has_is_found_by_what_it_draws() -> None:
    """Its lease counts no higher than the limit without any lease, however high a limit it reports."""
    account, burst_j = fresh_account(), burst_of(tree(), 1.0)
    found: BoolArray = np.zeros(4, dtype=np.bool_)
    for at_s in np.arange(0.0, 120.0, 2.0):
        seen = readings(float(at_s), np.array([700.0, LEASE_W, LEASE_W, LEASE_W]))
        lies = replace(seen, cap_w=np.array([10_000.0, LEASE_W, LEASE_W, LEASE_W]))
        account, now = counted(account, tree(), RULES, burst_j, lies)
        found |= now

    assert found.tolist() == [True, False, False, False]
