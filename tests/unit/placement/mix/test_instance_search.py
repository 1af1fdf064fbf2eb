"""The exact search of one service's instances, beside the exact model of the same question."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from placement.budget import Budget
from placement.mix.feasibility import violations
from placement.mix.heuristics import best_pair
from placement.mix.instance_search import cheapest
from placement.mix.milp import build_model, mixes_from
from placement.mix.problem import MixQuestion, Need, mix_cost
from placement.mix.problem_builder import need_of
from placement.mix.pulp_solver import solve
from tests.builders.many_services import tight_manifests
from tests.builders.mix import ample, hard_need, need, question
from tests.mix_exact.comparison import observed
from tests.unit.placement.mix.test_pool_split import prices_of

GAP = 1e-4


def fine_need(seed: int) -> Need:
    """A need of some seven instances, in slices that are small beside one."""
    snapshot = observed(tight_manifests(seed, 1, 4))
    found = need_of(snapshot.services[0], snapshot)
    assert isinstance(found, Need)
    return found


@pytest.mark.parametrize("headroom", [None, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_no_count_of_instances_is_cheaper_than_the_one_that_is_found(seed: int, headroom: float | None) -> None:
    asked = replace(fine_need(seed), headroom_share=headroom)
    alone, prices = MixQuestion((asked,)), prices_of(asked)

    mix, bound = cheapest(alone, prices, ample(), GAP, trials=100)

    model = build_model(alone, whole_slices=True)
    assert solve(model.problem, gap=GAP).status == "optimal"
    least = mix_cost(asked, mixes_from(alone, model)[0])
    assert mix is not None
    assert violations(alone, (mix,)) == ()
    assert mix_cost(asked, mix) == pytest.approx(least, rel=0.01)
    assert 0.97 * least <= bound <= least + 1e-6


def test_slices_are_counted_whole() -> None:
    """One bucket that is never cut keeps 1.5 instances at 1 $ busy, or 2.2 at 0.6 $: 2 or 3 of them, 2 or 1.8 $.

    Cut in two it would do with one of each, 1.6 $.
    """
    tables = {"A100": (1.0, ((1 / 1.5,),)), "L4": (0.6, ((1 / 2.2,),))}
    asked = question(need(tables, 1.0, ((1.0,),), slice_factor=1, headroom_share=0.0))

    mix, bound = cheapest(asked, np.array([1.0, 0.6]), ample(), 0.0)

    assert mix is not None
    assert float(mix.instances @ np.array([1.0, 0.6])) == pytest.approx(1.8)
    assert bound == pytest.approx(1.6), "in fractions of slices one of each would do"


def test_a_search_that_is_cut_short_proves_no_more_than_the_whole_one() -> None:
    asked = hard_need(0)
    alone, prices = MixQuestion((asked,)), prices_of(asked)
    _, whole = cheapest(alone, prices, ample(), GAP)

    for work in (1.0, 30.0, 100.0, 300.0):
        mix, bound = cheapest(alone, prices, Budget(work), GAP)
        assert bound <= whole + 1e-6
        assert mix is None or violations(alone, (mix,)) == ()


def test_offers_of_which_the_stock_holds_none_are_not_used() -> None:
    asked = question(need({"A100": (9.0, ((1.0,),)), "L4": (1.0, ((1.0,),))}, 2.5, ((1.0,),)), stock={"L4": 0})

    mix, _ = cheapest(asked, np.array([9.0, 1.0]), ample(), GAP)

    assert mix is not None
    assert mix.instances.tolist()[1] == 0


def test_counts_stay_within_their_limits() -> None:
    asked = fine_need(1)
    alone, prices = MixQuestion((asked,)), prices_of(asked)
    best, _ = cheapest(alone, prices, ample(), GAP)
    assert best is not None
    fewest = best.instances + np.eye(len(prices), dtype=np.int64)[0]

    more, _ = cheapest(alone, prices, ample(), GAP, fewest=fewest)
    same, _ = cheapest(alone, prices, ample(), GAP, fewest=best.instances, limit=best.instances)
    none, _ = cheapest(alone, prices, ample(), GAP, limit=0 * fewest)

    assert more is not None
    assert (more.instances == fewest).all()
    assert same is not None
    assert (same.instances == best.instances).all()
    assert none is None


def test_a_type_that_costs_nothing_and_serves_only_some_requests_is_used_for_those() -> None:
    asked = need({"A100": (0.0, ((1.0, 0.0),)), "L4": (2.0, ((1.0, 1.0),))}, 5.0, ((0.5, 0.5),))

    mix = best_pair(asked, np.array([0.0, 2.0]), {})

    assert mix is not None
    assert mix.instances.tolist() == [3, 3]


def test_ten_thousand_instances_take_no_table_by_count_and_bucket() -> None:
    """Some 14,000 instances on 20 types: by count, type and bucket 600 MB."""
    snapshot = observed(tight_manifests(0, 1, 20))
    (service,) = snapshot.services
    assert service.demand is not None
    large = replace(service, demand=replace(service.demand, rate_per_s=5000 * service.demand.rate_per_s))
    asked = need_of(large, snapshot)
    assert isinstance(asked, Need)
    tracemalloc.start()
    try:
        cheapest(MixQuestion((asked,)), prices_of(asked), Budget(1.0), GAP)
        assert tracemalloc.get_traced_memory()[1] < 300e6
    finally:
        tracemalloc.stop()
