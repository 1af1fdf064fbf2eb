"""Room for bursts: less the nearer a domain draws to its budget, given back bit by bit, and liars are found by it."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import BoolArray, FloatArray
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN, PowerReadings
from power.allocator.marginal_utility import pieces
from power.allocator.state import allocator_of
from power.allocator.targets import all_needs, targets
from power.bursts.burst_credit import burst_of
from power.bursts.burst_limits import BurstAccount, bounded, counted, first_account
from power.bursts.headroom import Room
from power.domains.tree import Tree, tree_of
from power.estimation.estimator import Estimate, first_trust
from power.rules import PowerRules
from tests.builders.power import Device, no_readings, row_of

RULES = PowerRules(control_delay_s=6.0)
LEASE_W, FLOOR_W, USUAL_W, MOST_W = 200.0, 250.0, 300.0, 400.0
BUDGET_W = 2000.0
SPIKE_W = 100.0


def tree() -> Tree:
    devices = [Device(f"g{n}", f"n{n}", "high" if n < 2 else "low", floor_w=FLOOR_W) for n in range(4)]
    return tree_of(row_of(devices, BUDGET_W))


def bounds_w(
    account: BurstAccount,
    room_in_spikes: float,
    now_s: float,
    *,
    held_back: tuple[int, ...] = (),
    to_lease: tuple[int, ...] = (),
) -> BurstAccount:
    """Bounds with this many measured spikes of room below the budget; every lease is 200 W and all draw that."""
    waiting: BoolArray = np.isin(np.arange(4), held_back)
    return bounded(
        account,
        tree(),
        RULES,
        draw_w=np.full(4, LEASE_W),
        held_back=waiting,
        to_lease=np.isin(np.arange(4), to_lease),
        drawn_w=np.array([BUDGET_W - room_in_spikes * SPIKE_W]),
        room=Room(np.array([room_in_spikes * SPIKE_W]), np.array([SPIKE_W])),
        budget_w=np.array([BUDGET_W]),
        cap_w=np.full(4, LEASE_W),
        usual_w=np.full(4, USUAL_W),
        now_s=now_s,
    )


def fresh_account() -> BurstAccount:
    return first_account(tree(), RULES, burst_of(tree(), 1.0))


@pytest.mark.parametrize(
    ("room_in_spikes", "high_w", "low_w"),
    [
        (1.6, MOST_W, MOST_W),
        (1.0, MOST_W, 325.0),  # halfway from the floor, 250 W, to the highest limit
        (0.55, 325.0, 257.5),
        (0.25, 241.67, 225.0),  # low: halfway from the lease, 200 W, to the floor
        (0.0, LEASE_W, LEASE_W),
        (-1.0, LEASE_W, LEASE_W),
    ],
)
def test_bursts_get_lower_the_less_room_there_is_and_those_of_low_classes_first(
    room_in_spikes: float, high_w: float, low_w: float
) -> None:
    account = bounds_w(fresh_account(), room_in_spikes, 100.0)

    assert account.to_w == pytest.approx([high_w, high_w, low_w, low_w], abs=0.01)


def test_who_is_to_keep_to_its_lease_does_as_soon_as_room_is_scarce() -> None:
    assert bounds_w(fresh_account(), 1.6, 100.0, to_lease=(0, 2)).to_w.tolist() == [MOST_W] * 4
    scarce = bounds_w(fresh_account(), 1.4, 100.0, to_lease=(0, 2))
    assert scarce.to_w == pytest.approx([LEASE_W, MOST_W, LEASE_W, 385.0])


def test_who_waited_is_let_burst_no_further_than_fits_the_first_class_first() -> None:
    """All four wait at their lease; 3 spikes are free. To 400 W the two of the first class would draw 400 W more.

    They may take what is left beyond 0.8 spikes, 220 W, so 110 W each; of what is left beyond 1.5
    spikes, the room of low classes, nothing remains after that.
    """
    closed = bounds_w(fresh_account(), 0.0, 100.0)

    opened = bounds_w(closed, 3.0, 110.0, held_back=(0, 1, 2, 3))

    assert opened.to_w == pytest.approx([310.0, 310.0, 200.0, 200.0])


def test_bounds_are_lifted_once_in_a_control_delay() -> None:
    """What was let draw more shows in a reading only a control delay later; until then its room would count twice."""
    closed = bounds_w(fresh_account(), 0.0, 100.0)
    once = bounds_w(closed, 3.0, 110.0, held_back=(0, 1))

    soon, later = (bounds_w(once, 3.0, at_s, held_back=(0, 1)) for at_s in (114.0, 116.0))

    assert soon.to_w[:2] == pytest.approx([310.0, 310.0])
    assert later.to_w[:2] == pytest.approx([400.0, 400.0])


def test_who_does_not_wait_for_more_is_let_burst_at_once() -> None:
    closed = bounds_w(fresh_account(), 0.0, 100.0)

    assert bounds_w(closed, 3.0, 101.0).to_w.tolist() == [MOST_W] * 4


def test_credit_comes_back_quickly_only_while_the_row_is_calm() -> None:
    calm, busy = bounds_w(fresh_account(), 1.0, 100.0), bounds_w(fresh_account(), 0.5, 100.0)

    assert calm.back_s[0] == RULES.calm_credit_back_s  # it draws 1,900 W, 95 % of its budget: below 97 %
    assert busy.back_s[0] == RULES.credit_back_s


def test_credit_comes_back_slowly_until_a_breaker_that_was_passed_has_cooled() -> None:
    warm = bounds_w(fresh_account(), -0.1, 100.0)

    soon, later = bounds_w(warm, 5.0, 110.0), bounds_w(warm, 5.0, 100.0 + RULES.credit_back_s + 1.0)

    assert soon.back_s[0] == RULES.credit_back_s
    assert later.back_s[0] == RULES.calm_credit_back_s


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


@pytest.mark.parametrize("seed", range(200))
def test_where_all_needs_fit_the_short_way_grants_what_pouring_would(seed: int) -> None:
    chance = np.random.default_rng(seed)
    devices = [Device(f"g{n}", f"n{n}", chance.choice(["high", "low"]), overshoot_share=0.03) for n in range(6)]
    allocator = allocator_of(row_of(devices, float(chance.uniform(600.0, 2400.0))))
    need_w = np.round(chance.uniform(200.0, 400.0, 6), 1)
    phase = chance.choice([PHASE_UNKNOWN, PHASE_IDLE, PHASE_COMPUTE_BOUND, PHASE_MEMORY_BOUND], 6)
    nobody = np.zeros(6, dtype=np.bool_)
    seen = Estimate(need_w, need_w, ~nobody, np.zeros(6, dtype=np.int64), clean=True)
    room_w, reserve_w, trust = allocator.tree.budget_w, np.array([100.0]), first_trust(allocator.tree)

    short_w = all_needs(allocator, trust, seen, need_w, phase, room_w - reserve_w)

    width_w, level = pieces(allocator.appetite, need_w, need_w, phase, np.zeros(6))
    poured_w = targets(allocator, trust, seen, width_w, level, room_w, reserve_w)
    assert short_w is None or short_w == pytest.approx(poured_w)
    needed_w = float((1.03 * np.where(phase == PHASE_IDLE, 100.0 + need_w - 200.0, need_w)).sum())
    assert (short_w is None) == (needed_w > float(room_w[0] - 100.0))


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
