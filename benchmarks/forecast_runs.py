"""Rolling forecasts of a trace: fitted on its first days, then one forecast per point, by all models at once."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoscaler.forecast.fits import Fit, fit
from autoscaler.forecast.grid import LEVELS
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import Series, regular
from benchmarks.forecast_peers import PEERS, peer_quantiles
from benchmarks.forecast_scores import scores
from cluster.arrays import FloatArray
from cluster.demand import Forecast
from simulator.scaling.traces import LoadTrace

Record = dict[str, Any]
_WINDOW = 1440
"""Last errors that make a peer's distribution: a day at a minute, as many as a model's."""
TRUSTED = "auto"
"""The model that is trusted at each instant and lead: what the autoscaler uses."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of a trace is fitted, and which is forecast."""

    train_days: float
    test_days: float
    refit_hours: float = 0.0
    """0: fitted once."""


@dataclass(slots=True)
class Rolled:
    """Quantiles of each model for each point that came, by lead in steps."""

    quantiles: dict[tuple[str, int], list[FloatArray]] = field(default_factory=dict)
    came: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    fit_cpu_s: float = 0.0
    observe_cpu_ms: float = 0.0


def lead_steps_of(trace: LoadTrace, leads_min: tuple[float, ...]) -> tuple[int, ...]:
    """These leads in steps of the trace; for a coarse trace its first two steps stand for shorter ones."""
    wanted = {round(lead * 60 / trace.step_s) for lead in leads_min if lead * 60 >= trace.step_s}
    return tuple(sorted(wanted or {1, 2}))


def rolled(trace: LoadTrace, span: Span, leads: tuple[int, ...]) -> Rolled:
    """Forecasts at each point of the test days, made with what was known before."""
    per_day = trace.points_per_day
    first, end = round(span.train_days * per_day), round((span.train_days + span.test_days) * per_day)
    values, out = trace.values[:end], Rolled()
    forecaster = OnlineForecaster.of(_series(trace, 0, first), _timed_fit(_series(trace, 0, first), out))
    refit_every = round(span.refit_hours * 3600 / trace.step_s)
    started_s = time.process_time()
    given: dict[int, Mapping[str, Forecast]] = {}
    for now in range(first, len(values)):
        at_s = trace.start_s + now * trace.step_s
        if refit_every and now > first and (now - first) % refit_every == 0:
            forecaster.adopt(_timed_fit(forecaster.history.whole(), out))
        forecaster.observe(at_s, float(values[now]))
        _compare(out, given, now, leads, float(values[now]), trace.step_s)
        if not np.isnan(values[now]):
            given[now] = _all_forecasts(forecaster, at_s)
        given.pop(now - max(leads) - 1, None)
    out.observe_cpu_ms = 1e3 * (time.process_time() - started_s) / max(1, len(values) - first)
    return out


def records_of(trace: LoadTrace, span: Span, leads: tuple[int, ...]) -> Iterator[Record]:
    """A record per lead and model; `ratio` is the CRPS over that of the better peer (forecast_peers.py)."""
    found = rolled(trace, span, leads)
    unit = float(np.nanmean(trace.values[: round((span.train_days + span.test_days) * trace.points_per_day)]))
    for lead in leads:
        by_model = {
            model: scores(LEVELS, np.array(rows), np.array(found.came[model, at]), unit, trace.points_per_day)
            for (model, at), rows in found.quantiles.items()
            if at == lead
        }
        by_model |= _peers(trace, span, lead, unit)
        best = {name: min(by_model[peer][name] for peer in PEERS) for name in ("crps", "pinball_99")}
        for model, figures in by_model.items():
            yield {
                "trace": trace.name,
                "lead_min": lead * trace.step_s / 60,
                "model": model,
                **figures,
                "ratio": figures["crps"] / best["crps"],
                "ratio_99": figures["pinball_99"] / best["pinball_99"],
                "fit_cpu_s": found.fit_cpu_s,
                "observe_cpu_ms": found.observe_cpu_ms,
            }


def _peers(trace: LoadTrace, span: Span, lead: int, unit: float) -> dict[str, Mapping[str, float]]:
    per_day = trace.points_per_day
    first, end = round(span.train_days * per_day) + lead, round((span.train_days + span.test_days) * per_day)
    values = trace.values[:end]
    found: dict[str, Mapping[str, float]] = {}
    for name, weight in PEERS.items():
        quantiles = peer_quantiles(values, weight, lead, _WINDOW, first)
        known = ~np.isnan(values) & ~np.isnan(quantiles).any(-1)
        found[name] = scores(LEVELS, quantiles[known], values[known], unit, per_day)
    return found


def _all_forecasts(forecaster: OnlineForecaster, now_s: float) -> Mapping[str, Forecast]:
    made = forecaster.rivals(now_s)
    trusted = forecaster.forecast(now_s)
    return made if trusted is None else {**made, TRUSTED: trusted}


def _compare(
    out: Rolled,
    given: Mapping[int, Mapping[str, Forecast]],
    now: int,
    leads: tuple[int, ...],
    value: float,
    step_s: float,
) -> None:
    if np.isnan(value):
        return
    for lead in leads:
        for model, forecast in given.get(now - lead, {}).items():
            out.quantiles.setdefault((model, lead), []).append(forecast.at(lead * step_s))
            out.came.setdefault((model, lead), []).append(value)


def _timed_fit(series: Series, out: Rolled) -> Fit | None:
    started_s = time.process_time()
    made = fit(series)
    out.fit_cpu_s = time.process_time() - started_s
    return made


def _series(trace: LoadTrace, first: int, end: int) -> Series:
    return regular(trace.start_s + first * trace.step_s, trace.step_s, trace.values[first:end])
