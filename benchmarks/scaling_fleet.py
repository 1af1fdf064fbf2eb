"""Dollars per request within the SLO on a mixed fleet: `python -m benchmarks.scaling_fleet --help`."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.profiles import ProfileSet, read_profiles
from benchmarks.roofline import roofline_profiles
from cluster.autoscaling import ScalingObjective
from cluster.demand import Demand, ThroughputProfile
from cluster.errors import ConfigError, Mistake
from cluster.workloads import GpuType, ModelService
from controller.snapshot.services import ReplicaUnit, replica_unit
from simulator.scaling.mixed_fleet import (
    MixAccount,
    MixCapacity,
    MixedService,
    MixRun,
    account_of,
    fleet_of,
)
from simulator.scaling.mixed_policies import (
    HPA_TARGET,
    fixed_run,
    foresight,
    hpa,
    operator_run,
    run_of,
    single_type,
    static_mix,
)
from simulator.scaling.replay import PEAK_REPLICAS, LoadScenario, scenario_of
from simulator.scaling.study import figure, forecasts_of, foreseen, outlook_of
from simulator.scaling.traces import LoadTrace, generated_trace, read_trace

TRAIN_DAYS = 7
SEED = 1
"""Seed of the generated trace."""
MODEL = "m"
SINGLE = "hpa-single"
NAMES = ("tonnage", SINGLE, "hpa-static-mix", "fixed-mix", "foresight")
"""tonnage: the operator. hpa-single: HPA at 70 % on the cheapest type that meets the SLO alone. hpa-static-mix: HPA at
70 % on multiples of the mix for the peak. fixed-mix: the mix for the highest load of the training days. foresight: a
bound that none may reach."""
MORE = ("tonnage-foreseen", "foresight-whole")
"""What lies between the operator and the bound: the operator with forecasts that know the load, and the bound in whole
instances."""
Record = dict[str, object]


@click.command(context_settings={"show_default": True})
@click.option("--trace", type=click.Path(path_type=Path), help="Load over time, CSV. [default: a generated one]")
@click.option("--profiles", type=click.Path(path_type=Path), help="Profile file. [default: a roofline of four types]")
@click.option("--workload", default="mixed", help="Request lengths, by their name in the profiles.")
@click.option("--slo", default="120ms", help="Time per output token, by its name in the profiles.")
@click.option("--stock", default=24, type=click.IntRange(1), help="Nodes of one GPU of each type.")
@click.option("--lead", default=5.0, type=click.FloatRange(0, min_open=True), help="Minutes from order to ready.")
@click.option("--days", type=click.FloatRange(0, min_open=True), default=7, help="Days of the replay.")
@click.option("--miss-cost", type=click.FloatRange(0), help="missCost of the operator's policy. [default: its kind's]")
@click.option("--down-window", type=click.FloatRange(0), help="Down stabilization of the operator's policy, seconds.")
@click.option(
    "--target", default=HPA_TARGET, type=click.FloatRange(0, 1, min_open=True), help="Utilization the HPAs aim at."
)
@click.option(
    "--headroom", type=click.FloatRange(0, 1, max_open=True), help="Fraction kept free. [default: for bursts]"
)
@click.option(
    "--policy",
    "policies",
    callback=arguments.words,
    default=",".join(NAMES),
    help=f"Policies to replay; {' and '.join(MORE)} tell where dollars go.",
)
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    trace: Path | None,
    profiles: Path | None,
    workload: str,
    slo: str,
    stock: int,
    lead: float,
    days: float,
    miss_cost: float | None,
    down_window: float | None,
    target: float,
    headroom: float | None,
    policies: tuple[str, ...],
    json_to: str | None,
) -> None:
    """Replays one service on four GPU types under the operator and under its rivals. Simulated.

    The load's scale is 40 replicas at the 99.5th percentile of the training days; a replica is an instance of the
    cheapest type for each request. Instances are billed from their order until they are stopped. A request counts if
    the ready instances serve its minute's rate within the SLO, with the headroom for bursts that the planner of mixes
    keeps, which is the same for all policies. Only the one type and the fixed mix have unlimited stock.
    """
    fleet = _fleet(read_profiles(profiles) if profiles else roofline_profiles(), workload, slo, stock, headroom)
    scenario = _scenario(
        read_trace(trace) if trace else generated_trace(SEED, TRAIN_DAYS + math.ceil(days)), fleet, days
    )
    about: Record = {
        "trace": scenario.trace, "workload": workload, "slo": slo, "stock": stock, "lead_min": lead, "days": days,
        "miss_cost": miss_cost, "down_window_s": down_window, "target": target,
        "headroom": "auto" if headroom is None else headroom,
        "simulated": True, "seed": None if trace else SEED, "date": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip
    if unknown := [name for name in policies if name not in (*NAMES, *MORE)]:
        raise ConfigError(Mistake(f"policy {unknown[0]}", "is not known", f"one of {', '.join((*NAMES, *MORE))}"))
    records: list[Record] = []
    for name, found, cpu_s in _accounts(scenario, fleet, 60.0 * lead, policies, _spec(miss_cost, down_window), target):
        records.append({**about, "policy": name, **_figures(found, _unit(fleet)), "cpu_s": cpu_s})
        click.echo(f"{name}: {found.per_million:.2f} $ per million requests within the SLO", err=True)
    baseline = next((figure(each, "dollars_per_million") for each in records if each["policy"] == SINGLE), math.nan)
    for record in records:
        record["ratio"] = round(figure(record, "dollars_per_million") / baseline, 4)
    Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 150).print(_table(records, about))
    if json_to:
        write_lines(json_to, records)


def _fleet(profiles: ProfileSet, workload: str, slo: str, stock: int, headroom: float | None = None) -> MixedService:
    for name, known in ((workload, profiles.workloads), (slo, profiles.tables)):
        if name not in known:
            raise ConfigError(Mistake(name, "is not in the profiles", f"one of {', '.join(known)}"))
    demand = Demand(1.0, profiles.grid, profiles.workloads[workload])
    service = ModelService("simulated/service", MODEL, demand, profiles.slos[slo], headroom)
    types = [GpuType(name, 0, price, inventory=stock) for name, price in profiles.prices.items()]
    tables = profiles.tables[slo]
    return fleet_of(
        service,
        types,
        [ThroughputProfile(MODEL, name, profiles.slos[slo], profiles.grid, tables[name]) for name in profiles.prices],
    )


def _scenario(trace: LoadTrace, fleet: MixedService, days: float) -> LoadScenario:
    """The replayed days in requests per second, at the scale of the benchmark."""
    in_replicas = scenario_of(trace, TRAIN_DAYS, math.ceil(days))
    unit = _unit(fleet)
    steps = round(days * trace.points_per_day)
    return LoadScenario(
        trace.name, in_replicas.step_s, in_replicas.start_s, unit.load * in_replicas.load[:steps],
        unit.load * in_replicas.trained, in_replicas.unit / unit.load,
    )  # fmt: skip


def _spec(miss_cost: float | None, down_window_s: float | None) -> dict[str, Any]:
    """Fields of the operator's policy that are no defaults."""
    spec: dict[str, Any] = {} if miss_cost is None else {"objective": {"missCost": miss_cost}}
    if down_window_s is not None:
        spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": round(down_window_s)}}
    return spec


def _unit(fleet: MixedService) -> ReplicaUnit:
    demand = fleet.service.demand
    unit = replica_unit(fleet.service, demand, fleet.fleet) if demand else None
    if not isinstance(unit, ReplicaUnit):
        raise ConfigError(Mistake("profiles", "no GPU type serves all request lengths within the SLO"))
    return unit


def _accounts(
    scenario: LoadScenario,
    fleet: MixedService,
    lead_s: float,
    policies: tuple[str, ...],
    spec: Mapping[str, Any],
    target: float,
) -> Iterator[tuple[str, MixAccount, float]]:
    """Account of each policy, and its CPU seconds. spec: fields of the operator's policy besides its defaults."""
    capacity, peak = MixCapacity(fleet), PEAK_REPLICAS * _unit(fleet).load
    gpu_type, one = single_type(fleet, peak)
    mix = ", ".join(f"{count} {name}" for name, count in zip(fleet.types, fleet.counts(peak), strict=True))
    click.echo(f"peak {peak:.1f} requests/s: {mix}; the one type is {gpu_type}", err=True)
    runs: dict[str, Callable[[], MixRun]] = {
        "tonnage": lambda: operator_run(scenario, fleet, outlook_of(forecasts_of(scenario)), lead_s, spec),
        "tonnage-foreseen": lambda: operator_run(scenario, fleet, foreseen(scenario), lead_s, spec),
        SINGLE: lambda: run_of(scenario, one, hpa(scenario, target), lead_s),
        "hpa-static-mix": lambda: run_of(scenario, static_mix(fleet, peak), hpa(scenario, target), lead_s),
        "fixed-mix": lambda: fixed_run(scenario, fleet.counts(float(np.nanmax(scenario.trained)), {})),
    }
    for name in policies:
        began_s = time.process_time()
        if name in runs:
            found = account_of(scenario, runs[name](), capacity)
        else:
            found = foresight(scenario, fleet, lead_s, whole=name == "foresight-whole")
        yield name, found, round(time.process_time() - began_s, 1)


def _figures(found: MixAccount, unit: ReplicaUnit) -> Record:
    """Figures of an account. `objective_per_million`: dollars with what each missed request costs, per million offered:
    as a multiple of the price of the capacity that would have served it, the default of ScalingPolicies."""
    missed = ScalingObjective().miss_cost * (found.requests - found.in_slo) * unit.price_per_hour / unit.load / 3600.0
    return {
        "dollars": round(found.dollars, 2),
        "requests_in_slo": round(found.in_slo),
        "dollars_per_million": round(found.per_million, 4),
        "objective_per_million": round(1e6 * (found.dollars + missed) / found.requests, 4),
        "missed_fraction": round(found.missed_fraction, 6),
        "violation_minutes": round(found.violation_minutes),
        "changes_per_day": round(found.changes_per_day, 1),
        "starts_per_day": round(found.starts_per_day, 1),
    }


def _table(records: list[Record], about: Record) -> Table:
    columns = [name for name in records[0] if name not in (*about, "policy", "cpu_s")]
    table = Table("policy", *columns, title="A service on four GPU types (simulated)")
    for record in records:
        table.add_row(str(record["policy"]), *(f"{record[name]:,}" for name in columns))
    return table


if __name__ == "__main__":
    main()
