"""What always holds in isolation: no dead-lock, no reservation over the budget, an end for every call."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from isolation.ledger import MIB
from isolation.settings import Settings
from isolation.state import Kill, KillAgent
from tests.builders.sandboxes import PretendNode, Work, sandbox

PATIENT = Settings(longest_wait_s=1e9, frozen_s=1e9, starvation_s=1.0, settle_s=0.05)


@st.composite
def nodes(draw: st.DrawFn, *, honest: bool, priorities: tuple[int, ...] = (0,)) -> PretendNode:
    """A node too small for its calls at once, whose claims hold or are wrong by up to a factor of two."""
    names = [f"s{index}" for index in range(draw(st.integers(1, 5)))]
    sandboxes = [
        sandbox(
            name,
            budget_mib=draw(st.integers(150, 600)),
            priority=draw(st.sampled_from(priorities)),
            guaranteed_mib=draw(st.sampled_from([0, 0, 60, 120])),
            agent_mib=draw(st.integers(10, 50)),
        )
        for name in names
    ]
    works = []
    for index in range(draw(st.integers(1, 12))):
        peak = draw(st.integers(1, 300))
        claim = peak + draw(st.integers(0, 100)) if honest else max(1, round(peak * draw(st.floats(0.5, 2.0))))
        works.append(
            Work(
                f"c{index}",
                draw(st.sampled_from(names)),
                claim,
                asks_at_s=draw(st.integers(0, 40)) * 0.05,
                takes_s=draw(st.integers(2, 40)) * 0.05,
                peak_mib=peak,
            )
        )
    # Less than what is kept for calls, now and then.
    budget = sum(one.agent_bytes for one in sandboxes) // MIB + draw(st.integers(100, 800))
    node = PretendNode.of(budget, sandboxes, works, PATIENT)
    for one in sandboxes:
        node.agent_bytes[one.name] = one.agent_bytes // 2
    return node


@pytest.mark.slow
@settings(max_examples=1000)
@given(nodes(honest=True))
def test_calls_that_keep_their_claims_never_dead_lock_and_none_is_killed(node: PretendNode) -> None:
    node.run(until_s=60.0)

    assert set(node.outcome) == set(node.works)
    # Only a claim beyond what the node can ever give is cut, and then it may be too small.
    for action in node.actions(Kill):
        assert isinstance(action, Kill)
        assert node.works[action.call].peak_mib * MIB > node.admitted_claims[action.call]


@settings(max_examples=100)
@given(nodes(honest=False, priorities=(0, 1)))
def test_the_ledger_never_exceeds_the_budget(node: PretendNode) -> None:
    while node.now_s < 60.0 and len(node.outcome) < len(node.works):
        node.tick()
        assert node.state.ledger.free_bytes >= 0
        # What the kernel enforces is what the ledger says.
        assert node.lease == {
            name: kept.lease_bytes for name, kept in node.state.ledger.reservations.items() if name in node.lease
        }


@settings(max_examples=100)
@given(nodes(honest=False, priorities=(0, 1)), st.sampled_from([0.5, 2.0]))
def test_every_call_ends_or_is_refused_within_its_bound(node: PretendNode, frozen_s: float) -> None:
    node.settings = replace(node.settings, frozen_s=frozen_s, longest_wait_s=3.0)

    node.run(until_s=120.0)

    assert set(node.outcome) == set(node.works)
    # 2 s until the last asks, 3 s in the queue.
    assert all(node.ended_at_s[name] <= 5.1 for name, how in node.outcome.items() if how == "refused")
    assert not node.actions(KillAgent)


@settings(max_examples=100)
@given(nodes(honest=False, priorities=(0, 1)))
def test_no_call_of_a_high_agent_is_killed_while_one_of_a_low_agent_lives(node: PretendNode) -> None:
    while node.now_s < 60.0 and len(node.outcome) < len(node.works):
        running = dict(node.state.calls)
        seen = len(node.log)
        node.tick()
        for _, action in node.log[seen:]:
            if isinstance(action, Kill):
                priority = node.state.calls[action.call].priority
                assert all(
                    other.priority >= priority or other.ending is not None
                    for name, other in running.items()
                    if name in node.state.calls
                )
