import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import scaling
from benchmarks.scaling_ablation import VARIANTS, ablated
from benchmarks.scaling_speed import decided_services
from simulator.scaling.replay import Leads, LoadScenario, scenario_of
from simulator.scaling.traces import generated_trace


@pytest.fixture
def small() -> LoadScenario:
    """A day after two days of training, every ten minutes."""
    return scenario_of(generated_trace(3, days=3, step_s=600.0), train_days=2, days=1)


def test_five_hundred_services_are_decided_within_two_seconds_of_a_shared_core() -> None:
    """Their forecasts included, in CPU time. The goal is a second on an idle machine, where it takes 0.3 to 0.9 s;
    beside other work on the same core each instruction takes longer."""
    record = decided_services(500)
    assert record["services"] == 500
    assert isinstance(record["cpu_s"], float)
    assert record["cpu_s"] <= 2.0


def test_each_run_is_a_line_with_the_figures_that_others_compare(tmp_path: Path) -> None:
    trace, lines = tmp_path / "load.csv", tmp_path / "runs.jsonl"
    load = generated_trace(4, days=3, step_s=600.0)
    trace.write_text("t_s,requests\n" + "".join(f"{600 * n},{v:g}\n" for n, v in enumerate(load.values)), "utf-8")
    words = ["--trace", str(trace), "--lead", "10", "--policy", "tonnage,hpa,oracle", "--train-days", "2", "--tuned"]
    done = CliRunner().invoke(scaling.main, [*words, "--json", str(lines)])
    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    assert [(record["policy"], record["tuned"] is not None) for record in records] == [
        ("tonnage", False),
        ("tonnage", True),
        ("hpa", False),
        ("hpa", True),
        ("oracle", False),
    ]
    fields = {"trace", "lead_min", "policy", "gpu_hours_ratio", "shortfall_ratio", "j", "violation_minutes_pct"}
    assert all(fields < set(record) for record in records)
    assert records[3]["j"] <= records[2]["j"]  # 70 % is in the grid


def test_every_mechanism_is_measured_beside_the_whole_on_the_same_lead_times(small: LoadScenario) -> None:
    records = list(ablated(small, [Leads((600.0,))]))
    assert len(records) == len(VARIANTS)
    wholes = {record["leads"]: record["j"] for record in records if record["without"] == "nothing"}
    assert set(wholes) == {"fixed", "random"}
    assert {str(record["without"]) for record in records} >= {"season", "conformal", "switching cost", "reactive floor"}


def test_an_unknown_policy_is_refused() -> None:
    done = CliRunner().invoke(scaling.main, ["--policy", "guess"])
    assert done.exit_code == 2
    assert "guess" in done.output
