"""Results of placement simulations: a table for people, JSON for programs, an HTML report."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size

from cli.inputs.runs import report_facts
from cli.inputs.sweeps import ContestResult
from cli.printing.tables import GAP, PIPE_WIDTH, fitted, table
from cluster.arrays import FloatArray
from simulator.packing.policy_comparison import PolicySummary, Spread, summarise
from simulator.reports import sweep_report

POINTS_PCT = (80, 90, 100, 110)
"""Arrived demand, % of the GPUs, at which JSON has figures, besides the end of the replay (130 % or just before)."""


def as_table(result: ContestResult) -> str:
    """One table per trace, each with a summary sentence."""
    width = get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    lines = []
    for trace in _traces(result):
        mine = [s for s in summaries_of(result) if s.trace == trace.name]
        if not mine:
            continue
        lines.append(f"{trace.name}: {trace.nodes:,} nodes, {trace.gpus:,} GPUs (simulated)")
        lines.append(widest_that_fits(mine, width).rstrip("\n"))
        lines.append("Allocated at 100 % arrived demand (% and $/h), stranded at 90 %; mean over seeds ± sd.")
        if trace.bound_pct is not None:
            lines.append(f"No policy can allocate more than {trace.bound_pct:.2f} % at 100 % arrived (proven).")
        lines += [sweep_report.headline(trace, mine), ""]
    return "".join(f"{line}\n" for line in lines)


def widest_that_fits(summaries: Sequence[PolicySummary], width: int) -> str:
    """Full table; on a narrow terminal without deviations, and if that is too wide only with the main columns."""
    whole = sweep_report.columns_for(summaries)
    text = ""
    for columns, with_sd in ((whole, True), (whole, False), ([column for column in whole if column.main], False)):
        headers = ("policy", "seeds", *(column.short for column in columns))
        rows = [
            (each.policy, str(len(each.seeds)), *(_cell(column, each, with_sd=with_sd) for column in columns))
            for each in summaries
        ]
        text = table(headers, rows, numeric=True)
        if sum(fitted(headers, rows, PIPE_WIDTH)) + GAP * len(columns) + GAP <= width:
            break
    return text


def _cell(column: sweep_report.FigureColumn, summary: PolicySummary, *, with_sd: bool) -> str:
    spread = Spread.of(column.values(summary))
    deviation = f" ± {sweep_report.number_in_words(spread.sd, column.digits)}"
    shown = deviation if with_sd and math.isfinite(spread.sd) else ""
    return sweep_report.number_in_words(spread.mean, column.digits) + shown


def as_json(result: ContestResult) -> str:
    """Stable JSON. For the same input and seed only `decision_ms` and `upkeep_s` differ between runs.

    Undefined figures are null: a deviation over one seed, dollars without prices.
    """
    record = {
        "record": 1,
        "simulated": True,
        "stopped": result.swept.stopped or None,
        "prices_per_hour": dict(result.contest.prices),
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
    }


def _spread_record(values: FloatArray) -> Mapping[str, float | None]:
    spread = Spread.of(values)
    return {name: round(v, 6) if math.isfinite(v) else None for name, v in (("mean", spread.mean), ("sd", spread.sd))}


def as_html(result: ContestResult) -> str:
    """HTML report (simulator/reports/sweep_report.py)."""
    contest = result.contest
    facts = [("seeds", ", ".join(map(str, sorted({run.seed for run, _ in result.swept.done}))))]
    if contest.prices:
        prices = ", ".join(f"{name} ${price:.2f}" for name, price in contest.prices.items())
        facts.append(("prices", f"{prices} per GPU and hour ({contest.prices_source})"))
    about = report_facts(result.started_at, result.wall_s, *facts)
    return sweep_report.render_report(summaries_of(result), _traces(result), about, result.swept.stopped)


def summaries_of(result: ContestResult) -> tuple[PolicySummary, ...]:
    return summarise(result.swept.done, priced=any(result.contest.prices.values()))


def _traces(result: ContestResult) -> list[sweep_report.Trace]:
    return [
        sweep_report.Trace(
            name=name,
            nodes=len(trace.nodes),
            gpus=int(trace.nodes.gpus.sum()),
            pods=len(trace.pods),
            source=result.contest.sources[name],
            bound_pct=result.bound_pct.get(name),
        )
        for name, trace in result.contest.traces.items()
    ]
