"""Replays of load traces under scaling policies: replica-hours, shortfall and direction changes beside foresight."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.scaling_ablation import ablated
from benchmarks.scaling_idle import idle_records, idle_table
from benchmarks.scaling_speed import decided_services
from simulator.scaling.replay import Leads, LoadScenario, scenario_of
from simulator.scaling.study import (
    CONTENDERS,
    NAMES,
    Record,
    check_policies,
    figure,
    forecasts_of,
    outlook_of,
    record_of,
    replayed,
    tuned_in_hindsight,
)
from simulator.scaling.traces import generated_trace, read_trace

BASELINE = "hpa"
SEED = 1
"""Seed of the generated loads."""
Ablation = tuple[str, float, str]


@click.command(context_settings={"show_default": True})
@click.option(
    "--trace",
    "traces",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Load over time, CSV; repeatable. [default: a generated one]",
)
@click.option("--lead", "leads", callback=arguments.fractions, default="2,5,10", help="Minutes from order to ready.")
@click.option("--lead-spread", type=click.FloatRange(0), default=0.0, help="Deviation of the logarithm of lead times.")
@click.option("--policy", "policies", callback=arguments.words, default=",".join(NAMES), help="Policies to replay.")
@click.option("--tuned", is_flag=True, help="Each policy with its best parameter in hindsight, too.")
@click.option("--ablate", is_flag=True, help="J of tonnage without each of its mechanisms instead.")
@click.option("--idle", is_flag=True, help="A service with idle nights, with and without scale to zero, instead.")
@click.option("--services", type=click.IntRange(1), help="CPU time of deciding this number of services instead.")
@click.option("--train-days", type=click.IntRange(1), default=7, help="Days before the replay.")
@click.option("--days", type=click.IntRange(1), default=7, help="Days of the replay.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    traces: tuple[Path, ...],
    leads: tuple[float, ...],
    lead_spread: float,
    policies: tuple[str, ...],
    tuned: bool,
    ablate: bool,
    idle: bool,
    services: int | None,
    train_days: int,
    days: int,
    json_to: str | None,
) -> None:
    """Replays each trace minute by minute under each policy and lead time. Simulated.

    The scale is 40 replicas at the 99.5th percentile of the training days. Replica-hours are billed from the order, and
    their ratio is to an oracle that knows the load. J = ratio + 99 × shortfall.
    """
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 150)
    if services is not None:
        _emit([record := decided_services(services)], json_to)
        console.print(record)
        return
    if idle:
        found = [*idle_records(SEED, leads, train_days, days)]
        console.print(idle_table(found))
        _emit(found, json_to)
        return
    check_policies(policies)
    scenarios = _scenarios(traces, train_days, days)
    all_leads = [_leads(lead, lead_spread) for lead in leads]
    if ablate:
        records = [record for scenario in scenarios for record in _told(ablated(scenario, all_leads))]
        console.print(ablation_table(records))
    else:
        records = [
            record for scenario in scenarios for record in _told(_runs(scenario, all_leads, policies, tuned=tuned))
        ]
        for table in (runs_table(records), summary_table(records)):
            console.print(table)
    _emit(records, json_to)


def _scenarios(traces: Sequence[Path], train_days: int, days: int) -> list[LoadScenario]:
    loads = [read_trace(path) for path in traces] or [generated_trace(SEED, train_days + days)]
    return [scenario_of(load, train_days, days) for load in loads]


def _leads(minutes: float, spread: float) -> Leads:
    return Leads.lognormal(60.0 * minutes, spread) if spread else Leads((60.0 * minutes,))


def _runs(
    scenario: LoadScenario, all_leads: Sequence[Leads], policies: Sequence[str], *, tuned: bool
) -> Iterator[Record]:
    """Records of one scenario: all leads and policies meet the same load and the same forecasts."""
    outlook = outlook_of(forecasts_of(scenario))
    for leads in all_leads:
        for name in policies:
            started_s = time.process_time()
            yield record_of(scenario, leads, replayed(scenario, name, leads, outlook)) | {
                "cpu_s": round(time.process_time() - started_s, 2)
            }
            if tuned and name in CONTENDERS:
                yield record_of(scenario, leads, tuned_in_hindsight(scenario, name, leads, outlook))


def _told(records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        click.echo(f"{record['trace']} lead {record['lead_min']} {record['policy']}: J {record['j']:.3f}", err=True)
        yield record


def _emit(records: Sequence[Record], json_to: str | None) -> None:
    if json_to:
        write_lines(json_to, records)


def runs_table(records: Sequence[Record]) -> Table:
    """Every run."""
    columns = ("trace", "lead", "policy", "ratio", "J", "violations %", "changes/day")
    table = Table(*columns, title="Replays beside perfect foresight (simulated)")
    for record in records:
        name = _label(record)
        table.add_row(
            str(record["trace"]),
            f"{record['lead_min']:g}",
            name,
            f"{record['gpu_hours_ratio']:.3f}",
            f"{record['j']:.3f}",
            f"{record['violation_minutes_pct']:.2f}",
            f"{record['direction_changes_per_day']:.0f}",
        )
    return table


def summary_table(records: Sequence[Record]) -> Table:
    """J of each policy over that of HPA at 70 %, over traces and leads."""
    table = Table("policy", "J / HPA, geometric mean", "highest", "mean ratio", title="Beside HPA at 70 %")
    baseline = {_case(record): figure(record, "j") for record in records if _label(record) == BASELINE}
    for name in dict.fromkeys(map(_label, records)):
        mine = [record for record in records if _label(record) == name and _case(record) in baseline]
        if mine:
            relative = np.array([figure(record, "j") / baseline[_case(record)] for record in mine])
            ratio = np.mean([figure(record, "gpu_hours_ratio") for record in mine])
            table.add_row(name, f"{np.exp(np.log(relative).mean()):.3f}", f"{relative.max():.3f}", f"{ratio:.3f}")
    return table


def ablation_table(records: Sequence[Record]) -> Table:
    """J without each mechanism, over J with all of them, percent more, by case."""
    cases = list(dict.fromkeys((str(record["trace"]), figure(record, "lead_min")) for record in records))
    table = Table(
        "without", *(f"{trace[:16]} {lead:g}" for trace, lead in cases), title="J without a mechanism, % more"
    )
    whole = {(*_case(record), str(record["leads"])): record for record in records if record["without"] == "nothing"}
    for name in dict.fromkeys(str(record["without"]) for record in records if record["without"] != "nothing"):
        cells = {_case(record): record for record in records if record["without"] == name}
        table.add_row(name, *(_more(cells.get(case), whole) for case in cases))
    return table


def _more(record: Record | None, whole: Mapping[Ablation, Record]) -> str:
    if record is None:
        return ""
    return f"{100 * (figure(record, 'j') / figure(whole[_ablation(record)], 'j') - 1):+.1f}"


def _ablation(record: Record) -> Ablation:
    """Case of an ablation; that of random lead times is another one."""
    return (*_case(record), str(record["leads"]))


def _label(record: Record) -> str:
    return str(record["policy"]) + (" tuned" if record["tuned"] is not None else "")


def _case(record: Record) -> tuple[str, float]:
    return str(record["trace"]), figure(record, "lead_min")


if __name__ == "__main__":
    main()
