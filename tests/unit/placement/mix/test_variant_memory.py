"""Explanations of the plan before, of which only what changed is solved again."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from placement.budget import Budget
from placement.mix import memory
from placement.mix.memory import SearchMemory, VariantMemory
from placement.mix.optimizer import work_of
from placement.mix.planner import plan_mix
from placement.mix.problem import MixAnswer, MixQuestion
from tests.builders.fleet import node, world
from tests.builders.mix import ample, hard_need, profile, question, service


def tight(cheap: int = 2) -> Snapshot:
    """Two services that each want two cheap devices."""
    return world(
        [node("c", gpus=cheap, gpu_type="cheap"), node("d", gpus=8, gpu_type="dear")],
        services=[service(f"ns/{name}", rate=2.0) for name in "ab"],
        profiles=[profile("cheap", [[1.0]]), profile("dear", [[1.0]])],
        prices={"cheap": 1.0, "dear": 3.0},
    )


TIGHT = tight()
SAVINGS = ("Cheaper", "Headroom", "LooserSlo")


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Services of each variant that is solved."""
    asked: list[str] = []
    solve = memory.answer_mix

    def counted(asking: MixQuestion, budget: Budget) -> MixAnswer | Reason:
        asked.append("+".join(need.service for need in asking.needs))
        return solve(asking, budget)

    monkeypatch.setattr(memory, "answer_mix", counted)
    return asked


def planned(snapshot: Snapshot, memory: SearchMemory, within_s: float = 2.0) -> Plan:
    return plan_mix(snapshot, Budget(work_of(within_s)), memory=memory)


def savings(plan: Plan) -> dict[str, Sequence[Reason]]:
    return {each.service: [note for note in each.notes if note.code in SAVINGS] for each in plan.services}


def test_the_same_question_is_explained_again_without_solving_anything(solved: list[str]) -> None:
    memory = SearchMemory()
    first = planned(TIGHT, memory)
    assert solved, "something must be solved at first, or this test shows nothing"
    solved.clear()

    second = planned(TIGHT, memory)

    assert solved == []
    assert savings(second) == savings(first) == savings(planned(TIGHT, SearchMemory()))
    assert any(savings(first).values())


def test_another_stock_is_explained_anew() -> None:
    memory = SearchMemory()
    planned(TIGHT, memory)

    assert (
        savings(planned(tight(3), memory))
        == savings(planned(tight(3), SearchMemory()))
        != savings(planned(TIGHT, memory))
    )


def test_what_the_work_did_not_suffice_for_is_tried_again_with_twice_as_much_alone(solved: list[str]) -> None:
    """Otherwise each plan's explanations would fail at the same variants, and the last services never have a turn."""
    hard, memory = question(hard_need(1)), VariantMemory()
    little = 5.0
    assert memory.mixes(hard, Budget(little)) is None
    memory.begin()

    assert memory.mixes(hard, Budget(1.5 * little)) is None
    assert len(solved) == 1
    memory.begin()

    assert memory.mixes(hard, ample()) is not None
    assert len(solved) == 2


def test_what_no_plan_asks_for_any_more_is_forgotten() -> None:
    memory = SearchMemory()
    planned(TIGHT, memory)
    of_both = set(memory.variants.now)
    assert of_both

    for _ in range(2):
        planned(replace(TIGHT, services=TIGHT.services[:1]), memory)

    left = memory.variants.before.keys() | memory.variants.now.keys()
    assert of_both - left, "those of the second service are gone"
    assert left < of_both


def test_time_that_ran_out_is_no_answer() -> None:
    hard, memory = question(hard_need(1)), VariantMemory()

    assert memory.mixes(hard, Budget(work_of(2.0), clock=lambda: 1.0, over_at_s=0.5)) is None
    assert memory.mixes(hard, ample()) is not None
