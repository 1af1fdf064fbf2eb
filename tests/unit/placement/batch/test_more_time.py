"""More time never makes a worse plan: a plan leaves out no more, and as much only for nodes of no higher price."""

from itertools import pairwise

import pytest

from benchmarks.plan import plans_of
from tests.builders.plan_fleets import HeavyCase, heavy_batch, random_case

SEEDS = (4, 14, pytest.param(20, marks=pytest.mark.slow), 25)
"""A few instances of `python -m benchmarks run plan-growth, which runs two hundred. Each of these once got worse."""


@pytest.mark.parametrize("seed", SEEDS)
def test_the_price_never_rises_with_time(seed: int) -> None:
    ranks = [plan.cost.rank for plan in plans_of(heavy_batch(random_case(seed), seed))]

    assert all(later <= earlier for earlier, later in pairwise(ranks))


def test_a_bound_holds_for_the_plans_of_all_times() -> None:
    plans = plans_of(heavy_batch(HeavyCase(nodes=20, pods=120, classes=12), 7))

    assert max(plan.bound_usd for plan in plans) <= min(plan.cost.usd for plan in plans) + 1e-6
