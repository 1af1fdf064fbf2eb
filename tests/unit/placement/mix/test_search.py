"""Rounds of search: everybody's first answer comes before anybody's second round, and the widest gap goes first."""

from dataclasses import replace

import pytest

from cluster.plans import Reason
from placement.budget import Budget
from placement.mix.optimizer import FIRST_NODES, SearchState, answer_mix, begun, is_good, search
from placement.mix.problem import MixAnswer, MixQuestion
from tests.builders.mix import ample, answered, hard_need, need, question
from tests.clock import ticking

EASY = need({"A100": (3.0, ((2.0,),)), "L4": (1.0, ((0.5,),))}, 3.0, ((1.0,),), slice_factor=8)


def searched(questions: list[MixQuestion], budget: Budget) -> list[SearchState]:
    found = search(questions, [begun(each, ample()) for each in questions], budget, 0.0)
    assert all(isinstance(each, SearchState) for each in found)
    return [each for each in found if isinstance(each, SearchState)]


def test_a_question_that_one_round_does_not_answer_has_further_ones_of_more_nodes() -> None:
    asked = question(hard_need(0))

    (found,) = searched([asked], ample())

    assert found.nodes > 2 * FIRST_NODES
    assert is_good(asked, found, 0.0)
    assert found.cut_short == ""


def test_what_the_work_does_not_suffice_for_says_so_and_how_far_it_came() -> None:
    asked = question(hard_need(0))

    short, full = answered_with(asked, 1_500.0), answered(asked)

    assert short.certificate.cut_short == "work"
    assert 0 < short.certificate.gap < 1
    assert short.cost_per_hour >= full.cost_per_hour
    assert (full.certificate.cut_short, full.certificate.gap) == ("", 0.0)


def test_more_work_never_makes_an_answer_dearer_or_less_proven() -> None:
    asked = question(hard_need(0))
    proofs = [answered_with(asked, work).certificate for work in (0.0, 500.0, 3_000.0, 10_000.0)]

    assert [each.objective for each in proofs] == sorted((each.objective for each in proofs), reverse=True)
    assert [each.bound for each in proofs] == sorted(each.bound for each in proofs)


def test_what_an_easy_question_leaves_is_there_for_a_hard_one() -> None:
    """Alone the hard question needs some 21,000 units of work; in equal parts of 30,000 it would get 15,000."""
    asked, budget = [question(EASY), question(hard_need(0))], Budget(30_000.0)

    found = searched(asked, budget)

    good = [is_good(each, known, 0.0) for each, known in zip(asked, found, strict=True)]
    assert good == [True, True], (budget.work, [(each.nodes, each.cut_short, each.round_work) for each in found])


def test_every_question_has_its_first_round_before_one_has_its_second() -> None:
    asked = [question(hard_need(0)), question(hard_need(3)), question(EASY)]
    # The first would use up all of it, and more; the others need some hundreds and 10.
    found = searched(asked, Budget(2_000.0))

    assert [is_good(each, known, 0.0) for each, known in zip(asked, found, strict=True)] == [False, True, True]


@pytest.mark.parametrize("work", [500.0, 3_000.0])
def test_the_same_question_and_work_have_the_same_answer_whatever_the_clock_says(work: float) -> None:
    asked = question(hard_need(0))

    quiet, hurried = answered_with(asked, work), answer_mix(asked, Budget(work, ticking(977.0)))

    assert not isinstance(hurried, Reason)
    assert (hurried.mixes[0].instances == quiet.mixes[0].instances).all()
    assert (hurried.mixes[0].share == quiet.mixes[0].share).all()
    assert replace(hurried.certificate, seconds=0.0) == replace(quiet.certificate, seconds=0.0)


def test_time_that_cuts_a_search_short_is_named() -> None:
    asked = question(hard_need(0))
    late = Budget(100_000.0, clock=lambda: 2.0, over_at_s=1.0)

    answer = answer_mix(asked, late)

    assert not isinstance(answer, Reason)
    assert answer.certificate.cut_short == "time"
    assert late.time_ran_out


def answered_with(asked: MixQuestion, work: float) -> MixAnswer:
    answer = answer_mix(asked, Budget(work))
    assert isinstance(answer, MixAnswer)
    return answer


def test_many_services_of_one_namespace_do_not_keep_that_of_another_from_its_turn() -> None:
    names = ("many/a", "many/b", "many/c", "one/d")
    asked = [question(replace(hard_need(0), service=name)) for name in names]

    found = searched(asked, Budget(120.0))

    # A first round takes up what it may, so there is work for two turns.
    assert [name for name, each in zip(names, found, strict=True) if each.round_work] == ["many/a", "one/d"]
