"""Scale to zero: a service with idle nights under the decision with and without it, and under an idle timer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.table import Table

from simulator.scaling.replay import (
    MISS_COST,
    Leads,
    LoadScenario,
    Policy,
    ReplayRun,
    ReplaySettings,
    missed_load,
    replay,
    scenario_of,
)
from simulator.scaling.rival_rules import IdleTimer, oracle_replicas
from simulator.scaling.study import Record, TonnageScaling, forecasts_of, outlook_of
from simulator.scaling.traces import NIGHTS, idle_trace

BESIDE = "at least one"


@dataclass(frozen=True, slots=True)
class _Way:
    """Policy, with the fewest replicas that it may keep."""

    policy: Policy
    fewest: int


def _ways() -> Mapping[str, _Way]:
    """By name; made for each replay, since the timer remembers."""
    return {"tonnage": _Way(TonnageScaling(), 0), BESIDE: _Way(TonnageScaling(), 1), "idle timer": _Way(IdleTimer(), 0)}


def idle_records(seed: int, leads_min: tuple[float, ...], train_days: int, days: int) -> Iterator[Record]:
    """Replica-hours a day, load missed, and their cost, by kind of night, lead time and policy. Simulated."""
    for nights in NIGHTS:
        scenario = scenario_of(idle_trace(nights, seed, train_days + days), train_days, days, replica_load=1.0)
        outlook = outlook_of(forecasts_of(scenario))
        for minutes in leads_min:
            leads = Leads((60.0 * minutes,))
            for name, way in _ways().items():
                run = replay(scenario, way.policy, leads, outlook, ReplaySettings(min_replicas=way.fewest))
                yield _record(scenario, run, minutes) | {"simulated": True, "seed": seed, "policy": name}


def _record(scenario: LoadScenario, run: ReplayRun, minutes: float) -> dict[str, object]:
    """Hours are those of replicas from order to stop; missed load counts MISS_COST times."""
    day = len(scenario.load) * scenario.step_s / 86_400
    hours, missed = (
        float(each.sum()) * scenario.step_s / 3600 / day for each in (run.wanted, missed_load(scenario, run))
    )
    oracle = (
        oracle_replicas(scenario.demand, round(60 * minutes / scenario.step_s)).sum() * scenario.step_s / 3600 / day
    )
    return {
        "trace": scenario.trace,
        "lead_min": minutes,
        "replica_hours_per_day": round(hours, 3),
        "oracle_hours_per_day": round(float(oracle), 3),
        "missed_hours_per_day": round(missed, 4),
        "cost_per_day": round(hours + MISS_COST * missed, 3),
    }


def idle_table(records: list[Record]) -> Table:
    columns = ("nights", "lead", "policy", "replica-hours a day", "missed", "cost a day", f"over {BESIDE}")
    table = Table(*columns, title="Idle nights (simulated); cost in replica-hours, of which missed ones count 99 times")
    beside = {(each["trace"], each["lead_min"]): each["cost_per_day"] for each in records if each["policy"] == BESIDE}
    for each in records:
        cost, other = each["cost_per_day"], beside[each["trace"], each["lead_min"]]
        ratio = cost / other if isinstance(cost, float) and isinstance(other, float) else float("nan")
        cells = (each["trace"], each["lead_min"], each["policy"], each["replica_hours_per_day"])
        table.add_row(*map(str, cells), str(each["missed_hours_per_day"]), str(cost), f"{ratio:.3f}")
    return table
