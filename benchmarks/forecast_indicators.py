"""Indicators beside the load (tokens, CPU): does what they did last foretell what the load's own history does not?

The numpy core is fitted on each column's training days. Its errors on the load are then explained, by ridge regression
on the same days, from its own last errors, and from these and the indicators' last errors together; both are judged on
the days after.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Column, Table

from autoscaler.forecast.linear import Course, course, fit_linear
from autoscaler.series import regular
from benchmarks.arguments import refusing_bad_input, write_lines
from cluster.arrays import BoolArray, FloatArray
from simulator.scaling.traces import LoadTrace, read_trace, value_columns

_RIDGE = 0.01
_SMOOTHING = (1.0, 0.3, 0.05)
"""Weights of the newest error in what is known of a column's last errors."""


@click.command(context_settings={"show_default": True})
@click.option(
    "--trace", "paths", type=click.Path(path_type=Path), multiple=True, required=True, help="CSV; repeatable."
)
@click.option("--train-share", type=click.FloatRange(0.1, 0.9), default=0.5, help="Fraction of a trace that is fitted.")
@click.option("--steps", type=click.IntRange(1), default=2, help="Longest lead, steps of the trace.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(paths: Sequence[Path], train_share: float, steps: int, json_to: str | None) -> None:
    """Prints, per column and lead, the mean absolute error over that of the core alone.

    Columns whose names share their first word up to an underscore (`c1_load`, `c1_cpu`) belong to one service; where no
    two do, all of a file belong to one.
    """
    records = [record for path in paths for record in records_of(path, train_share, steps)]
    if json_to:
        write_lines(json_to, records)
    table = Table(Column("trace", overflow="fold"), "lead (min)", "own errors", "own errors and indicators", "points")
    for each in records:
        table.add_row(
            each["trace"], f"{each['lead_min']:g}", f"{each['own']:.4f}", f"{each['indicators']:.4f}", str(each["n"])
        )
    own, both = (np.exp(np.mean([np.log(each[name]) for each in records])) for name in ("own", "indicators"))
    table.caption = f"geometric mean: {own:.4f} from own errors, {both:.4f} with indicators"
    Console(stderr=bool(json_to)).print(table)


def records_of(path: Path, train_share: float, steps: int) -> Iterator[Mapping[str, Any]]:
    """A record per column and lead."""
    for columns in services_of(value_columns(path)):
        traces = {name: read_trace(path, name) for name in columns}
        fitted = {name: found for name, trace in traces.items() if (found := _course(trace, train_share)) is not None}
        for name in fitted:
            others = [fitted[other] for other in fitted if other != name]
            if others:
                yield from _records(traces[name], fitted[name], others, train_share, steps)


def services_of(columns: Sequence[str]) -> list[list[str]]:
    """Columns of each service."""
    by_service: dict[str, list[str]] = {}
    for name in columns:
        by_service.setdefault(name.partition("_")[0], []).append(name)
    return list(by_service.values()) if all(len(each) > 1 for each in by_service.values()) else [list(columns)]


def _course(trace: LoadTrace, train_share: float) -> Course | None:
    series = regular(trace.start_s, trace.step_s, trace.values)
    first = regular(trace.start_s, trace.step_s, trace.values[: round(train_share * len(trace.values))])
    fit = fit_linear(first)
    return None if fit is None else course(fit, series)


def _records(
    trace: LoadTrace, of_load: Course, others: Sequence[Course], train_share: float, steps: int
) -> Iterator[Mapping[str, Any]]:
    own = last_errors(of_load)
    both = np.concatenate([own, *(last_errors(other) for other in others)], axis=1)
    is_trained = np.arange(len(own)) < round(train_share * len(own))
    for n in range(min(steps, of_load.centre.shape[1])):
        lead = n + 1
        error = np.full(len(own), np.nan)
        error[:-lead] = (of_load.roots[lead:] - of_load.centre[:-lead, n]) / of_load.scale[:-lead, n]
        known = ~np.isnan(error) & ~np.isnan(both).any(1)
        tested = known & ~is_trained
        alone = float(np.abs(error[tested]).mean())
        left = {
            name: float(np.abs(error[tested] - _explained(columns, error, known & is_trained)[tested]).mean())
            for name, columns in (("own", own), ("indicators", both))
        }
        yield {
            "trace": trace.name,
            "lead_min": lead * trace.step_s / 60,
            "n": int(tested.sum()),
            **{name: value / alone for name, value in left.items()},
        }


def last_errors(past: Course) -> FloatArray:
    """Smoothed errors of one step that are known at each point, in units of their scale; shape (points, smoothings)."""
    error = np.full(len(past.roots), np.nan)
    error[1:] = (past.roots[1:] - past.centre[:-1, 0]) / past.scale[:-1, 0]
    found = np.zeros((len(error), len(_SMOOTHING)))
    state = np.zeros(len(_SMOOTHING))
    weights = np.array(_SMOOTHING)
    for row, value in enumerate(error):
        if not np.isnan(value):
            state = state + weights * (np.clip(value, -10.0, 10.0) - state)
        found[row] = state
    return found


def _explained(columns: FloatArray, target: FloatArray, rows: BoolArray) -> FloatArray:
    used = np.column_stack([np.ones(len(columns)), columns])
    gram = used[rows].T @ used[rows] + _RIDGE * rows.sum() * np.eye(used.shape[1])
    return np.asarray(used @ np.linalg.solve(gram, used[rows].T @ target[rows]))


if __name__ == "__main__":
    main()
