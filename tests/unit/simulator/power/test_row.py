"""The simulated row: what it serves, what it draws, what limits cost."""

import numpy as np
import pytest

from cluster.arrays import column
from simulator.power.machine import DGX_A100
from simulator.power.requests import RateCurve, Requests, draw_requests, made_up_rates, shaped_rates
from simulator.power.row import AGENT_LOOKS_S, CREDIT_BACK_S, IDLE, NEVER, Row
from tests.builders.power_pools import pools_of

TOKEN_W = DGX_A100.idle_w + DGX_A100.token_swing_w(1)


def requests_at(*arrivals: tuple[float, float, int], of_pool: int = 0) -> Requests:
    """(arrival, prompt seconds, tokens); prompts draw 3,000 W above idle."""
    at_s, prompt_s, tokens = zip(*arrivals, strict=True)
    count = len(arrivals)
    return Requests(
        column(at_s, np.float64),
        column([of_pool] * count, np.int64),
        column(prompt_s, np.float64),
        column([3000.0] * count, np.float64),
        column(tokens, np.int64),
    )


def row_of(requests: Requests, servers: tuple[int, int] = (1, 1), batch: int = 1, budget_w: float = 1e9) -> Row:
    return Row(pools_of(servers, batch=batch), requests, budget_w=budget_w)


def test_a_request_alone_takes_its_prompt_and_its_tokens() -> None:
    row = row_of(requests_at((10.0, 0.5, 100)))
    row.advance(100.0)
    assert row.latency_s[0] == pytest.approx(0.5 + 100 * 0.049, rel=1e-6)


def test_a_window_s_mean_is_the_energy_of_its_phases() -> None:
    row = row_of(requests_at((1.0, 0.5, 100)))
    row.advance(2.0)
    # Idle 1 s, prompt 0.5 s, tokens 0.5 s on the first server; the second is idle.
    expected = (DGX_A100.idle_w * 1 + (DGX_A100.idle_w + 3000) * 0.5 + TOKEN_W * 0.5) / 2
    assert row.close_window() == pytest.approx([expected, DGX_A100.idle_w])


def test_a_full_server_lets_the_next_request_wait_its_turn() -> None:
    row = row_of(requests_at((0.0, 0.5, 100), (1.0, 0.5, 100)))
    row.advance(100.0)
    assert row.latency_s[1] == pytest.approx(2 * 5.4 - 1.0, rel=1e-6)


def test_requests_of_a_class_never_run_on_servers_of_the_other() -> None:
    row = row_of(requests_at((0.0, 0.5, 100), (0.0, 0.5, 100), of_pool=1))
    row.advance(2.0)
    assert row.close_window()[0] == DGX_A100.idle_w


def test_a_batch_takes_its_steps_together() -> None:
    row = row_of(requests_at((0.0, 0.5, 100), (0.0, 0.5, 100)), batch=2)
    row.advance(100.0)
    # Both prompts run one after the other, then both decode at the step of a batch of two.
    assert row.latency_s == pytest.approx([1.0 + 100 * 0.0501] * 2, rel=1e-6)


def test_a_prompt_interrupts_the_tokens_of_others_on_its_server() -> None:
    row = row_of(requests_at((0.0, 0.5, 100), (2.5, 0.5, 10)), batch=2)
    row.advance(100.0)
    alone_s, together_s = 0.049, 0.0501
    # By 2.5 s it has (2.5 - 0.5) / 0.049 tokens; then a prompt, 10 steps together, and the rest alone.
    left = 100 - 2.0 / alone_s - 10
    assert row.latency_s[0] == pytest.approx(2.5 + 0.5 + 10 * together_s + left * alone_s, rel=1e-6)


def test_a_locked_clock_slows_tokens_little_and_prompts_much() -> None:
    share = DGX_A100.share_at(810.0)
    row = row_of(requests_at((0.0, 0.5, 100)))
    row.limit(0, clock=share, cap_w=np.inf)
    row.advance(100.0)
    clock = 810 / 1410
    assert row.latency_s[0] == pytest.approx(0.5 / clock**0.9 + 4.9 / clock**0.2, rel=1e-6)


def test_a_limit_in_watts_is_kept_and_slows_only_what_draws_more() -> None:
    row = row_of(requests_at((0.0, 2.0, 100)))
    row.limit(0, clock=1.0, cap_w=TOKEN_W)
    row.advance(2.0)
    assert row.close_window()[0] == pytest.approx(TOKEN_W)
    row.advance(100.0)
    share = (TOKEN_W - DGX_A100.idle_w) / 3000
    assert row.latency_s[0] == pytest.approx(2.0 / share ** (0.9 / 1.3) + 4.9, rel=1e-6)


def test_a_limit_below_the_lowest_clock_is_not_kept() -> None:
    row = row_of(requests_at((0.0, 50.0, 100)))
    row.limit(0, clock=1.0, cap_w=0.0)
    row.advance(2.0)
    assert row.close_window()[0] == pytest.approx(DGX_A100.idle_w + 3000 * DGX_A100.least_share)


def test_a_limit_that_changes_half_way_slows_only_the_rest() -> None:
    row = row_of(requests_at((0.0, 0.5, 100)))
    row.advance(0.5 + 2.45)
    row.limit(0, clock=DGX_A100.share_at(810.0), cap_w=np.inf)
    row.advance(100.0)
    assert row.latency_s[0] == pytest.approx(0.5 + 2.45 + 2.45 / (810 / 1410) ** 0.2, rel=1e-6)
    assert row.held_s()[0] == pytest.approx(2.45 / (810 / 1410) ** 0.2, rel=1e-6)


def test_time_above_the_budget_is_counted_to_the_event() -> None:
    budget_w = 2 * DGX_A100.idle_w + 2000
    row = row_of(requests_at((10.3, 0.5, 100)), budget_w=budget_w)
    row.advance(100.0)
    assert row.over_until_now_s() == pytest.approx(0.5)


def test_every_request_is_served_once_and_none_before_its_work_is_done() -> None:
    curve = made_up_rates(1)
    requests = draw_requests(pools_of((4, 4), curve, batch=4), seed=7)
    row = row_of(requests, (4, 4), batch=4)
    row.advance(2 * curve.for_s)
    least_s = requests.prompt_s + requests.tokens * DGX_A100.token_seconds(1)
    assert (row.latency_s >= least_s * (1 - 1e-4)).all()


def test_the_mean_draw_of_windows_is_the_energy_over_the_day() -> None:
    """Windows of 2 s and one window over the same hour hold the same energy."""
    requests = draw_requests(pools_of((4, 4)), seed=7)
    fine, coarse = row_of(requests, (4, 4)), row_of(requests, (4, 4))
    means = []
    for period in range(1, 1801):
        fine.advance(2.0 * period)
        means.append(fine.close_window())
    coarse.advance(3600.0)
    assert np.mean(means, axis=0) == pytest.approx(coarse.close_window(), rel=1e-9)


def test_the_same_seed_gives_the_same_requests_and_another_seed_others() -> None:
    first, again, other = (draw_requests(pools_of((4, 4)), seed) for seed in (1, 1, 2))
    assert np.array_equal(first.at_s, again.at_s)
    assert not np.array_equal(first.at_s[:50], other.at_s[:50])


def test_each_class_is_as_busy_as_asked_at_the_highest_rate() -> None:
    curve = made_up_rates()
    requests = draw_requests(pools_of((20, 20), curve, peak_busy_share=0.8), seed=3)
    work_s = requests.prompt_s + requests.tokens * DGX_A100.token_seconds(1)
    mean_share = float(curve.share.mean())
    for number in (0, 1):
        busy = work_s[requests.of_pool == number].sum() / (20 * curve.for_s)
        assert busy == pytest.approx(0.8 * mean_share, rel=0.02)


def test_burstiness_is_the_spread_of_the_gaps_between_arrivals() -> None:
    curve = made_up_rates(1)
    requests = draw_requests(pools_of((20, 20), curve, burstiness=0.4), seed=3)
    instants, integral = curve.expected()
    for number in (0, 1):
        at_s = requests.at_s[requests.of_pool == number]
        gaps = np.diff(np.interp(at_s, instants, integral))
        assert gaps.std() / gaps.mean() == pytest.approx(0.4, rel=0.05)


def bursting(requests: Requests, cap_w: float, burst_j: float) -> Row:
    """One server that has idled long enough to have all its credit."""
    row = row_of(requests)
    row.limit(0, clock=1.0, cap_w=cap_w, burst_j=burst_j)
    return row


def test_credit_carries_a_prompt_above_the_lease() -> None:
    row = bursting(requests_at((1000.0, 2.0, 100)), cap_w=TOKEN_W, burst_j=4000.0)
    row.advance(2000.0)
    # 2 s at 3,000 - 1,600 W above the lease take 2,800 of 4,000 J.
    assert row.latency_s[0] == pytest.approx(2.0 + 4.9, rel=1e-5)


def test_a_burst_ends_with_its_credit_and_what_the_agent_takes_to_look() -> None:
    row = bursting(requests_at((1000.0, 4.0, 100)), cap_w=TOKEN_W, burst_j=1400.0)
    row.advance(2000.0)
    # 1,400 J carry 1 s above the lease; half a second later the agent checks, and the rest runs at the lease.
    share = (TOKEN_W - DGX_A100.idle_w) / 3000
    assert row.latency_s[0] == pytest.approx(1.5 + 2.5 / share ** (0.9 / 1.3) + 4.9, rel=1e-5)


def test_credit_above_the_lease_never_exceeds_what_was_granted_and_what_came_back() -> None:
    """However requests fall, energy above the lease is bounded: that is what the breaker's share relies on."""
    requests = draw_requests(pools_of((4, 4)), seed=7)
    row, cap_w, burst_j = row_of(requests, (4, 4)), 3000.0, 5000.0
    for server in range(8):
        row.limit(server, clock=1.0, cap_w=cap_w, burst_j=burst_j)
    above_j = np.zeros(8)
    for period in range(1, 5401):
        row.advance(2.0 * period)
        above_j += np.maximum(row.close_window() - cap_w, 0.0) * 2.0
    most_j = burst_j * (1 + 10_800 / CREDIT_BACK_S)
    late_j = (DGX_A100.highest_w - cap_w) * AGENT_LOOKS_S  # of each of the bursts that ran out, at half of burst_j each
    assert (above_j <= most_j + late_j * (2 * most_j / burst_j)).all()
    assert (above_j > 0.2 * most_j).all()


def test_a_server_that_was_never_limited_can_be_given_a_lease_with_bursts() -> None:
    row = row_of(requests_at((0.0, 2.0, 1000), (500.0, 2.0, 100)))
    row.advance(1.0)
    row.limit(0, clock=1.0, cap_w=np.inf, burst_j=4000.0)
    row.limit(0, clock=1.0, cap_w=TOKEN_W, burst_j=4000.0)
    row.advance(2000.0)
    assert row.latency_s[1] == pytest.approx(2.0 + 4.9, rel=1e-5)


def test_a_plateau_is_level_for_hours_and_a_cold_start_begins_at_the_highest_rate() -> None:
    plateau, cold = shaped_rates("plateau"), shaped_rates("cold-start")

    # 1 h at a half, 10 min at the peak, 6 h at 0.76; half an hour at the peak, 2 h at 0.9: buckets of 10 min.
    assert plateau.share.tolist() == [0.5] * 6 + [1.0] + [0.76] * 36
    assert cold.share.tolist() == [1.0] * 3 + [0.9] * 12
    assert plateau.for_s == 25_800.0


class EveryPhaseAnew(Row):
    """The slow and clear form of `limit`: whatever changes, the phase is counted and begun anew."""

    def limit(self, number: int, clock: float, cap_w: float, burst_j: float = 0.0, burst_w: float = NEVER) -> None:
        server = self._servers[number]
        if server.burst_j:
            self._count_credit(server, self.now_s)
        server.clock, server.cap_w, server.burst_j, server.burst_w = clock, cap_w, burst_j, burst_w
        server.credit_at_s = self.now_s
        if server.phase != IDLE:
            self._settle(server, self.now_s)
            self._run(server, self.now_s)


@pytest.mark.parametrize("burst_j", [0.0, 1e6])
def test_limits_that_bind_nothing_change_nothing(burst_j: float) -> None:
    """burst_j: more than is ever used. Used up, it is found by the agent's next look alone."""
    pools = pools_of((4, 4), RateCurve("steady", 600.0, np.ones(1)), batch=2)
    requests = draw_requests(pools, seed=3)
    rows = Row(pools, requests), EveryPhaseAnew(pools, requests)
    chance = np.random.default_rng(4)
    drawn_w = []
    for period in range(1, 300):
        for server in chance.permutation(8)[:5].tolist():
            clock, cap_w, burst_w = (
                chance.choice((0.6, 1.0, 1.0)),
                chance.uniform(2500, 6000),
                chance.uniform(3000, 6000),
            )
            for row in rows:
                row.limit(server, float(clock), float(cap_w), burst_j, float(burst_w))
        for row in rows:
            row.advance(2.0 * period)
        drawn_w.append([row.close_window() for row in rows])
    ours_w, plain_w = np.array(drawn_w).swapaxes(0, 1)
    np.testing.assert_allclose(ours_w, plain_w, rtol=1e-9)
    np.testing.assert_allclose(rows[0].latency_s, rows[1].latency_s)
    np.testing.assert_allclose(rows[0].held_s(), rows[1].held_s())
