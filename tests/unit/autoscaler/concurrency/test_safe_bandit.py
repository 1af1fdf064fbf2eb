"""Safe bandit: it climbs to the guard and no further, falls back at once, and learns only where the limit binds."""

import math
from dataclasses import replace

import msgspec
import pytest

from autoscaler.concurrency.safe_bandit import MOST_CONTEXTS, Decision, Rules, SafeBandit, sampling
from cluster.autoscaling import Arm, BanditState, Context, Learned, Observation
from tests.unit.autoscaler.concurrency.replica import CHAT, CODE, after, peaking, seen

# Its p95 is 2 × (1 + k/10) seconds, so a guard of 8 s is reached at 30 requests at once.
GUARDED = SafeBandit(Rules(guard_s=8.0))
LOOSE = SafeBandit(Rules(guard_s=1000.0))


def settled(tuner: SafeBandit = GUARDED) -> Decision[BanditState]:
    return after(tuner, 60, 8)


def test_the_limit_climbs_close_to_the_guard_and_never_breaks_it() -> None:
    decision = Decision(8, "Fixed", GUARDED.first())
    for _ in range(60):
        observed = seen(decision.limit)
        assert observed.p95_s <= 8.0
        decision = GUARDED.decide(decision.state, observed)

    # At 26 the throughput is 7.2 per second, 96 % of the 7.5 at 30.
    assert 26 <= decision.limit <= 30


def test_the_limit_stays_where_throughput_is_highest() -> None:
    decision = after(LOOSE, 60, 8, peaking)

    # Highest at 20: 5.0 per second; at 15 and at 27 it is 4.9.
    assert 15 <= decision.limit <= 27
    assert decision.reason == "Settled"


def test_a_breach_reverts_at_once_and_is_not_tried_again_soon() -> None:
    before = settled()
    broken = GUARDED.decide(before.state, seen(before.limit, p95_s=8.8))

    assert broken.reason == "Breach"
    assert broken.limit < before.limit
    assert all(after(GUARDED, more, broken.limit, seen, broken.state).limit <= broken.limit for more in range(1, 20))


def test_a_far_breach_reverts_in_proportion() -> None:
    broken = after(GUARDED, 2, 64, lambda limit: seen(limit, p95_s=32.0))

    # Four times the guard: a quarter of the limit, and no more, since nothing below was ever seen.
    assert broken.reason == "Breach"
    assert broken.limit <= 16


def test_the_ceiling_relaxes_with_time() -> None:
    before = settled()
    broken = GUARDED.decide(before.state, seen(before.limit, p95_s=8.8))

    assert after(GUARDED, 400, broken.limit, seen, broken.state).limit > broken.limit


@pytest.mark.parametrize("missing", ["throughput", "p95_s", "in_flight"])
def test_a_missing_figure_holds_the_limit(missing: str) -> None:
    before = settled()

    decision = GUARDED.decide(before.state, seen(before.limit, **{missing: math.nan}))

    assert (decision.limit, decision.reason) == (before.limit, "NoData")
    assert decision.state.learned == before.state.learned


def test_scaling_freezes_the_limit_and_teaches_nothing() -> None:
    before = settled()

    decision = GUARDED.decide(before.state, seen(before.limit, p95_s=100.0, scaling=True))

    assert (decision.limit, decision.reason) == (before.limit, "Scaling")
    assert decision.state.learned == before.state.learned


def test_a_limit_that_the_load_does_not_reach_stays() -> None:
    before = after(GUARDED, 5, 8)

    decision = GUARDED.decide(before.state, seen(before.limit, in_flight=0.5 * before.limit))

    assert (decision.limit, decision.reason) == (before.limit, "NotBinding")
    assert decision.state.learned[0].arms == before.state.learned[0].arms


def test_a_breach_counts_though_the_limit_does_not_bind() -> None:
    before = settled()

    decision = GUARDED.decide(before.state, seen(before.limit, p95_s=9.0, in_flight=0.5 * before.limit))

    assert decision.reason == "Breach"
    assert decision.limit < before.limit


def test_few_requests_are_pooled_until_they_can_be_judged() -> None:
    before = settled()

    first = GUARDED.decide(before.state, seen(before.limit, requests=12, p95_s=11.5))
    second = GUARDED.decide(first.state, seen(first.limit, requests=12, p95_s=11.5))

    assert (first.limit, first.reason) == (before.limit, "FewRequests")
    assert second.reason == "Breach"


def test_a_raise_waits_for_more_requests_than_a_breach() -> None:
    """25 requests show a p95 of 1.5 × the guard, and no raise: 80 do."""
    before = settled()
    some = [GUARDED.decide(before.state, seen(before.limit, requests=25))]
    for _ in range(3):
        some.append(GUARDED.decide(some[-1].state, seen(before.limit, requests=25)))

    assert [each.reason == "FewRequests" for each in some] == [True, True, True, False]
    assert GUARDED.decide(before.state, seen(before.limit, requests=25, p95_s=12.0)).reason == "Breach"


def test_other_requests_that_break_the_guard_lower_the_limit_at_once() -> None:
    """Twice the guard under 24 requests at once: e^(-ln 2 / 0.6) of them is 7, and 8 by what is sure of 500."""
    tuner = SafeBandit(Rules(guard_s=8.0, start=20))

    decision = tuner.decide(settled().state, replace(seen(24, p95_s=16.0), context=CODE))

    assert (decision.reason, decision.limit) == ("ContextChanged", 8)


def test_a_few_other_requests_lower_the_limit_by_what_is_sure_of_them() -> None:
    """12 have no 95th percentile; that of 25 may be twice the guard by chance where 500 are surely slow."""
    tuner = SafeBandit(Rules(guard_s=8.0, start=20))
    limits = [
        tuner.decide(settled().state, replace(seen(24, p95_s=16.0, requests=requests), context=CODE)).limit
        for requests in (12, 25, 500)
    ]

    assert limits[0] == 20
    assert limits[0] > limits[1] > limits[2]


def test_a_breach_by_chance_leaves_the_limits_above_open() -> None:
    """Where log p95 scatters by 0.1, a fourth above the guard (0.22) is nothing new at a limit near it, twice it is."""
    before = settled()
    known = replace(before.state.learned[0], p95_scatter=0.01)
    state = replace(before.state, learned=(known,))

    chance = GUARDED.decide(state, seen(before.limit, requests=80, p95_s=10.0))
    sure = GUARDED.decide(state, seen(before.limit, requests=80, p95_s=16.0))

    assert (chance.reason, sure.reason) == ("Breach", "Breach")
    assert chance.state.learned[0].ceiling == known.ceiling
    assert sure.state.learned[0].ceiling < before.limit


def test_a_pool_of_another_limit_is_dropped() -> None:
    before = settled()
    first = GUARDED.decide(before.state, seen(before.limit, requests=12))

    second = GUARDED.decide(first.state, seen(before.limit - 3, requests=12))

    assert second.reason == "FewRequests"
    assert second.state.pool.requests == 12


def test_a_raised_limit_leaves_room_in_a_full_cache() -> None:
    # Of 40 seats in the KV cache 97 % are 38.8; the throughput alone would lead further.
    decision = after(LOOSE, 60, 8, lambda limit: seen(limit, memory_share=min(limit / 40, 1.0)))

    assert 33 <= decision.limit <= 38


def test_each_context_keeps_its_own_limit() -> None:
    chat = settled()
    code = after(GUARDED, 30, chat.limit, lambda limit: _slow(limit), chat.state)
    again = GUARDED.decide(code.state, seen(code.limit))

    # Of a replica three times slower a guard of 8 s is reached at 3 requests at once.
    assert code.limit <= 3
    assert again.reason == "ContextChanged"
    assert again.limit == code.limit
    assert {each.context: each.limit for each in code.state.learned}[CHAT] == chat.limit


def test_a_context_never_seen_starts_low_within_the_bounds() -> None:
    tuner = SafeBandit(Rules(guard_s=8.0, start=8, lowest=10, highest=100))

    assert tuner.decide(tuner.first(), seen(64)).limit == 10


def test_a_context_change_never_raises_the_limit() -> None:
    code = after(GUARDED, 30, 8, lambda limit: _slow(limit))
    high = replace(code.state, learned=(replace(code.state.learned[0], context=CHAT, limit=30), *code.state.learned))

    assert GUARDED.decide(high, seen(code.limit)).limit == code.limit


def test_one_outlier_teaches_nothing_and_two_are_a_shift() -> None:
    before = settled()
    slow = seen(before.limit, p95_s=7.9, throughput=0.5 * seen(before.limit).throughput)

    first = GUARDED.decide(before.state, slow)
    second = GUARDED.decide(first.state, slow)

    assert first.state.learned[0].arms == before.state.learned[0].arms
    assert second.state.learned[0].arms[-1].throughput == pytest.approx(math.log(slow.throughput), abs=0.4)


def test_after_a_shift_for_the_better_the_limit_climbs_again() -> None:
    before = settled()

    later = after(GUARDED, 40, before.limit, lambda limit: _faster(limit), before.state)

    # Twice as fast, the guard is reached at 70 requests at once.
    assert later.limit >= 50


def test_a_restart_continues_from_stored_state() -> None:
    before = after(GUARDED, 10, 8)
    stored = msgspec.json.decode(msgspec.json.encode(before.state), type=BanditState)

    assert after(GUARDED, 20, before.limit, seen, stored) == after(GUARDED, 20, before.limit, seen, before.state)


def test_the_state_stays_small() -> None:
    decision = Decision(8, "Fixed", LOOSE.first())
    for number in range(400):
        context = Context("A100", number // 20 % 12, 0)
        decision = LOOSE.decide(decision.state, seen(8 + number % 37, context=context))

    assert len(decision.state.learned) == MOST_CONTEXTS
    assert len(msgspec.json.encode(decision.state)) < 20_000


def test_a_limit_outside_the_bounds_is_brought_inside() -> None:
    tuner = SafeBandit(Rules(guard_s=1000.0, start=50, highest=16))

    assert after(tuner, 2, 50).limit <= 16


def _slow(limit: int) -> Observation:
    usual = seen(limit)
    return replace(usual, context=CODE, p95_s=3 * usual.p95_s, throughput=usual.throughput / 3)


def _faster(limit: int) -> Observation:
    usual = seen(limit)
    return replace(usual, p95_s=usual.p95_s / 2, throughput=usual.throughput * 2)


def test_p95_of_few_requests_breaks_no_guard_that_it_may_keep() -> None:
    """The standard error of 25 requests' p95 is 0.14: a tenth above the guard may be chance, a half is not."""
    before = settled()

    near = GUARDED.decide(before.state, seen(before.limit, requests=25, p95_s=8.8))
    far = GUARDED.decide(before.state, seen(before.limit, requests=25, p95_s=12.0))

    assert near.reason != "Breach"
    assert far.reason == "Breach"


def test_the_spread_of_latencies_follows_from_their_mean_and_p95() -> None:
    """Lognormal latencies with a spread of 1 have a p95 of exp(1.645 - 1/2) times their mean."""
    mean_s = 3.0
    p95_s = mean_s * math.exp(1.645 - 0.5)
    arms = (Arm(12, 1e6, math.log(12 / mean_s), math.log(p95_s)),)

    # The standard error of the 95th percentile of n standard normal values is 2.11 / √n.
    assert sampling(Learned(CHAT, 0, 12, 100.0, arms=arms), 100) == pytest.approx(0.211, abs=0.002)


def test_a_guard_that_no_limit_keeps_costs_no_throughput() -> None:
    """Latency does not depend on the limit: each lower one is tried once, and the highest of them is back."""
    decision = after(GUARDED, 40, 8, lambda limit: seen(limit, throughput=limit / 9.0, p95_s=9.0))

    assert decision.limit == 8


def test_a_limit_beyond_a_full_cache_does_not_bend_the_curve_below_it() -> None:
    """At 8 requests at once, one more than fit, latency soars."""
    decision = after(LOOSE, 60, 8, lambda limit: seen(limit, p95_s=200.0) if limit > 7 else seen(limit))

    assert decision.limit >= 6
