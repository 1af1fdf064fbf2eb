"""Tonnage's policy on the simulated row: leases within the budget, and no server dark without a controller."""

import numpy as np
import pytest

from simulator.power.machine import DGX_A100
from simulator.power.policies import Readings, RowOrders, RowPolicy
from simulator.power.requests import RateCurve, Requests, draw_requests
from simulator.power.study import safe_floor_w
from simulator.power.tonnage_policy import TonnagePower
from simulator.power.trial import TrialOutcome, TrialRules, run_trial
from tests.builders.power_pools import pools_of

SERVERS = (6, 6)
BUDGET_W = 12 * 3500.0
"""Less than twelve servers that all work on tokens (3,900 W each)."""


class Watched:
    """The policy, with every order that it gave."""

    def __init__(self, policy: RowPolicy) -> None:
        self.name, self.policy, self.orders = policy.name, policy, list[RowOrders]()

    def step(self, now_s: float, seen: Readings) -> RowOrders | None:
        orders = self.policy.step(now_s, seen)
        self.orders += [orders] if orders else []
        return orders

    def set_budget(self, budget_w: float) -> None:
        self.policy.set_budget(budget_w)

    def named(self) -> dict[int, str]:
        return dict(self.policy.named())


@pytest.fixture(scope="module")
def run() -> tuple[TrialOutcome, list[RowOrders]]:
    pools = pools_of(SERVERS, RateCurve("steady", 600.0, np.ones(6)), peak_busy_share=0.95)
    watched = Watched(TonnagePower(pools, BUDGET_W, 2.0, 2.0))
    rules = TrialRules(budget_w=BUDGET_W, safe_floor_w=safe_floor_w(pools, BUDGET_W))
    requests = draw_requests(pools, seed=9)
    outcome = run_trial(pools, requests, for_s=3600.0, make_policy=lambda _: watched, rules=rules, seed=1)
    return outcome, watched.orders


def test_leases_never_add_up_to_more_than_the_budget(run: tuple[TrialOutcome, list[RowOrders]]) -> None:
    _, orders = run
    settled = orders[10:]  # the first orders find every server at its default limit
    assert max(float(np.minimum(o.cap_w, DGX_A100.highest_w).sum()) for o in settled) <= BUDGET_W + 1e-6


def test_the_breaker_stays_closed_even_where_bursts_pull_the_brake(run: tuple[TrialOutcome, list[RowOrders]]) -> None:
    """On so small and so busy a row they do (docs/benchmarks.md); what they may not do is open the breaker."""
    outcome, _ = run
    assert outcome.breaker_share < 0.5


def test_nobody_is_named_where_all_obey(run: tuple[TrialOutcome, list[RowOrders]]) -> None:
    assert run[0].named == ()


@pytest.mark.parametrize("steady_share", [0.8, 0.88, 0.94])
def test_prompts_on_every_server_that_generates_tokens_at_once_do_not_open_the_breaker(steady_share: float) -> None:
    """The policy counts on a third of them (`together_share`), and a lease above a draw is no rise: so all together
    pass the budget for one control delay. They do so again and again, and no brake ends it.

    steady_share: draw of all in token generation, as a fraction of the budget.
    """
    pools = pools_of(SERVERS, RateCurve("steady", 600.0, np.ones(4)), batch=2)
    pool = np.repeat([0, 1], SERVERS)
    waves_s = np.arange(600.0, 2300.0, 20.0)
    begins_s = np.random.default_rng(1).uniform(0.0, 300.0, len(pool))
    prompts = np.where(np.arange(len(pool) * (1 + len(waves_s))) < len(pool), 512.0, 8192.0)
    requests = Requests(
        at_s=np.concatenate([np.sort(begins_s), np.repeat(waves_s, len(pool))]),
        of_pool=np.tile(pool, 1 + len(waves_s)),
        prompt_s=DGX_A100.prompt_seconds(prompts),
        swing_w=DGX_A100.prompt_swing_w(prompts),
        tokens=np.where(prompts == 512.0, 48_000, 100),
    )
    budget_w = len(pool) * (DGX_A100.idle_w + DGX_A100.token_swing_w(1)) / steady_share
    rules = TrialRules(budget_w=budget_w, brake=False, safe_floor_w=safe_floor_w(pools, budget_w))

    outcome = run_trial(
        pools,
        requests,
        for_s=2400.0,
        make_policy=lambda watts: TonnagePower(pools, watts, 2.0, 0.0),
        rules=rules,
    )

    assert outcome.peak_share > 1.05
    assert outcome.breaker_share < 0.15
