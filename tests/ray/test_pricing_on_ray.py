"""Pricing by actors on Ray gives the plans that pricing in turn gives."""

from benchmarks.plan import plan_pricing


def test_plans_are_the_same_whoever_prices_cold_and_warm() -> None:
    records = list(plan_pricing(pods=(500,), seeds=(1, 2)))

    assert [record["same"] for record in records] == [True, True]
    assert all(record["ray"]["cold_pricing_s"] > 0 for record in records), "nothing was priced: nothing was shown"
