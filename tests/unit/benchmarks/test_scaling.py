"""Scaling's benchmark: CPU time of deciding, rows that others compare, and every mechanism beside the whole."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoscaler.decision.decide import decide
from autoscaler.forecast.fits import fit
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import regular
from benchmarks.scaling import scaling
from cluster.autoscaling import Behavior, LeadTime, Replicas, Scaler, ScaleTarget, ScalingObjective
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
    assert cpu_s_of(500) <= 2.0


def cpu_s_of(services: int, histories: int = 10, step_s: float = 60.0) -> float:
    """CPU time to observe so many services' loads, forecast them and decide.

    They share the histories, each at a scale of its own.
    """
    chance, forecasters = np.random.default_rng(1), []
    for number in range(histories):
        trace = generated_trace(1 + number, days=2)
        series = regular(trace.start_s, trace.step_s, np.asarray(trace.values))
        forecasters.append((OnlineForecaster.of(series, fit(series)), float(trace.at_s[-1])))
    sizes = chance.integers(1, 60, services).tolist()
    leads = tuple(np.sort(chance.lognormal(np.log(300.0), 0.5, 20)).tolist())
    began_s = time.process_time()
    for number, size in enumerate(sizes):
        forecaster, last_s = forecasters[number % histories]
        at_s = last_s + (1 + number // histories) * step_s
        forecaster.observe(at_s, 20.0 * step_s)
        scaler = Scaler(
            name=f"bench/{number}",
            target=ScaleTarget("apps/v1", "Deployment", f"bench/{number}"),
            mode="Auto",
            replicas=Replicas(size, size),
            min_replicas=0,
            max_replicas=1000,
            replica_load=20.0 * step_s / size,
            objective=ScalingObjective(),
            behavior=Behavior(),
            load=20.0 * step_s,
            observed_at_s=at_s,
            max_age_s=180.0,
            forecast=forecaster.forecast(at_s),
            lead_time=LeadTime(leads, 50),
        )
        assert decide(scaler, at_s) is not None
    return time.process_time() - began_s


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


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="guess"):
        next(scaling(traces=(), policies=("guess",)))
