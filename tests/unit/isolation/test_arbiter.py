"""Admission and ladder together: what happens to tool calls when memory is short."""

import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from isolation.arbiter import next_timer_s, step
from isolation.ledger import MIB, MemoryLedger, Sandbox
from isolation.settings import Settings
from isolation.state import (
    Admit,
    ArbiterState,
    Asked,
    Ended,
    Freeze,
    Kill,
    KillAgent,
    Queue,
    ReachedLease,
    Refuse,
    SandboxEnded,
    SandboxStarted,
    SetAgentLease,
    SetLease,
    Thaw,
    Used,
    Withdrawn,
)
from tests.builders.sandboxes import PretendNode, Work, request, sandbox

SETTINGS = Settings(settle_s=0.1, frozen_s=60.0, starvation_s=5.0)


def started(budget_mib: int, *sandboxes: Sandbox) -> ArbiterState:
    state = ArbiterState(MemoryLedger(budget_mib * MIB))
    return step(state, [SandboxStarted(one) for one in sandboxes], 0.0, SETTINGS)[0]


def test_a_call_that_could_block_others_waits_and_learns_for_how_long() -> None:
    state, _ = step(started(500, sandbox("s")), [Asked(request("a", "s", 400))], 0.0, SETTINGS)

    state, actions = step(state, [Asked(request("b", "s", 300, at_s=1.0))], 1.0, SETTINGS)

    (queued,) = actions
    assert isinstance(queued, Queue)
    assert (queued.call, queued.reason) == ("b", "WAITS_FOR_MEMORY")
    assert queued.retry_after_s == 9.0  # a call of unknown class is expected to take 10 s, of which one is over
    state, actions = step(state, [Ended("a")], 2.0, SETTINGS)
    assert actions == (Admit("b", "s", 300 * MIB),)


def test_a_call_that_can_never_fit_is_refused_at_once() -> None:
    _, actions = step(started(500, sandbox("s", budget_mib=200)), [Asked(request("a", "s", 300))], 0.0, SETTINGS)

    assert actions == (Refuse("a", 0.0, "ABOVE_SANDBOX_BUDGET"),)


def test_memory_kept_for_calls_ends_no_agent_where_the_node_has_less() -> None:
    # Agents hold 300 of 600 MiB; 400 are kept for the high one's calls: there are 300.
    sandboxes = (
        sandbox("high", priority=1, guaranteed_mib=500, agent_mib=100),
        *(sandbox(n, agent_mib=100) for n in "ab"),
    )
    state = started(600, *sandboxes)

    state, actions = step(state, [Asked(request("call", "high", 400))], 0.0, SETTINGS)

    assert actions == (Admit("call", "high", 300 * MIB),)
    # An agent that now needs more than is left takes it from nobody: it stays at its brake.
    state, _ = step(state, [Used({}, {"a": 110 * MIB})], 0.1, SETTINGS)
    assert later(state, from_s=0.2, until_s=9.0) == []


def test_a_claim_that_the_node_can_never_meet_is_bounded_by_what_it_can() -> None:
    state = started(500, sandbox("s"), sandbox("kept", guaranteed_mib=200))

    state, _ = step(state, [Asked(request("a", "s", 400))], 0.0, SETTINGS)

    assert state.ledger.reservations["a"].lease_bytes == 300 * MIB


def test_a_call_of_an_unknown_sandbox_is_refused() -> None:
    _, actions = step(started(500), [Asked(request("a", "other", 1))], 0.0, SETTINGS)

    assert actions == (Refuse("a", 0.0, "UNKNOWN_SANDBOX"),)


def test_a_flood_of_calls_of_one_sandbox_is_refused_beyond_its_number() -> None:
    flood = [Asked(request(f"c{index}", "s", 100)) for index in range(100)]

    state, actions = step(started(500, sandbox("s")), flood, 0.0, SETTINGS)

    assert len(state.queue) + len(state.calls) == 32
    assert sum(action.reason == "TOO_MANY_CALLS" for action in actions) == 68


def test_calls_that_their_own_sandbox_cannot_hold_keep_nobody_else_waiting() -> None:
    state = started(4000, sandbox("greedy", budget_mib=200), sandbox("neighbour"))
    greedy = [Asked(request(f"c{index}", "greedy", 150)) for index in range(31)]
    state, actions = step(state, greedy, 0.0, SETTINGS)
    assert [action for action in actions if isinstance(action, Admit)] == [Admit("c0", "greedy", 150 * MIB)]

    state, actions = step(state, [Asked(request("first", "neighbour", 100, at_s=1.0))], 1.0, SETTINGS)
    assert actions == (Admit("first", "neighbour", 100 * MIB),)

    _, actions = step(state, [Asked(request("later", "neighbour", 100, at_s=9.0))], 9.0, SETTINGS)
    assert actions == (Admit("later", "neighbour", 100 * MIB),)


def test_a_want_beyond_its_own_budget_ends_no_call_of_another_sandbox() -> None:
    state = started(4000, sandbox("high", budget_mib=200, priority=1), sandbox("low"))
    calls = [Asked(request("low", "low", 100)), Asked(request("a", "high", 150)), Asked(request("b", "high", 150))]
    state, actions = step(state, calls, 0.0, SETTINGS)

    assert not any(isinstance(action, Kill) for action in actions)
    assert later(state, from_s=0.1, until_s=9.0) == []


def kills(actions: Iterable[object]) -> set[str]:
    return {action.call for action in actions if isinstance(action, Kill)}


def test_an_agent_beyond_its_own_budget_has_its_own_calls_ended_alone() -> None:
    sandboxes = (sandbox("greedy", budget_mib=400), sandbox("b", budget_mib=1000), sandbox("c", budget_mib=1000))
    state = started(2000, *sandboxes)
    asked = [Asked(request(name, "greedy", 150)) for name in ("g1", "g2")]
    asked += [Asked(request(f"{other}{n}", other, 100)) for other in "bc" for n in range(3)]
    state, _ = step(state, asked, 0.0, SETTINGS)

    state, actions = step(state, [Used({}, {"greedy": 120 * MIB})], 1.0, SETTINGS)

    assert len(kills([*actions, *later(state, from_s=1.2, until_s=3.0)]) & {"g1", "g2"}) == 1
    assert kills([*actions, *later(state, from_s=1.2, until_s=3.0)]) <= {"g1", "g2"}


def test_an_agent_that_would_take_from_a_guarantee_ends_no_call_for_it() -> None:
    state = started(1000, sandbox("kept", guaranteed_mib=500, agent_mib=50), sandbox("b"), sandbox("c"))
    state, _ = step(state, [Asked(request(f"c{n}", "c", 50)) for n in range(3)], 0.0, SETTINGS)

    state, actions = step(state, [Used({}, {"b": 700 * MIB})], 1.0, SETTINGS)

    assert kills([*actions, *later(state, from_s=1.2, until_s=3.0)]) == set()


def test_a_large_call_waits_for_its_own_budget_before_small_ones_that_came_later() -> None:
    state = started(4000, sandbox("s", budget_mib=1000))
    state, _ = step(state, [Asked(request("s0", "s", 300)), Asked(request("large", "s", 900))], 0.0, SETTINGS)
    state, actions = step(state, [Asked(request("s1", "s", 300, at_s=1.0))], 1.0, SETTINGS)
    assert [action.call for action in actions if isinstance(action, Admit)] == ["s1"]

    state, actions = step(state, [Ended("s0"), Asked(request("s2", "s", 300, at_s=6.0))], 6.0, SETTINGS)

    assert not any(isinstance(action, Admit) for action in actions)
    _, actions = step(state, [Ended("s1")], 7.0, SETTINGS)
    assert [action.call for action in actions if isinstance(action, Admit)] == ["large"]


def test_a_reading_under_a_budget_that_was_lowered_frees_no_memory() -> None:
    state = started(1000, sandbox("a", budget_mib=1000), sandbox("b", budget_mib=1000))
    state, _ = step(state, [Asked(request("a1", "a", 600))], 0.0, SETTINGS)
    state, _ = step(state, [SandboxStarted(sandbox("a", budget_mib=200))], 1.0, SETTINGS)
    state, _ = step(state, [Used({"a1": 601 * MIB}, {})], 2.0, SETTINGS)

    _, actions = step(state, [Asked(request("b1", "b", 780, at_s=3.0))], 3.0, SETTINGS)

    assert not any(isinstance(action, Admit) for action in actions)


def test_a_step_on_a_crowded_node_is_short() -> None:
    """Of 512 calls that run and 512 that wait, all of one priority: seconds, where each want looks at every call."""
    state = started(5120, *(sandbox(f"s{n}", budget_mib=4000) for n in range(64)))
    asked = [Asked(request(f"{n}-{m}", f"s{n}", 10)) for n in range(64) for m in range(16)]
    state, _ = step(state, asked, 0.0, SETTINGS)
    assert (len(state.calls), len(state.queue)) == (512, 512)

    began_s = time.process_time()
    step(state, [], 0.2, SETTINGS)
    assert time.process_time() - began_s < 0.5


def test_small_calls_pass_a_large_one_until_it_waited_too_long() -> None:
    state = started(500, sandbox("s"))
    state, _ = step(state, [Asked(request("long", "s", 300)), Asked(request("large", "s", 450))], 0.0, SETTINGS)
    state, actions = step(state, [Asked(request("small", "s", 100, at_s=1.0))], 1.0, SETTINGS)
    assert actions == (Admit("small", "s", 100 * MIB),)

    state, _ = step(state, [Ended("small")], 6.0, SETTINGS)
    state, actions = step(state, [Asked(request("next", "s", 100, at_s=6.0))], 6.0, SETTINGS)

    assert [(action.call, action.reason) for action in actions] == [("next", "WAITS_BEHIND_OLDER")]  # type: ignore[union-attr]
    _, actions = step(state, [Ended("long")], 7.0, SETTINGS)
    assert actions == (Admit("large", "s", 450 * MIB),)


def test_a_call_is_refused_after_the_time_that_it_would_wait() -> None:
    state = started(500, sandbox("s"))
    asked = [Asked(request("a", "s", 400)), Asked(request("b", "s", 400, wait_s=3.0))]
    state, _ = step(state, asked, 0.0, SETTINGS)
    assert next_timer_s(state, SETTINGS, 2.0) == 3.0

    state, actions = step(state, [], 3.0, SETTINGS)

    assert actions == (Refuse("b", 7.0, "WAITED_TOO_LONG"),)
    assert not state.queue


def test_a_withdrawn_call_leaves_the_queue() -> None:
    state, _ = step(
        started(500, sandbox("s")), [Asked(request("a", "s", 400)), Asked(request("b", "s", 400))], 0.0, SETTINGS
    )

    state, actions = step(state, [Withdrawn("b"), Ended("a")], 1.0, SETTINGS)

    assert not state.queue
    assert not actions


def test_a_call_at_its_claim_grows_by_a_step_or_a_quarter_while_memory_is_free() -> None:
    state, _ = step(started(100, sandbox("s")), [Asked(request("a", "s", 32))], 0.0, SETTINGS)

    grown = []
    for at_s in (1.0, 2.0, 3.0, 4.0):
        state, actions = step(state, [ReachedLease("a", state.ledger.reservations["a"].lease_bytes)], at_s, SETTINGS)
        grown += [action.lease_bytes // MIB for action in actions if isinstance(action, SetLease)]

    # 16 more are the least, a quarter of 80 is 20, and 100 are all: then it is killed, since nothing else ends.
    assert grown == [48, 64, 80, 100]
    assert step(state, [ReachedLease("a", 100 * MIB)], 5.0, SETTINGS)[1][-1] == Kill("a", "OUTGREW_CLAIM")


def braked() -> ArbiterState:
    """Call `a` holds 200 of 300 MiB; `b`, which declared 100, wants more at 1 s, and must wait for it."""
    state = started(300, sandbox("s"))
    state, _ = step(state, [Asked(request("a", "s", 200)), Asked(request("b", "s", 100))], 0.0, SETTINGS)
    state, actions = step(state, [ReachedLease("b", 100 * MIB)], 1.0, SETTINGS)
    assert actions == (Freeze("b", "WAITS_FOR_MEMORY"),)
    return state


def test_a_call_that_must_wait_for_memory_is_frozen_and_thaws_when_another_ends() -> None:
    _, actions = step(braked(), [Ended("a", 150 * MIB)], 4.0, SETTINGS)

    assert Thaw("b", "LEASE_GROWN") in actions


def shortage(high_claim_mib: int = 250) -> ArbiterState:
    """A low call that uses 200 of 300 MiB, and a high call that wants more than is left."""
    state = started(300, sandbox("low", priority=0), sandbox("high", priority=1))
    state, _ = step(state, [Asked(request("l", "low", 200))], 0.0, SETTINGS)
    state, _ = step(state, [Used({"l": 200 * MIB}, {})], 1.0, SETTINGS)
    return step(state, [Asked(request("h", "high", high_claim_mib, at_s=2.0))], 2.0, SETTINGS)[0]


def later(state: ArbiterState, *, from_s: float, until_s: float, settings: Settings = SETTINGS) -> list[object]:
    """Actions of a step every 100 ms, while nothing happens."""
    actions: list[object] = []
    for tenth in range(round(from_s * 10), round(until_s * 10)):
        state, done = step(state, [], tenth / 10, settings)
        actions.extend(done)
    return actions


def test_the_outranked_call_makes_way() -> None:
    assert shortage().calls["l"].ending == "HIGHER_PRIORITY_NEEDS_MEMORY"


def test_a_call_that_was_not_declared_goes_before_one_that_was() -> None:
    state = started(400, sandbox("low"), sandbox("high", priority=1))
    hinted, learned = request("hinted", "low", 150), replace(request("learned", "low", 150), declared=False)
    state, _ = step(state, [Asked(learned), Asked(hinted)], 0.0, SETTINGS)
    state, _ = step(state, [Used({"hinted": 150 * MIB, "learned": 150 * MIB}, {})], 1.0, SETTINGS)
    state, done = step(state, [Asked(request("h", "high", 200, at_s=2.0))], 2.0, SETTINGS)

    kills = [action for action in (*done, *later(state, from_s=2.1, until_s=9.0)) if isinstance(action, Kill)]

    assert kills == [Kill("learned", "HIGHER_PRIORITY_NEEDS_MEMORY")]


def test_no_second_victim_while_the_first_still_holds_its_memory() -> None:
    state = started(400, sandbox("low"), sandbox("high", priority=1))
    state, _ = step(state, [Asked(request("a", "low", 150)), Asked(request("b", "low", 150))], 0.0, SETTINGS)
    state, _ = step(state, [Used({"a": 150 * MIB, "b": 150 * MIB}, {})], 1.0, SETTINGS)
    state, done = step(state, [Asked(request("h", "high", 380, at_s=2.0))], 2.0, SETTINGS)

    kills = [action for action in (*done, *later(state, from_s=2.1, until_s=30.0)) if isinstance(action, Kill)]

    assert len(kills) == 1


def test_a_call_frozen_for_too_long_is_killed() -> None:
    state = braked()
    assert next_timer_s(state, SETTINGS, 2.0) == 61.0

    _, actions = step(state, [], 61.0, SETTINGS)

    assert Kill("b", "OUTGREW_CLAIM") in actions


@pytest.mark.parametrize(
    ("grows", "runs", "killed"), [("low", "high", []), ("high", "low", ["c"]), ("other", "low", ["c"])]
)
def test_a_growing_agent_outranks_tool_calls_up_to_its_own_priority(grows: str, runs: str, killed: list[str]) -> None:
    agents = sandbox("low", agent_mib=100), sandbox("other", agent_mib=20), sandbox("high", priority=1, agent_mib=80)
    state = started(400, *agents)
    state, _ = step(state, [Asked(request("c", runs, 180))], 0.0, SETTINGS)
    state, done = step(state, [Used({"c": 180 * MIB}, {grows: 130 * MIB})], 1.0, SETTINGS)

    every = (*done, *later(state, from_s=1.1, until_s=9.0))
    kills = [action for action in every if isinstance(action, Kill | KillAgent)]

    assert kills == [Kill(call, "AGENT_NEEDS_MEMORY") for call in killed]


def test_no_agent_and_no_priority_takes_what_is_guaranteed_to_another() -> None:
    """An honest call of 123 MiB with a claim of 140 lives, whatever a neighbour's own processes take beside it."""
    high = sandbox("high", guaranteed_mib=200, agent_mib=10)
    state = started(409, sandbox("low", priority=100, agent_mib=10), high)
    state, _ = step(state, [Asked(request("honest", "high", 140))], 0.0, SETTINGS)

    for n in range(40):
        used = Used({"honest": 123 * MIB}, {"low": min(300, 20 + 40 * n) * MIB, "high": 8 * MIB})
        state, actions = step(state, [used], 0.1 * n, SETTINGS)
        assert not any(isinstance(action, Kill | KillAgent) for action in actions)


def test_a_low_agent_goes_only_when_no_tool_call_lives_and_a_high_one_never_for_a_low_one() -> None:
    state = started(300, sandbox("low", agent_mib=140), sandbox("high", priority=1, agent_mib=140))

    short_low, for_low = step(state, [Used({}, {"low": 200 * MIB})], 1.0, SETTINGS)
    short_high, for_high = step(state, [Used({}, {"high": 200 * MIB})], 1.0, SETTINGS)

    assert not [*for_low, *later(short_low, from_s=1.1, until_s=9.0)]
    assert [*for_high, *later(short_high, from_s=1.1, until_s=9.0)] == [KillAgent("low", "AGENT_NEEDS_MEMORY")]


def test_an_ended_sandbox_gives_everything_back() -> None:
    state = shortage()

    state, actions = step(state, [SandboxEnded("low")], 3.0, SETTINGS)

    assert actions == (Admit("h", "high", 250 * MIB),)


def test_a_call_that_passes_its_claim_may_grow_while_memory_is_free() -> None:
    node = PretendNode.of(500, [sandbox("s")], [Work("a", "s", 50, 0.0, 4.0, peak_mib=300)], SETTINGS)

    node.run(until_s=30.0)

    assert node.outcome == {"a": "done"}


def test_a_call_that_needs_more_than_the_node_has_is_killed_at_once() -> None:
    # Claim 145 of 100 MiB that are left beside the agents: cut to 100. Nothing that ends could give it more, and the
    # next in the queue would wait behind it until its time frozen is over.
    works = [Work("large", "s", 145, 0.0, 1.0, 145), Work("next", "s", 90, 0.1, 1.0, 90)]
    node = PretendNode.of(185, [sandbox("s", agent_mib=85)], works, SETTINGS)
    node.agent_bytes["s"] = 40 * MIB

    node.run(until_s=5.0)

    assert node.outcome == {"large": "killed", "next": "done"}
    assert Kill("large", "OUTGREW_CLAIM") in node.actions(Kill)


def test_who_under_declared_waits_for_an_honest_neighbour() -> None:
    # Two calls of one agent that need 240 each of 400 MiB, of which one declared 60: it is frozen at 150, what is left.
    works = [Work("honest", "s", 250, 0.0, 4.0, 240), Work("liar", "s", 60, 0.0, 4.0, 240)]
    node = PretendNode.of(400, [sandbox("s")], works, SETTINGS)

    node.run(until_s=100.0)

    assert node.outcome == {"honest": "done", "liar": "done"}
    assert node.ended_at_s["honest"] < 4.1 < 6.9 < node.ended_at_s["liar"]


def liars(*claims_mib: int) -> ArbiterState:
    """Calls of sandbox `liar` that declared 10 MiB and hold so much of 500 MiB; `honest` asks for 200 at 1 s."""
    state = started(500, sandbox("liar"), sandbox("honest"))
    state, _ = step(state, [Asked(request(f"l{n}", "liar", 10)) for n in range(len(claims_mib))], 0.0, SETTINGS)
    state, _ = step(state, [ReachedLease(f"l{n}", 10 * MIB) for n in range(len(claims_mib))], 0.1, SETTINGS)
    used = {f"l{n}": mib * MIB for n, mib in enumerate(claims_mib)}
    state, _ = step(state, [Used(used, {})], 0.2, SETTINGS)
    return step(state, [Asked(request("h", "honest", 200, at_s=1.0))], 1.0, SETTINGS)[0]


def test_a_call_that_waited_too_long_outranks_its_equals_that_passed_their_claims() -> None:
    state = liars(240, 240)

    assert later(state, from_s=1.1, until_s=6.0) == []  # it waits for 5 s
    state, actions = step(state, [], 6.0, SETTINGS)

    assert actions == (Kill("l0", "OUTGREW_CLAIM"),)
    assert later(state, from_s=6.1, until_s=20.0) == []  # one is enough
    _, actions = step(state, [Ended("l0")], 20.0, SETTINGS)
    assert actions == (Admit("h", "honest", 200 * MIB),)


def test_no_call_that_passed_its_claim_is_ended_where_that_does_not_help() -> None:
    # Another holds 310 as it declared: with the liar's 100 there are 190 of the 200 that are asked for.
    state = liars(100)
    state, _ = step(state, [Asked(request("other", "honest", 310, at_s=1.1))], 1.1, SETTINGS)

    assert later(state, from_s=1.2, until_s=30.0) == []


def test_a_call_that_passed_its_claim_takes_nothing_from_one_that_waited_too_long() -> None:
    # 200 are asked for and 180 are free: the next to come would be the liar's.
    state = liars(320)
    reached = [ReachedLease("l0", 320 * MIB)]

    assert [type(action) for action in step(state, reached, 5.9, SETTINGS)[1]] == [SetLease]
    assert [type(action) for action in step(state, reached, 6.0, SETTINGS)[1]] == [Freeze, Kill]


def test_what_is_guaranteed_to_a_sandbox_makes_way_for_nobody_who_waited() -> None:
    state = started(500, sandbox("kept", guaranteed_mib=300), sandbox("honest"))
    state, _ = step(state, [Asked(request("k", "kept", 10))], 0.0, SETTINGS)
    state, _ = step(state, [Used({"k": 250 * MIB}, {})], 0.1, SETTINGS)
    state, _ = step(state, [Asked(request("h1", "honest", 150)), Asked(request("h2", "honest", 150))], 1.0, SETTINGS)

    state, actions = step(state, [ReachedLease("k", 250 * MIB)], 7.0, SETTINGS)

    assert [type(action) for action in actions] == [SetLease]
    assert kills(later(state, from_s=7.1, until_s=20.0)) == set()


def test_a_claim_that_no_end_of_equals_makes_fit_freezes_none_of_them_beside_free_memory() -> None:
    """400 of 1,000 MiB are held as declared, 700 are asked for, and 590 are free for a call that passed its claim."""
    state = started(1000, sandbox("long"), sandbox("s"), sandbox("big"))
    asked = [Asked(request("l", "long", 400)), Asked(request("g", "s", 10)), Asked(request("b", "big", 700))]
    state, _ = step(state, asked, 0.0, SETTINGS)

    state, actions = step(state, [ReachedLease("g", 10 * MIB)], 6.0, SETTINGS)

    assert [type(action) for action in actions] == [SetLease]
    _, actions = step(state, [Ended("l")], 7.0, SETTINGS)
    assert [type(action) for action in actions] == [Admit]


def test_a_queued_call_that_was_not_tried_ends_no_agent() -> None:
    """Calls of a higher priority, which do not fit, use up the tries of a step; nothing runs, and 250 MiB are free."""
    settings = replace(SETTINGS, tried_requests=1)
    agents = sandbox("mid", agent_mib=50), sandbox("low", priority=-1, agent_mib=50)
    state = started(500, sandbox("high", priority=1), *agents)
    state, _ = step(state, [Asked(request("first", "high", 400))], 0.0, settings)
    state, _ = step(state, [Asked(request("waits", "mid", 50))], 0.1, settings)
    grows = Used({}, {"low": 150 * MIB})
    state, _ = step(state, [Asked(request("second", "high", 400, at_s=5.9)), grows], 5.9, settings)

    state, actions = step(state, [Ended("first")], 6.0, settings)

    assert actions == (SetAgentLease("low", state.ledger.sandboxes["low"].agent_bytes, "LEASE_GROWN"),)
    assert not any(isinstance(each, KillAgent) for each in later(state, from_s=6.1, until_s=9.0, settings=settings))
