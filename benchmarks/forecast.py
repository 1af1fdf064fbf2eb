"""Forecast quality on load traces: CRPS, pinball loss and coverage of every model, beside naive and EWMA."""

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.forecast_fisher import fisher_records
from benchmarks.forecast_runs import Record, Span, lead_steps_of, records_of
from benchmarks.forecast_without import MECHANISMS, taken_out
from simulator.scaling.traces import LoadTrace, generated_trace, read_trace


@click.command(context_settings={"show_default": True})
@click.option(
    "--trace", "paths", type=click.Path(path_type=Path), multiple=True, help="Load trace, CSV; repeatable. [generated]"
)
@click.option("--column", default=None, help="Column of the traces that is forecast; the second without it.")
@click.option("--lead", "leads", callback=arguments.fractions, default="1,2,5,10", help="Leads, minutes.")
@click.option("--model", "models", callback=arguments.words, default="", help="Models that are shown; all without it.")
@click.option("--start-day", type=click.IntRange(0), default=0, help="First day of the traces that is used.")
@click.option("--without", default=None, type=click.Choice(tuple(MECHANISMS)), help="Mechanism that is taken out.")
@click.option("--train-days", type=click.FloatRange(0, min_open=True), default=7.0, help="Days that are fitted.")
@click.option("--test-days", type=click.FloatRange(0, min_open=True), default=7.0, help="Days that are forecast.")
@click.option("--refit-hours", type=click.FloatRange(0), default=0.0, help="Hours between fits; 0: one fit.")
@click.option("--seed", type=int, default=1, help="Seed of the generated trace.")
@click.option("--fisher", type=click.Path(path_type=Path), default=None, help="Run HARMONY's split on this file.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    paths: tuple[Path, ...],
    column: str | None,
    leads: tuple[float, ...],
    models: tuple[str, ...],
    start_day: int,
    without: str | None,
    train_days: float,
    test_days: float,
    refit_hours: float,
    seed: int,
    fisher: Path | None,
    json_to: str | None,
) -> None:
    """Fits on the first days of each trace, then forecasts each point of the next ones from what came before it.

    All models see the same samples in the same run. A trace that is shorter is split in the same proportion.
    Losses are in units of the trace's mean; `ratio` is the CRPS over that of the better peer: naive or EWMA
    with the quantiles of its last errors. Our own `naive` and `ewma` are those two with our calibration.
    """
    span = Span(train_days, test_days, refit_hours)
    with taken_out(without):
        if fisher is not None:
            found = list(fisher_records(fisher))
        else:
            traces = [read_trace(path, column).days(start_day, 10_000) for path in paths] or [generated_trace(seed)]
            found = [
                record
                for trace in traces
                for record in records_of(trace, span_of(trace, span), lead_steps_of(trace, leads))
            ]
    records = [{**record, "without": without or ""} for record in found if not models or record["model"] in models]
    if json_to:
        write_lines(json_to, records)
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 150)
    console.print(table_of(records))
    console.print(summary_of(records))


def span_of(trace: LoadTrace, span: Span) -> Span:
    """The span, in the same proportion where the trace is shorter, in whole days if there are any."""
    days = len(trace.values) / trace.points_per_day
    if days >= span.train_days + span.test_days:
        return span
    train = days * span.train_days / (span.train_days + span.test_days)
    train = 5.0 if 7.0 <= days < 8.0 else train  # a week: five days and two (ServeGen m-mid)
    return Span(train, days - train, span.refit_hours)


def table_of(records: Iterable[Record]) -> Table:
    columns = ("crps", "ratio", "pinball_50", "pinball_90", "pinball_99", "coverage_90", "coverage_99", "n")
    table = Table("trace", "lead (min)", "model", *columns)
    for record in records:
        shown = [f"{record[name]:.4f}" if name != "n" else str(record[name]) for name in columns]
        table.add_row(record["trace"], f"{record['lead_min']:g}", record["model"], *shown)
    return table


def summary_of(records: Iterable[Record]) -> Table:
    """Geometric mean of the ratio over traces and leads, and the range of coverage, by model."""
    by_model: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_model[record["model"]].append(record)
    table = Table("model", "CRPS ratio, geometric mean", "largest", "pinball 99 ratio", "coverage 90", "coverage 99")
    for model, found in by_model.items():
        ratios = np.array([record["ratio"] for record in found])
        spans = [[record[name] for record in found] for name in ("coverage_90", "coverage_99")]
        table.add_row(
            model,
            f"{np.exp(np.log(ratios).mean()):.4f}",
            f"{ratios.max():.4f}",
            f"{np.exp(np.log([record['ratio_99'] for record in found]).mean()):.4f}",
            *(f"{min(span):.3f} to {max(span):.3f}" for span in spans),
        )
    return table


if __name__ == "__main__":
    main()
