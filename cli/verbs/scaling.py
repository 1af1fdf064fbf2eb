"""`tonnage scaling`: decisions of ScalingPolicies, and what a load would have cost."""

import asyncio
import json
import math
import time
import urllib.parse
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np

from cli.inputs.cluster import ClusterAccess, cluster_options, listed
from cli.inputs.options import output_choice, report_option, setting
from cli.inputs.runs import check_report, report_facts, save_report
from cli.printing.terminal import FAILED, VerbGroup
from cluster.arrays import column
from cluster.errors import ConfigError, Mistake
from controller.loops.autoscaler.prometheus import MOST_POINTS, PrometheusClient, Series, SourceError
from controller.settings import PrometheusSettings
from simulator.scaling.traces import DAY_S, LoadTrace

MISS_COST = "Cost of missed load, as a multiple of the price of the capacity that would have served it."
_MORE = click.FloatRange(0, min_open=True)


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--column", "value_column", metavar="NAME", help="Column with the load. [default: the second]")
@click.option("--prometheus", metavar="URL", help="Prometheus server to ask instead of a file.")
@click.option("--query", metavar="PROMQL", help="Query of the offered load, one series: sum(rate(...)).")
@setting("--step step_s", 60.0, "Step of the query.", click.FloatRange(1, 3600), "SECONDS")
@setting("--lead lead_min", 5.0, "Time from ordering a replica to its readiness.",
         click.FloatRange(0, 240, min_open=True), "MINUTES")  # fmt: skip
@setting("--policy policies", "tonnage,hpa,fixed,oracle", "Policies, the one that charts look at first.")
@click.option("--replica-load", type=_MORE, metavar="LOAD",
              help="Load of one replica, in the history's unit. [default: 40 replicas at the peak]")  # fmt: skip
@setting("--price price_per_hour", 1.0, "Price of one replica and hour.", _MORE, "DOLLARS")
@setting("--miss-cost", 120.0, MISS_COST, _MORE)
@setting("--train-days", 7, "Days before the replay; fewer where there are not as many.", click.IntRange(1))
@setting("--days", 7, "Days of the replay.", click.IntRange(1))
@report_option("Write a report with charts.")
@output_choice("table", "json")
def backtest(
    file: Path | None,
    value_column: str | None,
    prometheus: str | None,
    query: str | None,
    step_s: float,
    lead_min: float,
    policies: str,
    replica_load: float | None,
    price_per_hour: float,
    miss_cost: float,
    train_days: int,
    days: int,
    report: Path | None,
    output: str,
) -> None:
    """Replay a load history under each scaling policy, beside perfect foresight: HPA, a fixed peak, Tonnage.

    The first days train the forecast; the others are replayed step by step. FILE is a CSV with time in its first column
    (t_s, minute, timestamp or date) and the load in its second one. Offered load is arrivals, with what was queued or
    rejected; served load shows the limits of the past instead. Without a source, the load is a generated one.

    \b
    tonnage scaling backtest load.csv --lead 5 --replica-load 120 --price 2.5
    tonnage scaling backtest --prometheus http://prometheus:9090 \\
        --query 'sum(rate(vllm:request_success_total[5m]))' --report out/backtest.html
    """
    if (prometheus is None) != (query is None) or (file and prometheus):
        raise click.UsageError("give either FILE, or --prometheus and --query")
    from cli.printing.tables import table
    from cluster.autoscaling import ScalingObjective
    from simulator.scaling.replay import scenario_of
    from simulator.scaling.report import COLUMNS, as_html, rows_of
    from simulator.scaling.study import check_policies, compared
    from simulator.scaling.traces import generated_trace, read_trace

    names = tuple(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    check_policies(names)
    if not names:
        raise ConfigError(Mistake("--policy", "names no policy"))
    check_report(report)
    if file is not None:
        load = read_trace(file, value_column)
    elif prometheus is not None and query is not None:
        load = from_prometheus(prometheus, query, days=train_days + days, step_s=step_s)
    else:
        load = generated_trace(1, train_days + days)
    started_at, began_s = datetime.now(UTC), perf_counter()
    scenario = scenario_of(load, train_days, days, replica_load)
    result = compared(scenario, names, 60.0 * lead_min, ScalingObjective(price_per_hour, miss_cost))
    if output == "json":
        played = [
            {
                "policy": each.policy,
                **asdict(each.score),
                "j": each.score.j,
                "replica_dollars": result.dollars(each).replicas,
                "missed_dollars": result.dollars(each).missed,
            }
            for each in result.results
        ]
        record = {
            "record": 1,
            "simulated": True,
            "trace": result.scenario.trace,
            "lead_min": result.lead_s / 60.0,
            "replica_load": result.scenario.unit,
            "steps": len(result.scenario.load),
            "policies": played,
        }
        click.echo(json.dumps(record, indent=2))
    else:
        click.echo(table(tuple(name.upper() for name in COLUMNS), rows_of(result)), nl=False)
    if report is not None:
        save_report(report, as_html(result, report_facts(started_at, perf_counter() - began_s)))


@click.group(cls=VerbGroup)
def scaling() -> None:
    """Explain what autoscaling decides, and what a load history would have cost under each policy."""


@scaling.command(epilog="tonnage scaling explain chat")
@click.argument("name", metavar="NAME")
@output_choice("table", "json")
@cluster_options
@click.pass_context
def explain(ctx: click.Context, name: str, output: str, access: ClusterAccess) -> None:
    """Explain a ScalingPolicy's decision: load, forecast, lead time, limits, and the cost of one replica fewer."""
    from cli.printing.scaling_output import as_data, explanation, policies_of

    policies = policies_of(listed(access, "scalingpolicies"))
    found = next((each for each in policies if each.name == name.removeprefix("ScalingPolicy/")), None)
    if found is None:
        click.echo(f"there is no ScalingPolicy {name} in this namespace", err=True)
        ctx.exit(FAILED)
    lines = [json.dumps(as_data(found), indent=2)] if output == "json" else explanation(found, time.time())
    click.echo("\n".join(lines))


scaling.add_command(backtest)


LOOKBACK_S = 300.0
"""Age up to which a sample counts at a step: Prometheus' own default."""
Spans = Sequence[tuple[float, float]]
"""First and last instants of queries, each of at most MOST_POINTS steps."""
Ask = Callable[[str, str, Spans, float], Coroutine[Any, Any, list[tuple[Series, ...]]]]
"""(URL, query, spans, step) → series of each span. Raises SourceError."""


async def ask(url: str, query: str, spans: Spans, step_s: float) -> list[tuple[Series, ...]]:
    """Series of a query over each span, asked as the operator asks."""
    access = PrometheusSettings(timeout_s=60.0, most_bytes=64 * 2**20).model_copy(update={"url": url})
    client = PrometheusClient(access, time.monotonic)
    try:
        return [await client.over(query, "", first_s, last_s, step_s, LOOKBACK_S) for first_s, last_s in spans]
    finally:
        await client.close()


def from_prometheus(
    url: str, query: str, *, days: float, step_s: float, asks: Ask = ask, now_s: float | None = None
) -> LoadTrace:
    """The last days of a query's only series, at regular steps; NaN where Prometheus has no sample.

    Raises ConfigError for a server that does not answer, a query that it refuses, and any number of series but one.
    """
    end_s = math.floor((time.time() if now_s is None else now_s) / step_s) * step_s
    steps = round(days * DAY_S / step_s)
    start_s = end_s - (steps - 1) * step_s
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(Mistake(f"--prometheus {url}", "is no address", "http://prometheus:9090"))
    # Both ends of a span are included.
    firsts_s = (start_s + number * step_s for number in range(0, steps, MOST_POINTS))
    spans = [(first_s, min(first_s + (MOST_POINTS - 1) * step_s, end_s)) for first_s in firsts_s]
    try:
        found = [series for part in asyncio.run(asks(url, query, spans, step_s)) for series in part]
    except SourceError as error:
        raise ConfigError(Mistake(f"--prometheus {url}", str(error), "check the query in its own page")) from error
    if len({tuple(sorted(series.labels.items())) for series in found}) > 1:
        raise ConfigError(Mistake(f"--query {query}", "gives more than one series", "add them up: sum(...)"))
    values = np.full(steps, np.nan)
    for series in found:
        for at_s, value in series.points:
            values[round((at_s - start_s) / step_s)] = value if value >= 0 else math.nan  # no load is negative
    if not np.isfinite(values).any():
        problem, remedy = f"has no samples in the last {days:g} days", "check it in Prometheus' own page"
        raise ConfigError(Mistake(f"--query {query}", problem, remedy))
    return LoadTrace(query, step_s, start_s, column(values, np.float64))
