"""The mix benchmark: what its rows say, and the public reference."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import Row
from benchmarks.mix import mix, mix_replay
from cluster.errors import ConfigError


def lines(**given: Any) -> list[Row]:
    return list(mix(**{"profiles": None, "textbook_s": 0.0, **given}))


def test_a_case_is_a_row_with_cost_bound_gap_and_instances() -> None:
    (line,) = lines(workloads=("short",), slos=("40ms",), rates=(4.0,))

    assert {"workload", "slo", "rate", "cost_per_hour", "bound", "gap", "seconds", "solver", "instances"} <= set(line)
    assert line["bound"] <= line["cost_per_hour"]


def test_headroom_never_makes_it_cheaper() -> None:
    case: Any = {"workloads": ("mixed",), "slos": ("120ms",), "rates": (8.0,)}

    (plain,), (roomy,) = lines(**case), lines(**case, headroom=None)

    assert plain["cost_per_hour"] <= roomy["cost_per_hour"]


def test_the_textbook_is_asked_the_same_question() -> None:
    (line,) = lines(workloads=("short",), slos=("40ms",), rates=(2.0,), textbook_s=15.0)

    assert line["textbook"]["cost_per_hour"] == pytest.approx(line["cost_per_hour"])


def test_a_workload_that_the_profiles_lack_is_refused() -> None:
    with pytest.raises(ConfigError, match="huge: is not in the profiles"):
        lines(workloads=("huge",))


def test_two_thousand_slices_on_twelve_types_come_within_half_a_percent() -> None:
    given: Any = {"size": (12, 100), "workloads": (), "slos": (), "slice_factor": None}
    (line,) = lines(**given, gap=0.005, rates=(8.0,))

    assert line["slice_factor"] == 20
    assert line["gap"] <= 0.005


def test_with_headroom_and_our_routing_the_promise_is_kept() -> None:
    # Fewer than one request in a hundred late although the run is short; without headroom, or routed at random,
    # far more. The figures at full length are in docs/benchmarks.md.
    given: Any = {"workloads": ("mixed",), "slos": ("120ms",), "rates": (8.0,), "seeds": (42,)}
    (line,) = mix_replay(profiles=None, for_s=600.0, **given)

    assert line["weights"]["met_share"] >= 0.99
    assert line["weights_without_headroom"]["met_share"] < 0.97
    assert line["random"]["met_share"] < 0.97


@pytest.mark.data
def test_all_reference_cases_cost_the_reference_with_proof(public_data: Path) -> None:
    serving = public_data / "serving"
    expected = [json.loads(line) for line in (serving / "reference_costs.jsonl").read_text().splitlines()]

    found = lines(profiles=serving / "synthetic_llama2_7b_4gpu.json")

    costs = {(line["workload"], line["slo"], line["rate"]): line["cost_per_hour"] for line in found}
    assert len(costs) == len(expected) == 36
    for case in expected:
        reference = case["optimal_cost_per_hour"]
        assert costs[case["workload"], case["slo"], case["rate"]] == pytest.approx(reference, abs=1e-3)
    assert max(line["gap"] for line in found) == 0.0


@pytest.mark.data
def test_the_public_worked_example_costs_what_it_says(public_data: Path) -> None:
    path = public_data / "serving" / "sample_config.json"
    expected = json.loads(path.read_text())["expected"]

    (line,) = lines(profiles=path, workloads=(), slos=(), rates=(), slice_factor=None)

    assert line["cost_per_hour"] == pytest.approx(expected.pop("cost"))
    assert line["instances"] == expected
