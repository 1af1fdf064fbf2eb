"""The ablation of bid-price packing: its whole policy is the one that ships, and every weight is taken out once."""

from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.churn_runs import ChurnRun, ChurnSetup
from benchmarks.churn_runs import play as churned
from benchmarks.packing_ablation import FILL, MEASURED, SETTINGS, WARM_UP, WHOLE, Case, Setup, main, play
from placement.prices.price_book import BidSettings
from simulator.openb.generator import generate, write_openb_csv

OTHER_POLICY = "value by prices"
"""The variant that is no setting."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A generated fleet of twelve nodes and its pods, as files."""
    folder = tmp_path_factory.mktemp("trace")
    nodes, pods = folder / "nodes.csv", folder / "small.csv"
    write_openb_csv(generate(12, seed=1), nodes, pods)
    return nodes, pods


def test_with_nothing_taken_out_the_policy_is_that_of_the_churn_benchmark(trace: tuple[Path, Path]) -> None:
    nodes, pods = trace
    traces = (("small", pods),)

    whole = play(Case("small", 0.5, 1, "nothing"), Setup(nodes, traces, every=1))

    shipped = churned(
        ChurnRun("small", 0.5, 1, "tonnage-learning"), ChurnSetup(nodes, traces, "exponential", WARM_UP, MEASURED)
    )
    assert whole["allocation_pct"] == shipped["allocation_pct"]


def test_every_weight_is_taken_out_and_every_variant_takes_something_out() -> None:
    weights = {field.name for field in fields(BidSettings) if field.name.endswith("_weight")}
    taken = {name: _changed(settings) for name, settings in SETTINGS.items()}

    assert weights <= set().union(*taken.values())
    assert [name for name, changed in taken.items() if not changed] == ["nothing", OTHER_POLICY]


def test_a_fleet_can_be_thinned_and_differences_are_paired(trace: tuple[Path, Path]) -> None:
    nodes, pods = trace
    arguments = ["--nodes", str(nodes), "--pods", str(pods), "--every", "2", "--loads", "0.2", "--seeds", "1-2"]

    done = CliRunner().invoke(main, [*arguments, "--without", OTHER_POLICY, "--json", "-"])

    assert done.exit_code == 0, done.output
    assert done.stdout.count('"nodes": 6') == len(done.stdout.splitlines()) == 8  # 2 loads, 2 seeds, 2 variants
    assert "±" in done.stderr
    assert f'"load": {FILL}' in done.stdout


def test_an_unknown_mechanism_is_refused(trace: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(main, ["--nodes", str(trace[0]), "--pods", str(trace[1]), "--without", "luck"])

    assert done.exit_code == 2
    assert "--without luck: is unknown" in done.output


def _changed(settings: BidSettings) -> set[str]:
    return {field.name for field in fields(settings) if getattr(settings, field.name) != getattr(WHOLE, field.name)}
