"""Concurrency tuner: whatever is observed, steps are small, bounds hold, a breach lowers, and frozen is unchanged."""

import math
from dataclasses import replace

from hypothesis import given, strategies as st

from autoscaler.concurrency.safe_bandit import STEP, Rules, SafeBandit
from cluster.autoscaling import Context, Observation

GUARD_S = 10.0
LOWEST, HIGHEST = 2, 300
TUNER = SafeBandit(Rules(GUARD_S, start=20, lowest=LOWEST, highest=HIGHEST))
CONTEXTS = [Context("A100", 1, 1), Context("H100", 1, 1), Context("H100", 2, 1)]

figures = st.floats(1e-3, 1e4) | st.sampled_from([math.nan, math.inf, 0.0, -1.0])
shares = st.floats(0, 1) | st.just(math.nan)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Any interval; its limit is replaced by the one that was decided."""
    return Observation(
        limit=0,
        context=draw(st.sampled_from(CONTEXTS)),
        throughput=draw(figures),
        requests=draw(st.integers(0, 5) | st.integers(20, 5000)),
        p95_s=draw(st.floats(0.1, 30.0) | figures),
        in_flight=draw(st.floats(0, 2) | st.just(math.nan)),
        memory_share=draw(shares),
        scaling=draw(st.integers(0, 9)) == 0,
    )


@given(start=st.integers(LOWEST, HIGHEST), course=st.lists(observations(), min_size=1, max_size=40))
def test_steps_are_small_and_bounds_hold(start: int, course: list[Observation]) -> None:
    limit, state = start, TUNER.first()
    for each in course:
        # In-flight requests are drawn as a fraction of the limit.
        seen = replace(each, limit=limit, in_flight=each.in_flight * limit)
        decision = TUNER.decide(state, seen)

        assert LOWEST <= decision.limit <= HIGHEST
        assert decision.limit <= max(STEP * limit, limit + 1)
        if decision.reason not in ("Breach", "ContextChanged"):
            assert decision.limit >= min(limit / STEP, limit - 1)
        if decision.reason == "Breach":
            assert decision.limit < limit or limit == LOWEST
        if seen.scaling or decision.reason in ("NoData", "FewRequests", "NotBinding"):
            assert decision.limit == limit
        breach = seen.complete and seen.requests >= 20 and seen.p95_s > GUARD_S
        if breach:
            assert decision.limit <= limit
        limit, state = decision.limit, decision.state


@given(course=st.lists(observations(), min_size=1, max_size=30))
def test_the_same_observations_give_the_same_limits(course: list[Observation]) -> None:
    def limits() -> list[int]:
        limit, state, found = 20, TUNER.first(), []
        for each in course:
            decision = TUNER.decide(state, replace(each, limit=limit, in_flight=each.in_flight * limit))
            limit, state = decision.limit, decision.state
            found.append(limit)
        return found

    assert limits() == limits()
