"""Pricing by actors on Ray gives the plans that pricing in turn gives."""

from benchmarks.pricing import case
from controller.brain.on_ray.ray_start import EMBEDDED, joined


def test_plans_are_the_same_whoever_prices_cold_and_warm() -> None:
    with joined(EMBEDDED, cores=2) as ray:
        records = [case(pods=500, seed=seed, ray=ray, workers=2) for seed in (1, 2)]

    assert [record["same"] for record in records] == [True, True]
    assert all(record["ray_cold_pricing_s"] > 0 for record in records), "nothing was priced: nothing was shown"
