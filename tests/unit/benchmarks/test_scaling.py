"""Scaling's benchmark: CPU time of deciding, rows that others compare, and every mechanism beside the whole."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.scaling import VARIANTS, scaling, scaling_ablation, scaling_speed
from cluster.errors import ConfigError
from simulator.scaling.traces import generated_trace


@pytest.fixture
def load(tmp_path: Path) -> Path:
    """Three days of load, every ten minutes."""
    path = tmp_path / "load.csv"
    values = generated_trace(4, days=3, step_s=600.0).values
    path.write_text("t_s,requests\n" + "".join(f"{600 * n},{v:g}\n" for n, v in enumerate(values)), "utf-8")
    return path


@pytest.mark.slow
def test_five_hundred_services_are_decided_within_two_seconds_of_a_shared_core() -> None:
    """Their forecasts included, in CPU time. The goal is a second on an idle machine, where it takes 0.3 to 0.9 s;
    beside other work on the same core each instruction takes longer."""
    (row,) = scaling_speed(services=500)
    assert row["services"] == 500
    assert row["cpu_s"] <= 2.0


def test_each_run_is_a_row_with_the_figures_that_others_compare(load: Path) -> None:
    given: Any = {"traces": (load,), "leads": (10.0,), "train_days": 2, "days": 1}
    records = list(scaling(**given, policies=("tonnage", "hpa", "oracle")))
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


def test_every_mechanism_is_measured_beside_the_whole_on_the_same_lead_times(load: Path) -> None:
    records = list(scaling_ablation(traces=(load,), leads=(10.0,), train_days=2, days=1))
    assert len(records) == len(VARIANTS)
    wholes = {record["leads"]: record["j"] for record in records if record["without"] == "nothing"}
    assert set(wholes) == {"fixed", "random"}
    assert {str(record["without"]) for record in records} >= {"conformal", "switching cost"}


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="guess"):
        next(scaling(traces=(), policies=("guess",)))
