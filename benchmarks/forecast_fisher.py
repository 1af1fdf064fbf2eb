"""HARMONY's setting (arXiv 2408.01000): container indicators, one step ahead, split 70/10/20, min-max scaling."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from autoscaler.forecast.fits import fit
from autoscaler.forecast.grid import LEVELS
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import regular
from benchmarks.forecast_peers import PEERS, peer_quantiles
from benchmarks.forecast_runs import TRUSTED, Record
from benchmarks.forecast_scores import scores
from cluster.arrays import FloatArray
from simulator.scaling.traces import LoadTrace, read_trace, value_columns

_ERRORS = 1000
"""Last one-step errors that make a peer's distribution."""


def fisher_records(path: Path) -> Iterator[Record]:
    """A record per indicator and model; losses on values scaled to 0..1 over the training part."""
    for name in value_columns(path):
        yield from _records(read_trace(path, name))


def _records(trace: LoadTrace) -> Iterator[Record]:
    trained, first = round(0.7 * len(trace.values)), round(0.8 * len(trace.values))
    span = float(np.nanmax(trace.values[:trained]) - np.nanmin(trace.values[:trained])) or 1.0
    forecasts = {name: peer_quantiles(trace.values, weight, 1, _ERRORS, first) for name, weight in PEERS.items()}
    forecasts.update(_ours(trace, trained))
    known = ~np.isnan(trace.values)
    known[:first] = False
    for quantiles in forecasts.values():
        known &= ~np.isnan(quantiles).any(-1)
    figures = {
        name: scores(LEVELS, rows[known], trace.values[known], span, trace.points_per_day)
        for name, rows in forecasts.items()
    }
    best = {name: min(figures[peer][name] for peer in PEERS) for name in ("crps", "pinball_99")}
    for name, found in figures.items():
        minutes = trace.step_s / 60
        yield {
            "trace": trace.name,
            "lead_min": minutes,
            "model": name,
            **found,
            "ratio": found["crps"] / best["crps"],
            "ratio_99": found["pinball_99"] / best["pinball_99"],
        }


def _ours(trace: LoadTrace, trained: int) -> dict[str, FloatArray]:
    """Quantiles for each point that each of our models gave out at the point before it."""
    history = regular(trace.start_s, trace.step_s, trace.values[:trained])
    forecaster = OnlineForecaster.of(history, fit(history))
    found: dict[str, FloatArray] = {}
    for row in range(trained, len(trace.values) - 1):
        at_s = trace.start_s + row * trace.step_s
        forecaster.observe(at_s, float(trace.values[row]))
        made, trusted = forecaster.rivals(at_s), forecaster.forecast(at_s)
        for name, forecast in (made if trusted is None else {**made, TRUSTED: trusted}).items():
            rows = found.setdefault(name, np.full((len(trace.values), len(LEVELS)), np.nan))
            rows[row + 1] = forecast.at(trace.step_s)
    return found
