"""Guard: of a sound plan with one wrong step it refuses that step, or its whole phase, and nothing else."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from cluster.actions import ACTIONS, Action, Evict, Move
from cluster.plans import Phase, Step
from controller.guard import REASONS, Limits, guard
from tests.builders.fleet import node, pod
from tests.builders.wrong_plans import BREAKERS, WHY, Content, inserted, sound, stops

ANY = Limits(max_evictions_floor=100)
RULES = [(action, rule) for action, rules in BREAKERS.items() for rule in rules]
CHANCE = st.integers(0, 2**32 - 1).map(Random)


def expected_refusals(phase: Phase, wrong: Step, code: str) -> list[tuple[Step, str]]:
    """Steps of a phase that fall with the wrong one, each with the code of its reason."""
    if code == "GangNotWhole":
        return [(step, code) for step in phase.steps]
    others = [(step, "NotWhole") for step in phase.steps if step != wrong] if phase.whole else []
    return [(wrong, code), *others]


@pytest.mark.parametrize(("action", "rule"), RULES, ids=[f"{kind.__name__} {rule}" for kind, rule in RULES])
@settings(max_examples=10)
@given(chance=CHANCE)
def test_a_wrong_step_is_refused_and_the_rest_of_the_plan_stays(
    action: type[Action], rule: str, chance: Random
) -> None:
    content, plan = sound(chance)
    wrong = BREAKERS[action][rule](chance)
    seen, step = content.plus(wrong.content).snapshot, Step(wrong.action, WHY)
    broken, at = inserted(plan, step, chance)

    checked = guard(seen, broken, ANY)

    fallen = expected_refusals(broken.phases[at], step, wrong.code)
    assert sorted((repr(each.step), each.reason.code) for each in checked.refused) == sorted(
        (repr(each), code) for each, code in fallen
    )
    assert checked.actions == tuple(each.action for each in broken.steps() if each not in [one for one, _ in fallen])
    assert all(each.reason.words for each in checked.refused)


@given(chance=CHANCE)
def test_a_sound_plan_passes_unchanged(chance: Random) -> None:
    content, plan = sound(chance)

    assert guard(content.snapshot, plan, ANY) == plan


def test_every_rule_of_every_action_is_broken() -> None:
    chance = Random(0)  # noqa: S311 - not for secrets
    broken = {make(chance).code for rules in BREAKERS.values() for make in rules.values()}

    assert set(BREAKERS) == set(ACTIONS), "a new action needs its wrong plans in tests/builders/wrong_plans.py"
    of_a_plan = {"NotWhole", "StaleEvidence", "TooManyEvictions", "TooManyInstancesStopped", "TooManyNodesOut",
                 "TooManyRestarts", "TooManyStopsForSeat", "UnknownAction"}  # fmt: skip
    assert broken == set(REASONS) - of_a_plan


@pytest.mark.parametrize(
    "extra", [Evict("one-more", "last"), Move("one-more", "last", "spare", (0,))], ids=["evicted", "moved"]
)
@given(chance=CHANCE)
def test_no_plan_stops_or_moves_more_pods_than_its_limit(extra: Action, chance: Random) -> None:
    content, plan = sound(chance)
    more = Content((node("last", 1), node("spare", 1)), (pod("one-more", 1, on="last", devices=(0,)),))
    step = Step(extra, WHY)

    checked = guard(
        content.plus(more).snapshot,
        replace(plan, phases=(*plan.phases, Phase("more", (step,)))),
        Limits(max_evictions_share=0.0, max_evictions_floor=stops(plan)),
    )

    assert checked.phases == plan.phases
    assert [(each.step, each.reason.code) for each in checked.refused] == [(step, "TooManyEvictions")]


@given(chance=CHANCE, share=st.floats(0.0, 1.0))
def test_the_limit_on_evictions_is_a_share_of_the_running_pods_and_never_below_its_floor(
    chance: Random, share: float
) -> None:
    running, floor = chance.randint(1, 40), chance.randint(0, 5)
    pods = tuple(pod(f"p{n}", on="big") for n in range(running))
    seen = Content((node("big", cpu_milli=1_000_000, memory_bytes=2**50),), pods).snapshot
    evictions = Phase("all", tuple(Step(Evict(each.name, "big"), WHY) for each in pods))

    checked = guard(seen, replace(sound(chance)[1], phases=(evictions,)), Limits(share, floor))

    assert len(checked.actions) == min(running, max(floor, int(share * running)))


@given(chance=CHANCE)
def test_nothing_is_done_on_stale_observations(chance: Random) -> None:
    content, plan = sound(chance)
    seen = replace(content.snapshot, at_s=200.0, observed_at_s={"pods": 100.0})

    checked = guard(seen, plan, replace(ANY, max_age_s=99.0))

    assert checked.actions == ()
    assert {each.reason.code for each in checked.refused} <= {"StaleEvidence", "NotWhole"}
    assert guard(seen, plan, replace(ANY, max_age_s=100.0)) == plan


@given(chance=CHANCE)
def test_a_struck_phase_leaves_the_rest_as_if_it_had_not_been_planned(chance: Random) -> None:
    """The sound steps are all in one phase with a wrong one, and are planned once more after it."""
    content, plan = sound(chance)
    action = chance.choice(ACTIONS)
    wrong = BREAKERS[action][chance.choice(sorted(BREAKERS[action]))](chance)
    steps = tuple(plan.steps())
    struck = Phase("struck", (*steps, Step(wrong.action, WHY)), whole=True)
    limits = Limits(max_evictions_share=0.0, max_evictions_floor=stops(plan) + 1)

    checked = guard(content.plus(wrong.content).snapshot, replace(plan, phases=(struck, *plan.phases)), limits)

    assert checked.phases == plan.phases
    assert len(checked.refused) == len(struck.steps)
