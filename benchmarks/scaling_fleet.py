"""Dollars per request within the SLO of one service on four GPU types, under the operator and its rivals. Simulated."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import DATA, Row, case, say
from benchmarks.mix import PROFILES
from cluster.demand import Demand, ThroughputProfile
from cluster.errors import ConfigError, Mistake
from cluster.workloads import GpuType, ModelService
from controller.snapshot.services import ReplicaUnit, replica_unit
from simulator.scaling.replay import MISS_COST, PEAK_REPLICAS, LoadScenario, scenario_of
from simulator.scaling.study import forecasts_of, outlook_of
from simulator.scaling.traces import generated_trace, read_trace
from tests.rigs.scaling import mixed_policies
from tests.rigs.scaling.mixed_fleet import MixCapacity, MixedService, MixRun, account_of, fleet_of
from tests.rigs.serving_profiles import ProfileSet, read_profiles, roofline_profiles

MODEL = "m"
SINGLE = "hpa-single"


NAMES = ("tonnage", SINGLE, "hpa-static-mix", "fixed-mix", "foresight")
"""tonnage: the operator. hpa-single: HPA at 70 % on the cheapest type that meets the SLO alone. hpa-static-mix: HPA at
70 % on multiples of the mix for the peak. fixed-mix: the mix for the highest load of the training days. foresight: a
bound that none may reach."""


@case(
    "scaling-fleet",
    "Dollars per request within the SLO on four GPU types, beside HPAs and perfect foresight (simulated).",
    quick={"trace": None, "profiles": None, "days": 0.02, "policies": (SINGLE, "fixed-mix")},
)
def scaling_fleet(
    *,
    trace: Path | None = DATA / "demand" / "servegen_m-large_60s_resampled.csv",
    profiles: Path | None = PROFILES,
    workload: str = "mixed",
    slo: str = "120ms",
    stock: int = 24,
    lead_min: float = 5.0,
    days: float = 7.0,
    miss_cost: float | None = None,
    missed: float | None = None,
    policies: Sequence[str] = NAMES,
) -> Iterator[Row]:
    """A row for each policy.

    The load's scale is 40 replicas at the 99.5th percentile of seven training days; a replica is an instance of the
    cheapest type for each request. Instances are billed from their order until they are stopped. A request counts if
    the ready instances serve its minute's rate within the SLO, with the headroom for bursts that the planner of mixes
    keeps, which is the same for all policies. Only the one type and the fixed mix have unlimited stock. miss_cost,
    missed: objective of the operator's policy; null: its kind's.
    """
    said = read_profiles(profiles) if profiles else roofline_profiles()
    fleet = _fleet(said, workload, slo, stock)
    unit, whole_days = _unit(fleet), math.ceil(days)
    load = read_trace(trace) if trace else generated_trace(1, 7 + whole_days)
    in_replicas = scenario_of(load, 7, whole_days)
    scenario = LoadScenario(
        *(load.name, in_replicas.step_s, in_replicas.start_s),
        unit.load * in_replicas.load[: round(days * load.points_per_day)],
        *(unit.load * in_replicas.trained, in_replicas.unit / unit.load),
    )
    objective = {"missCost": miss_cost, "missed": missed}
    spec: dict[str, Any] = {"objective": {name: value for name, value in objective.items() if value is not None}}
    lead_s, peak = 60.0 * lead_min, PEAK_REPLICAS * unit.load
    gpu_type, one = mixed_policies.single_type(fleet, peak)
    mix = ", ".join(f"{count} {name}" for name, count in zip(fleet.types, fleet.counts(peak), strict=True))
    say(f"peak {peak:.1f} requests/s: {mix}; the one type is {gpu_type}")
    runs: dict[str, Callable[[], MixRun]] = {
        "tonnage": lambda: mixed_policies.operator_run(
            scenario, fleet, outlook_of(forecasts_of(scenario)), lead_s, spec
        ),
        SINGLE: lambda: mixed_policies.run_of(scenario, one, mixed_policies.hpa(scenario), lead_s),
        "hpa-static-mix": lambda: mixed_policies.run_of(
            scenario,
            mixed_policies.static_mix(fleet, peak),
            mixed_policies.hpa(scenario),
            lead_s,
        ),
        "fixed-mix": lambda: mixed_policies.fixed_run(scenario, fleet.counts(float(np.nanmax(scenario.trained)), {})),
    }
    for name in policies:
        began_s = time.process_time()
        if name in runs:
            found = account_of(scenario, runs[name](), MixCapacity(fleet))
        elif name == "foresight":
            found = mixed_policies.foresight(scenario, fleet, lead_s)
        else:
            raise ConfigError(Mistake(f"policy {name}", "is not known", f"one of {', '.join((*runs, 'foresight'))}"))
        # What each missed request costs, as a multiple of the price of the capacity that would have served it.
        missed = MISS_COST * (found.requests - found.in_slo) * unit.price_per_hour / unit.load / 3600.0
        yield {
            "policy": name,
            "dollars": round(found.dollars, 2),
            "requests_in_slo": round(found.in_slo),
            "dollars_per_million": round(found.per_million, 4),
            "objective_per_million": round(1e6 * (found.dollars + missed) / found.requests, 4),
            "missed_fraction": round(found.missed_fraction, 6),
            "violation_minutes": round(found.violation_minutes),
            "changes_per_day": round(found.changes_per_day, 1),
            "starts_per_day": round(found.starts_per_day, 1),
            "cpu_s": round(time.process_time() - began_s, 1),
        }


def _fleet(profiles: ProfileSet, workload: str, slo: str, stock: int) -> MixedService:
    """The service on so many nodes of one GPU of each type."""
    for name, known in ((workload, profiles.workloads), (slo, profiles.tables)):
        if name not in known:
            raise ConfigError(Mistake(name, "is not in the profiles", f"one of {', '.join(known)}"))
    demand = Demand(1.0, profiles.grid, profiles.workloads[workload])
    service = ModelService("simulated/service", MODEL, demand, profiles.slos[slo])
    types = [GpuType(name, 0, price, inventory=stock) for name, price in profiles.prices.items()]
    tables = profiles.tables[slo].items()
    made = [ThroughputProfile(MODEL, name, profiles.slos[slo], profiles.grid, table) for name, table in tables]
    return fleet_of(service, types, made)


def _unit(fleet: MixedService) -> ReplicaUnit:
    demand = fleet.service.demand
    unit = replica_unit(fleet.service, demand, fleet.fleet) if demand else None
    if not isinstance(unit, ReplicaUnit):
        raise ConfigError(Mistake("profiles", "no GPU type serves all request lengths within the SLO"))
    return unit
