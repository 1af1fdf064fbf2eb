"""Results of placement simulations: a table for people, JSON for programs, an HTML report."""

import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from shutil import get_terminal_size

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from cli.inputs.sweeps import ContestResult
from cluster.arrays import FloatArray
from cluster.version import VERSION
from simulator.packing.policy_comparison import PolicySummary, Spread, summarise
from simulator.reports.sweep_report import (
    Circumstances,
    FigureColumn,
    Trace,
    columns_for,
    headline,
    number_in_words,
    render_report,
)

POINTS_PCT = (80, 90, 100, 110)
"""Arrived demand, % of the GPUs, at which JSON has figures, besides the end of the replay (130 % or just before)."""

PIPED_WIDTH = 160
"""Width of piped output, enough for all columns."""


def as_table(result: ContestResult) -> str:
    """One table per trace, each with a summary sentence."""
    page = io.StringIO()
    width = get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH
    console = Console(file=page, width=width, no_color=not sys.stdout.isatty(), highlight=False)
    for trace in _traces(result):
        mine = [s for s in summaries_of(result) if s.trace == trace.name]
        if not mine:
            continue
        console.print(f"{trace.name}: {trace.nodes:,} nodes, {trace.gpus:,} GPUs (simulated)", style="bold")
        console.print(widest_that_fits(mine, console))
        console.print("Allocated at 100 % arrived demand (% and $/h), stranded at 90 %; mean over seeds ± sd.")
        if trace.bound_pct is not None:
            console.print(f"No policy can allocate more than {trace.bound_pct:.2f} % at 100 % arrived (proven).")
        console.print(headline(trace, mine) + "\n")
    return page.getvalue()


def widest_that_fits(summaries: Sequence[PolicySummary], console: Console) -> Table:
    """Full table; on a narrow terminal without deviations, and if that is too wide only with the main columns."""
    columns = columns_for(summaries)
    tables = (
        _table(summaries, columns, with_sd=True),
        _table(summaries, columns, with_sd=False),
        _table(summaries, [column for column in columns if column.main], with_sd=False),
    )
    unbounded = console.options.update(width=10_000)  # with its own width a console never reports a larger maximum
    fitting = (t for t in tables if Measurement.get(console, unbounded, t).maximum <= console.width)
    return next(fitting, tables[-1])


def _table(summaries: Sequence[PolicySummary], columns: Sequence[FigureColumn], *, with_sd: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="none")
    table.add_column("policy", no_wrap=True)
    table.add_column("seeds", justify="right", no_wrap=True)
    for column in columns:
        table.add_column(column.short, justify="right", no_wrap=True)
    for summary in summaries:
        cells = []
        for column in columns:
            spread = Spread.of(column.values(summary))
            deviation = f" ± {number_in_words(spread.sd, column.digits)}"
            shown = deviation if with_sd and math.isfinite(spread.sd) else ""
            cells.append(number_in_words(spread.mean, column.digits) + shown)
        table.add_row(summary.policy, str(len(summary.seeds)), *cells)
    return table


def as_json(result: ContestResult) -> str:
    """Stable JSON. For the same input and seed only `decision_ms` and `upkeep_s` differ between runs.

    Undefined figures are null: a deviation over one seed, dollars without prices.
    """
    record = {
        "record": 1,
        "simulated": True,
        "stopped": result.swept.stopped or None,
        "prices_per_hour": dict(result.contest.prices),
        "rules": asdict(result.contest.rules),
        "traces": [
            {
                **{name: getattr(trace, name) for name in ("name", "nodes", "gpus", "pods")},
                "allocation_bound_pct": None if trace.bound_pct is None else {"100": round(trace.bound_pct, 6)},
            }
            for trace in _traces(result)
        ],
        "policies": [_policy_record(summary) for summary in summaries_of(result)],
        "missing": [{"trace": r.trace, "policy": r.policy, "seed": r.seed} for r in result.swept.missing],
    }
    return json.dumps(record, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _policy_record(summary: PolicySummary) -> Mapping[str, object]:
    def at_points(rows: FloatArray) -> Mapping[str, object]:
        reached = [point for point in POINTS_PCT if point <= summary.arrived_pct[-1]]
        points = {str(point): _spread_record(summary.at(rows, point)) for point in reached}
        return {**points, "end": _spread_record(rows[:, -1])}

    return {
        "trace": summary.trace,
        "policy": summary.policy,
        "seeds": list(summary.seeds),
        "allocation_pct": at_points(summary.allocation_pct),
        "fragmentation_pct": at_points(summary.fragmentation_pct),
        "stranded_pct": at_points(summary.stranded_pct),
        "allocated_dollars_per_hour": at_points(summary.allocated_per_hour),
        "stranded_dollars_per_hour": at_points(summary.stranded_per_hour),
        "decision_ms": {
            "mean": _spread_record(summary.decision_mean_ms),
            "p50": _spread_record(summary.quantile_ms(0.5)),
            "p99": _spread_record(summary.quantile_ms(0.99)),
        },
        "unplaced": {reason: _spread_record(counts) for reason, counts in summary.unplaced.items()},
        "upkeep_s": _spread_record(summary.upkeep_s),
        "moved": _spread_record(summary.moved.astype(np.float64)),
    }


def _spread_record(values: FloatArray) -> Mapping[str, float | None]:
    spread = Spread.of(values)
    return {name: round(v, 6) if math.isfinite(v) else None for name, v in (("mean", spread.mean), ("sd", spread.sd))}


def as_html(result: ContestResult, *, command: str, machine: str) -> str:
    """HTML report (simulator/reports/sweep_report.py)."""
    rules = result.contest.rules
    renamed = ("node names are shuffled",) if rules.rename_nodes else ()
    moves = (f"at most {rules.move_share:.1%} of the pods move to make room for others",) if rules.move_share else ()
    about = Circumstances(
        command=command,
        started_at=f"{result.started_at:%Y-%m-%d %H:%M} UTC",
        wall_s=result.wall_s,
        machine=machine,
        version=VERSION,
        rules=(renamed + moves),
        prices=result.contest.prices,
        prices_source=result.contest.prices_source,
        stopped=result.swept.stopped,
    )
    return render_report(summaries_of(result), _traces(result), about)


def summaries_of(result: ContestResult) -> tuple[PolicySummary, ...]:
    return summarise(result.swept.done, priced=any(result.contest.prices.values()))


def _traces(result: ContestResult) -> list[Trace]:
    return [
        Trace(
            name=name,
            nodes=len(trace.nodes),
            gpus=int(trace.nodes.gpus.sum()),
            pods=len(trace.pods),
            source=result.contest.sources[name],
            bound_pct=result.bound_pct.get(name),
        )
        for name, trace in result.contest.traces.items()
    ]
