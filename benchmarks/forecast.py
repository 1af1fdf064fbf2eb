"""Forecasts of load: quality on traces, and in the setting of HARMONY."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from autoscaler.forecast import fits, grid, online
from autoscaler.series import regular
from benchmarks.cases import DATA, Row, Rows, case
from benchmarks.tables import grouped
from cluster.arrays import FloatArray
from cluster.demand import Forecast
from simulator.scaling.traces import LoadTrace, generated_trace, read_trace, value_columns
from tests.rigs.scaling.forecast_scores import PEERS, peer_quantiles, scores, taken_out

_WINDOW = 1440
"""Last errors that make a peer's distribution: a day at a minute, as many as a model's."""
TRUSTED = "auto"
"""The model that is trusted at each instant and lead: what the autoscaler uses."""
DEMAND = DATA / "demand"


def _summary(rows: Sequence[Row]) -> Rows:
    """Geometric mean of the ratios over traces and leads, and the range of coverage, by model."""
    for (model,), own in grouped(rows, "model").items():
        ratios = np.array([row["ratio"] for row in own])
        line: Row = {"model": model, "crps ratio": float(np.exp(np.log(ratios).mean())), "largest": ratios.max()}
        line["pinball 99 ratio"] = float(np.exp(np.log([row["ratio_99"] for row in own]).mean()))
        for name in ("coverage_90", "coverage_99"):
            found = [row[name] for row in own]
            line[name] = f"{min(found):.3f} to {max(found):.3f}"
        yield line


@case(
    "forecast",
    "CRPS, pinball loss and coverage of our forecasts beside naive and EWMA, on six traces.",
    quick={"traces": (), "train_days": 2.0, "test_days": 0.1, "leads": (1.0, 5.0)},
    summary=_summary,
)
def forecast(
    *,
    traces: Sequence[Path] = tuple(
        DEMAND / f"{name}.csv"
        for name in (
            "nasa_http_1995_july_60s",
            *(f"servegen_{name}_60s_resampled" for name in ("m-large", "m-small", "m-mid_week1")),
            "nab_elb_request_count_300s",
            "nab_nyc_taxi_1800s",
        )
    ),
    leads: Sequence[float] = (1.0, 2.0, 5.0, 10.0),
    without: str = "",
    start_day: int = 0,
    train_days: float = 7.0,
    test_days: float = 7.0,
    refit_hours: float = 0.0,
    seeds: Sequence[int] = (1,),
) -> Iterator[Row]:
    """A row for each trace, lead and model; without traces one is generated for each seed. Leads are minutes.

    Fitted on the first days of each trace; then each point of the next ones is forecast from what came before it. All
    models see the same samples. A trace that is shorter is split in the same proportion. Losses are in units of the
    trace's mean; `ratio` is the CRPS over that of the better peer: naive or EWMA with the quantiles of its last errors.
    Our own `naive` and `ewma` are those two with our calibration. without: a mechanism that is taken out.
    """
    with taken_out(without or None):
        for trace in [read_trace(path).days(start_day, 10_000) for path in traces] or map(generated_trace, seeds):
            days = len(trace.values) / trace.points_per_day
            train, test = train_days, test_days
            if days < train_days + test_days:
                # A week is split into five days and two (ServeGen m-mid).
                train = 5.0 if 7.0 <= days < 8.0 else days * train_days / (train_days + test_days)
                test = days - train
            # A coarse trace is forecast by its first two steps in place of shorter leads.
            steps = {round(lead * 60 / trace.step_s) for lead in leads if lead * 60 >= trace.step_s} or {1, 2}
            first, end = (round(each * trace.points_per_day) for each in (train, train + test))
            yield from forecast_rows(trace, first, end, sorted(steps), refit_hours)


def forecast_rows(
    trace: LoadTrace,
    first: int,
    end: int,
    leads: Sequence[int],
    refit_hours: float = 0.0,
    *,
    judged_from: int = 0,
    unit: float | None = None,
    window: int = _WINDOW,
) -> Iterator[Row]:
    """A row for each lead and model: points before `first` are fitted, those up to `end` forecast.

    leads: in steps. judged_from: first point that is judged. unit: of the losses; None: the trace's mean. window: last
    errors of a peer.
    """
    values, per_day = trace.values[:end], trace.points_per_day
    unit = float(np.nanmean(values)) if unit is None else unit
    quantiles, came, cost = _rolled(trace, first, end, leads, refit_hours, judged_from)
    for lead in leads:
        by_model = {
            model: scores(grid.LEVELS, np.array(rows), np.array(came[model, at]), unit, per_day)
            for (model, at), rows in quantiles.items()
            if at == lead
        }
        for name, weight in PEERS.items():
            rows = peer_quantiles(values, weight, lead, window, max(first + lead, judged_from))
            known = ~np.isnan(values) & ~np.isnan(rows).any(-1)
            by_model[name] = scores(grid.LEVELS, rows[known], values[known], unit, per_day)
        best = {name: min(by_model[peer][name] for peer in PEERS) for name in ("crps", "pinball_99")}
        for model, found in by_model.items():
            yield {
                "trace": trace.name,
                "lead_min": lead * trace.step_s / 60,
                "model": model,
                **found,
                **cost,
                "ratio": found["crps"] / best["crps"],
                "ratio_99": found["pinball_99"] / best["pinball_99"],
            }


def _rolled(
    trace: LoadTrace, first: int, end: int, leads: Sequence[int], refit_hours: float, judged_from: int
) -> tuple[dict[tuple[str, int], list[FloatArray]], dict[tuple[str, int], list[float]], Row]:
    """Quantiles of each model and what came, by lead, at each point from `first`, and the CPU time of fit and point."""
    quantiles: dict[tuple[str, int], list[FloatArray]] = {}
    came: dict[tuple[str, int], list[float]] = {}
    history = regular(trace.start_s, trace.step_s, trace.values[:first])
    began_s = time.process_time()
    forecaster = online.OnlineForecaster.of(history, fits.fit(history))
    fit_cpu_s = time.process_time() - began_s
    refit_every = round(refit_hours * 3600 / trace.step_s)
    given: dict[int, Mapping[str, Forecast]] = {}
    began_s = time.process_time()
    for now in range(first, end):
        value, at_s = float(trace.values[now]), trace.start_s + now * trace.step_s
        if refit_every and now > first and (now - first) % refit_every == 0:
            forecaster.adopt(fits.fit(forecaster.history.whole()))
        forecaster.observe(at_s, value)
        if not np.isnan(value):
            for lead in leads if now >= judged_from else ():
                for model, stated in given.get(now - lead, {}).items():
                    quantiles.setdefault((model, lead), []).append(stated.at(lead * trace.step_s))
                    came.setdefault((model, lead), []).append(value)
            made, trusted = forecaster.rivals(at_s), forecaster.forecast(at_s)
            given[now] = made if trusted is None else {**made, TRUSTED: trusted}
        given.pop(now - max(leads) - 1, None)
    observe_cpu_ms = 1e3 * (time.process_time() - began_s) / max(1, end - first)
    return quantiles, came, {"fit_cpu_s": fit_cpu_s, "observe_cpu_ms": observe_cpu_ms}


@case(
    "forecast-fisher",
    "The same in the setting of HARMONY (arXiv 2408.01000).",
    quick={"trace": None},
    summary=_summary,
)
def forecast_fisher(*, trace: Path | None = DEMAND / "fisher_5containers_600s.csv") -> Iterator[Row]:
    """A row for each indicator and model; losses on values scaled to 0..1 over the training part."""
    for each in [read_trace(trace, name) for name in value_columns(trace)] if trace else [generated_trace(1, 4, 600.0)]:
        count = len(each.values)
        trained = round(0.7 * count)
        span = float(np.nanmax(each.values[:trained]) - np.nanmin(each.values[:trained])) or 1.0
        yield from forecast_rows(each, trained, count, (1,), judged_from=round(0.8 * count), unit=span, window=1000)
