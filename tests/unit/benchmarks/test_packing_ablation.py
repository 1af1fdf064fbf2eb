"""The ablation of bid-price packing: its whole policy is the one that ships, and every weight is taken out once."""

from dataclasses import fields

from benchmarks.cases import case_named
from benchmarks.packing import ChurnRun, packing_ablation, play_churn, traces_of
from benchmarks.tables import text_of
from placement.prices.price_book import BidSettings
from tests.rigs.packing_ablation import SETTINGS, SHIPPED, WHOLE, AblationRun, allocation_without

OTHER_POLICY = "value by prices"
"""The variant that is no setting."""


def test_with_nothing_taken_out_the_policy_is_that_of_the_churn_benchmark() -> None:
    traces = traces_of(None, ())

    whole = allocation_without(AblationRun("generated", 0.5, 1, WHOLE), traces)

    shipped = play_churn(ChurnRun("generated", 0.5, 1, "tonnage-learning"), traces)
    assert round(whole, 4) == shipped["allocation_pct"]


def test_every_weight_is_taken_out_and_every_variant_takes_something_out() -> None:
    weights = {field.name for field in fields(BidSettings) if field.name.endswith("_weight")}
    taken = {name: _changed(settings) for name, settings in SETTINGS.items()}

    assert weights <= set().union(*taken.values())
    assert [name for name, changed in taken.items() if not changed] == [WHOLE, OTHER_POLICY]


def test_a_fleet_can_be_thinned_and_differences_are_paired() -> None:
    rows = list(packing_ablation(nodes=None, pods=(), without=(OTHER_POLICY,), loads=(0.0, 0.2), every=2, seeds=(1, 2)))

    assert [row["nodes"] for row in rows] == [6] * 8  # 2 loads, 2 seeds, 2 variants
    assert "±" in text_of(case_named("packing-ablation"), rows)


def _changed(settings: BidSettings) -> set[str]:
    return {field.name for field in fields(settings) if getattr(settings, field.name) != getattr(SHIPPED, field.name)}
