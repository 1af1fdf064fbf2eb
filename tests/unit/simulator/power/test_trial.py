"""A run: what protects the row's breaker, what reaches the servers and when, what faults change."""

from itertools import pairwise

import numpy as np
import pytest

from cluster.power import BreakerCurve
from simulator.power.agents import Brake, BreakerHeat, Fault, opens_after_s
from simulator.power.machine import DGX_A100
from simulator.power.policies import BASELINES, MeterPolicy, Readings, RowOrders, baseline
from simulator.power.requests import RateCurve, draw_requests
from simulator.power.trial import TrialOutcome, TrialRules, run_trial
from tests.builders.power_pools import pools_of

SERVERS = (4, 4)
STEADY = RateCurve("steady", 600.0, np.ones(6))
POOLS = pools_of(SERVERS, STEADY)
CURVE = BreakerCurve(over=(1.1, 1.2, 2.0), for_s=(600.0, 60.0, 5.0))


class FakePolicy(MeterPolicy):
    """Limits of this many watts for all, once, at the first decision; remembers what it saw."""

    name = "scripted"

    def __init__(self, cap_w: float, for_s: float = np.inf, every: bool = False) -> None:
        super().__init__(0.0)
        self.cap_w, self.for_s, self.every = cap_w, for_s, every
        self.seen: list[tuple[float, Readings]] = []

    def step(self, now_s: float, seen: Readings) -> RowOrders | None:
        self.seen.append((now_s, seen))
        if len(self.seen) > 1 and not self.every:
            return None
        count = sum(SERVERS)
        return RowOrders(
            len(self.seen), np.full(count, len(self.seen)), np.ones(count), np.full(count, self.cap_w), for_s=self.for_s
        )


def trial(policy: MeterPolicy, for_s: float = 600.0, **rules: object) -> TrialOutcome:
    requests = draw_requests(POOLS, seed=5)
    given = TrialRules(**{"budget_w": 1e9, **rules})  # type: ignore[arg-type]
    return run_trial(POOLS, requests, for_s=for_s, make_policy=lambda _: policy, rules=given, seed=2)


def test_the_brake_acts_late_and_holds() -> None:
    brake = Brake(budget_w=100.0)
    brake.read(10.0, 99.9)
    brake.read(12.0, 100.0)
    brake.read(14.0, 130.0)
    assert brake.changes_until(100.0) == [(17.0, True), (77.0, False)]
    assert brake.pulled == 1


def test_a_breaker_opens_after_the_time_of_its_curve() -> None:
    heat = BreakerHeat(CURVE, 100.0)
    for _ in range(30):
        heat.read(2.0, 120.0)
    assert heat.share == pytest.approx(1.0)


def test_a_breaker_cools_below_the_budget() -> None:
    heat = BreakerHeat(CURVE, 100.0)
    heat.read(30.0, 120.0)
    heat.read(CURVE.cooling_s, 99.0)
    assert heat.share == pytest.approx(0.5 / np.e)
    assert heat.highest_share == pytest.approx(0.5)


def test_more_over_the_budget_opens_a_breaker_sooner() -> None:
    times = [opens_after_s(CURVE, over) for over in (1.0, 1.01, 1.1, 1.15, 1.2, 1.5, 2.0, 3.0)]
    assert times[0] == np.inf
    assert all(sooner <= later for later, sooner in pairwise(times))
    assert times[2] == pytest.approx(600.0)


def test_an_order_takes_effect_after_the_control_delay() -> None:
    policy = FakePolicy(DGX_A100.floor_w)
    trial(policy, delay_s=10.0)
    capped_at = [now_s for now_s, seen in policy.seen if np.isfinite(seen.cap_w).all()]
    # Telemetry is 2 s late: decided at 4 s, in force at 14 s, read in the period that ends at 14 s, reported at 16 s.
    assert capped_at[0] == 16.0


def test_telemetry_is_late() -> None:
    policy = FakePolicy(1e9)
    trial(policy, telemetry_s=4.0)
    assert {now_s - seen.meter_at_s for now_s, seen in policy.seen} == {4.0}


def test_servers_under_a_lease_that_ran_out_keep_to_the_safe_floor() -> None:
    policy = FakePolicy(DGX_A100.highest_w, for_s=10.0)
    outcome = trial(policy, safe_floor_w=DGX_A100.floor_w)
    assert outcome.row_w[20:].max() <= sum(SERVERS) * DGX_A100.floor_w + 1e-6


def test_a_lease_that_is_renewed_does_not_run_out() -> None:
    policy = FakePolicy(DGX_A100.highest_w, for_s=10.0, every=True)
    outcome = trial(policy, safe_floor_w=DGX_A100.floor_w)
    assert outcome.row_w[20:].max() > sum(SERVERS) * DGX_A100.floor_w


@pytest.mark.parametrize("kind", ["killed", "cut"])
def test_without_a_controller_leases_run_out(kind: str) -> None:
    policy = FakePolicy(DGX_A100.highest_w, for_s=10.0, every=True)
    fault = Fault(kind, 100.0, 400.0)  # type: ignore[arg-type]
    outcome = trial(policy, safe_floor_w=DGX_A100.floor_w, faults=(fault,))
    floor_w = sum(SERVERS) * DGX_A100.floor_w + 1e-6
    assert outcome.row_w[56:199].max() <= floor_w  # 100 s, a lease of 10 s from its arrival 2 s later, to 400 s
    assert outcome.row_w[:50].max() > floor_w
    assert outcome.row_w[205:].max() > floor_w


def test_frozen_telemetry_repeats_itself_and_its_age_tells() -> None:
    policy = FakePolicy(1e9)
    trial(policy, faults=(Fault("frozen", 100.0, 200.0),))
    frozen = [(now_s, seen) for now_s, seen in policy.seen if 104.0 <= now_s < 200.0]
    assert len({seen.row_w for _, seen in frozen}) == 1
    assert {seen.meter_at_s for _, seen in frozen} == {100.0}


def test_a_stuck_meter_claims_to_be_fresh() -> None:
    policy = FakePolicy(1e9)
    trial(policy, faults=(Fault("frozen-fresh", 100.0, 200.0),))
    frozen = [(now_s, seen) for now_s, seen in policy.seen if 104.0 <= now_s < 200.0]
    assert len({seen.row_w for _, seen in frozen}) == 1
    assert {now_s - seen.meter_at_s for now_s, seen in frozen} == {2.0}


@pytest.mark.parametrize("kind", ["stuck", "clamped", "lying"])
def test_bad_actuators_draw_more_than_they_were_told(kind: str) -> None:
    policy = FakePolicy(DGX_A100.floor_w)
    fault = Fault(kind, 0.0, 600.0, share=0.5)  # type: ignore[arg-type]
    outcome = trial(policy, faults=(fault,))
    assert outcome.row_w[50:].max() > sum(SERVERS) * DGX_A100.floor_w + 100


@pytest.mark.parametrize(("kind", "confessed"), [("stuck", True), ("clamped", True), ("lying", False)])
def test_only_a_liar_says_that_it_obeys(kind: str, confessed: bool) -> None:
    policy = FakePolicy(DGX_A100.floor_w)
    trial(policy, faults=(Fault(kind, 0.0, 600.0, share=0.5),))  # type: ignore[arg-type]
    reported_w = policy.seen[-1][1].cap_w
    assert (reported_w != DGX_A100.floor_w).sum() == (4 if confessed else 0)


def test_a_cut_budget_is_judged_by_the_smaller_one() -> None:
    policy = FakePolicy(1e9)
    whole = trial(policy)
    budget_w = 1.4 * whole.peak_w
    assert trial(policy, budget_w=budget_w).over_s == 0.0
    cut = trial(policy, budget_w=budget_w, faults=(Fault("budget-cut", 100.0, 300.0, share=0.4),))
    assert 0 < cut.over_s <= 200.0


def test_who_starves_at_the_end_counts_with_the_time_waited() -> None:
    """A policy that never serves must not look fast."""
    free, starved = trial(FakePolicy(1e9), for_s=3600.0), trial(FakePolicy(0.0), for_s=3600.0)
    assert starved.of_pool("low").unserved > free.of_pool("low").unserved
    assert starved.of_pool("low").p50_s > free.of_pool("low").p50_s


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in ("no-cap", "two-clocks")])
def test_a_policy_holds_back_when_the_row_draws_its_budget_and_lets_go_when_it_does_not(name: str) -> None:
    policy = baseline(name, POOLS, 1000.0, 2.0)

    def seen(row_w: float) -> Readings:
        none = np.zeros(8)
        return Readings(none, none, 0.0, row_w, none, none.astype(np.int64), none.astype(np.int64))

    held = [orders for n in range(30) if (orders := policy.step(2.0 * n, seen(990.0)))]
    assert held
    assert held[-1].clock[0] < 1.0
    released = [orders for n in range(30, 400) if (orders := policy.step(2.0 * n, seen(500.0)))]
    assert (released[-1].clock == 1.0).all()


def test_two_clocks_take_from_the_low_class_what_exceeds_the_budget_at_once_and_give_it_back_by_tenths() -> None:
    budget_w = sum(SERVERS) * 4000.0
    policy = baseline("two-clocks", POOLS, budget_w, 2.0)

    def shares(server_w: float) -> list[float] | None:
        none = np.zeros(8)
        each = Readings(none, none + server_w, 0.0, 8 * server_w, none, none.astype(np.int64), none.astype(np.int64))
        orders = policy.step(0.0, each)
        return None if orders is None else [float(orders.clock[0]), float(orders.clock[-1])]

    # The reserve is 1.3 times the first guess, 8 % of the budget: 32 kW - 3.3 kW for 8 servers, of which each may draw
    # 3,584 W. 3,984 W of each are 400 W too many; the low half alone pays 800 W of its 3,984 - 2,300 W above idle.
    assert shares(3984.0) == pytest.approx([1 - 800 / (3984 - DGX_A100.idle_w), 1.0], abs=1e-4)
    first = shares(DGX_A100.idle_w)
    assert first == pytest.approx([1 - 800 / (3984 - DGX_A100.idle_w) + 0.1, 1.0], abs=1e-4)
    back = [given for _ in range(8) if (given := shares(DGX_A100.idle_w))]
    assert back[-1] == [1.0, 1.0]


def test_two_clocks_reach_the_high_class_when_the_low_one_is_at_its_floor() -> None:
    policy = baseline("two-clocks", POOLS, sum(SERVERS) * 3000.0, 2.0)
    none = np.zeros(8)
    orders = policy.step(
        0.0, Readings(none, none + 3984.0, 0.0, 31872.0, none, none.astype(np.int64), none.astype(np.int64))
    )

    assert orders is not None
    assert orders.clock[0] == pytest.approx(DGX_A100.share_at(510.0))
    assert DGX_A100.share_at(810.0) <= orders.clock[-1] < 1.0


def test_polca_touches_the_high_class_only_when_the_low_one_was_not_enough() -> None:
    policy = baseline("polca", POOLS, 1000.0, 40.0)

    def clocks(now_s: float, row_w: float) -> tuple[float, float] | None:
        none = np.zeros(8)
        orders = policy.step(now_s, Readings(none, none, now_s, row_w, none, none.astype(int), none.astype(int)))
        return None if orders is None else (float(orders.clock[0]), float(orders.clock[-1]))

    assert clocks(0.0, 850.0) == (DGX_A100.share_at(1275.0), 1.0)
    assert clocks(2.0, 900.0) == (DGX_A100.share_at(1110.0), 1.0)
    assert clocks(40.0, 900.0) is None
    assert clocks(48.0, 900.0) == (DGX_A100.share_at(1110.0), DGX_A100.share_at(1305.0))
    assert clocks(50.0, 830.0) == (DGX_A100.share_at(1275.0), 1.0)
    assert clocks(52.0, 740.0) == (1.0, 1.0)
