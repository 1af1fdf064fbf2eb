"""More time never makes a worse plan: a plan leaves out no more, and as much only for nodes of no higher price."""

from itertools import pairwise

import pytest

from cluster.snapshot import Snapshot
from placement.batch.columns import Memory
from placement.batch.ladder import BatchPlan, BatchSettings, plan_batch
from tests.builders.plan_check import Seat, wrongs
from tests.builders.plan_fleets import HeavyCase, heavy_batch, random_case

TIMES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
"""Planning times, from the lowest stage to the highest."""
WORSE_ONCE = (4, 14, 25)
"""Seeds of batches whose plan once got worse with more time."""
SEEDS = (*WORSE_ONCE, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 201) if seed not in WORSE_ONCE))


def plans_of(seen: Snapshot) -> list[BatchPlan]:
    """Plan at each time, each from a cold start."""
    return [plan_batch(seen, Memory(), BatchSettings(within_s=within_s)) for within_s in TIMES_S]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_price_never_rises_with_time(seed: int) -> None:
    seen = heavy_batch(random_case(seed), seed)
    plans = plans_of(seen)

    ranks = [plan.cost.rank for plan in plans]
    assert all(later <= earlier for earlier, later in pairwise(ranks))
    for plan in plans:
        columns = (plan.seats.row.tolist(), plan.seats.node.tolist(), plan.seats.devices.tolist())
        seats: list[Seat] = list(zip(*columns, strict=True))
        assert wrongs(seen, seats) == []


def test_a_bound_holds_for_the_plans_of_all_times() -> None:
    plans = plans_of(heavy_batch(HeavyCase(nodes=20, pods=120, classes=12), 7))

    assert max(plan.bound_usd for plan in plans) <= min(plan.cost.usd for plan in plans) + 1e-6
