"""Services that share a tight stock: what is served, and what is proven."""

from collections.abc import Sequence

import pytest

from placement.budget import Budget
from placement.mix.admission import answer_shared
from placement.mix.memory import SearchMemory
from placement.mix.optimizer import work_of
from placement.mix.planner import MixSettings, _needs_of, _question, plan_mix
from placement.mix.problem import MixQuestion, Need
from tests.builders.many_services import tight_manifests
from tests.mix_exact.comparison import compare, observed
from tests.mix_exact.fleets import Switches


@pytest.mark.parametrize("seed", [3, 5])
def test_services_that_a_tight_stock_holds_together_are_all_served(seed: int) -> None:
    plan = plan_mix(observed(tight_manifests(seed)), Budget(work_of(2)), MixSettings(explain=False))

    assert [each.service for each in plan.services if each.refusal is not None] == []
    assert plan.certificates["mix"].gap < 0.25


def test_the_work_of_a_tight_stock_stays_near_its_budget() -> None:
    budget = Budget(work_of(2))

    plan_mix(observed(tight_manifests(4)), budget, MixSettings(explain=False))

    # A step that began within the budget may end beyond it; the longest is the relaxation of the joint model.
    assert budget.work > -0.5 * work_of(2)


@pytest.mark.parametrize("seed", [159, 391])
def test_what_refused_services_run_is_not_sold_to_others_and_costs_them_nothing(seed: int) -> None:
    """Their instances stay. Counted as free, they let a service be admitted that no free node holds; then all were
    refused, also one that fits (the exact model serves one of four)."""
    found = compare(seed, Switches(selectors=True, resources=True, widths=True, spot_nodes=True))

    assert found.disagreements == ()
    assert found.served == 1


@pytest.mark.parametrize("within_s", [0.05, 2.0])
def test_every_refusal_says_whether_it_is_proven(within_s: float) -> None:
    plan = plan_mix(observed(tight_manifests(3, slack=0.5)), Budget(work_of(within_s)), MixSettings(explain=False))

    refused = [each.refusal for each in plan.services if each.refusal is not None]
    assert refused
    verdict = {"InventoryShort": "does not fit: ", "WorkUsedUp": "not known: "}
    assert all(each.words.startswith(verdict[each.code]) for each in refused)


def test_services_that_are_many_cost_nothing_once_the_work_is_used_up() -> None:
    """To ask for one more looks at all services: 400 of one namespace took 90 s of a plan of two, and no pod of others
    was placed meanwhile."""
    snapshot = observed(tight_manifests(4, services=30, slack=0.3))
    _, needs = _needs_of(snapshot)
    asked: list[int] = []

    def ask(some: Sequence[Need]) -> MixQuestion:
        asked.append(len(some))
        return _question(snapshot, some, MixSettings())

    _, refusals = answer_shared(ask, needs, {}, Budget(0.0), 0.0, SearchMemory())

    assert len(refusals) > 10
    assert {reason.code for reason in refusals.values()} == {"WorkUsedUp"}
    assert len(asked) <= 3
