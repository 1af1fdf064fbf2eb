"""The mix benchmark: its lines, its refusals, and the public reference."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.mix import main


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def lines(*arguments: str) -> list[dict[str, Any]]:
    result = ran("--json", "--no-peer", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_case_is_a_line_with_cost_bound_gap_and_instances() -> None:
    (line,) = lines("--workloads", "short", "--slos", "40ms", "--rates", "4")

    assert {"workload", "slo", "rate", "cost_per_hour", "bound", "gap", "seconds", "solver", "instances"} <= set(line)
    assert line["bound"] <= line["cost_per_hour"]


def test_an_infeasible_case_says_why_and_the_others_go_on() -> None:
    first, second = lines(
        "--workloads", "short", "--slos", "40ms,120ms", "--rates", "4", "--inventory", "A100=0,H100=0"
    )

    # Without the large types only the slow promise can be kept, by L4 and A10G.
    assert "of 0" in first["infeasible"] or "no GPU type" in first["infeasible"]
    assert second["cost_per_hour"] > 0


def test_prices_and_stock_change_the_answer() -> None:
    case = ("--workloads", "long", "--slos", "120ms", "--rates", "8")

    (plain,), (cheap,), (few,) = lines(*case), lines(*case, "--prices", "H100=2"), lines(*case, "--inventory", "A100=2")

    assert cheap["cost_per_hour"] < plain["cost_per_hour"] < few["cost_per_hour"]
    assert few["instances"]["A100"] <= 2


def test_whole_slices_and_headroom_never_make_it_cheaper() -> None:
    case = ("--workloads", "mixed", "--slos", "120ms", "--rates", "8", "--deadline", "5")

    (plain,), (whole,), (roomy,) = lines(*case), lines(*case, "--per-instance"), lines(*case, "--headroom", "auto")

    assert plain["cost_per_hour"] <= whole["cost_per_hour"]
    assert plain["cost_per_hour"] <= roomy["cost_per_hour"]


def test_the_textbook_is_asked_the_same_question() -> None:
    result = ran("--json", "--workloads", "short", "--slos", "40ms", "--rates", "2")

    line = json.loads(result.stdout)
    assert line["peer"]["cost_per_hour"] == pytest.approx(line["cost_per_hour"])
    assert json.loads(result.stderr)["textbook"]["answered"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prices", "B200=3"), "unknown GPU type 'B200'"),
        (("--prices", "L4=nan"), "--prices L4: is nan"),
        (("--inventory", "L4=-1"), "--inventory L4: is -1"),
        (("--inventory", "L4=1,L4=2"), "L4 is given twice"),
        (("--rates", "0"), "--rates: is 0.0"),
        (("--rates", "fast"), "--rates: is 'fast'"),
        (("--workloads", "huge"), "--workloads: unknown: huge"),
        (("--slos", "1ms"), "--slos: unknown: 1ms"),
        (("--headroom", "1"), "--headroom: is 1"),
        (("--gap", "2"), "--gap: is 2.0"),
        (("--size", "many"), "--size: 'many'"),
        (("--profiles", "nowhere.json"), "nowhere.json: cannot be read"),
    ],
)
def test_wrong_use_is_told_and_nothing_is_written(arguments: tuple[str, ...], words: str) -> None:
    result = ran("--json", *arguments)

    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_two_thousand_slices_on_twelve_types_come_within_half_a_percent() -> None:
    (line,) = lines("--size", "12x2000", "--gap", "0.005", "--rates", "8", "--deadline", "20")

    assert line["slice_factor"] == 20
    assert line["gap"] <= 0.005


def test_with_headroom_and_our_routing_the_promise_is_kept() -> None:
    # Fewer than one request in a hundred late although the run is short; without headroom, or routed at random,
    # far more. The figures at full length are in docs/benchmarks.md.
    (line,) = lines("--replay", "--workloads", "mixed", "--slos", "120ms", "--rates", "8", "--replay-seconds", "600")

    assert line["weights"]["met_share"] >= 0.99
    assert line["weights_without_headroom"]["met_share"] < 0.97
    assert line["random"]["met_share"] < 0.97


@pytest.mark.data
def test_all_reference_cases_cost_the_reference_with_proof(public_data: Path) -> None:
    serving = public_data / "serving"
    expected = [json.loads(line) for line in (serving / "reference_costs.jsonl").read_text().splitlines()]

    found = lines("--profiles", str(serving / "synthetic_llama2_7b_4gpu.json"), "--rates", "1,2,4,8,16,32")

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

    (line,) = lines("--profiles", str(path))

    assert line["cost_per_hour"] == pytest.approx(expected.pop("cost"))
    assert line["instances"] == expected
