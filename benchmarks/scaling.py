"""Scaling policies on load traces beside perfect foresight, tuners of concurrency, and CPU time of deciding."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler.concurrency.safe_bandit import Rules, SafeBandit
from benchmarks.cases import DATA, Row, Rows, case, numbers
from benchmarks.tables import grouped
from simulator.scaling import replay as scaling_replay, study
from simulator.scaling.rival_rules import oracle_replicas
from simulator.scaling.traces import generated_trace, read_trace
from tests.rigs.scaling.concurrency import FAMILIES, best_static, course, score as score_course, workload
from tests.rigs.scaling.concurrency_baselines import Aimd, HillClimb, QLearning, Static, Tuner
from tests.rigs.scaling.hindsight import record_of, tuned_in_hindsight
from tests.rigs.scaling.idle import NIGHTS, IdleTimer, idle_trace

FIRST = 60
"""Decisions within which a tuner should be near the best static limit."""
KNATIVE_DEFAULT = 100
"""Target concurrency of a Knative revision that names none (container-concurrency-target-default)."""
TUNERS: Mapping[str, Callable[[Rules], Tuner[Any]]] = {
    "safe-bandit": SafeBandit,
    "hill-climb": HillClimb,
    "aimd": Aimd,
    "q-learning": QLearning,
    "static-start": lambda rules: Static(rules.start),
    "static-knative": lambda _rules: Static(KNATIVE_DEFAULT),
}
"""By name. q-learning: as in its paper."""

TRACES = tuple(
    DATA / "demand" / f"{name}_60s{more}.csv"
    for name, more in (
        ("nasa_http_1995_july", ""),
        *((f"servegen_{name}", "_resampled") for name in ("m-large", "m-small", "m-mid_week1")),
    )
)
BESIDE = "at least one"
"""The decision without scale to zero."""


def scenarios(traces: Sequence[Path], train_days: int, days: int) -> list[scaling_replay.LoadScenario]:
    """The traces' days; without traces, those of a generated one."""
    loads = [read_trace(path) for path in traces] or [generated_trace(1, train_days + days)]
    return [scaling_replay.scenario_of(load, train_days, days) for load in loads]


def _summary(rows: Sequence[Row]) -> Rows:
    """J of each policy over that of HPA at 70 %, over traces and leads."""
    base = {
        (row["trace"], row["lead_min"]): row["j"] for row in rows if row["policy"] == "hpa" and row["tuned"] is None
    }
    for (policy, is_tuned), own in grouped(
        [{**row, "is": row["tuned"] is not None} for row in rows], "policy", "is"
    ).items():
        line: Row = {"policy": f"{policy} tuned" if is_tuned else policy}
        relative = [
            row["j"] / base[row["trace"], row["lead_min"]] for row in own if (row["trace"], row["lead_min"]) in base
        ]
        if relative:
            line |= {"J / HPA": float(np.exp(np.log(relative).mean())), "highest": max(relative)}
        for key in ("gpu_hours_ratio", "j", "violation_minutes_pct", "direction_changes_per_day"):
            line[key] = float(np.mean([row[key] for row in own]))
        yield line


@case(
    "scaling",
    "Replica-hours and missed load of scaling policies beside perfect foresight (simulated).",
    quick={
        "traces": (),
        "leads": (10.0,),
        "policies": ("tonnage", "hpa", "oracle"),
        "train_days": 1,
        "days": 1,
        "tuned": False,
    },
    summary=_summary,
)
def scaling(
    *,
    traces: Sequence[Path] = TRACES,
    leads: Sequence[float] = (2.0, 5.0, 10.0),
    policies: Sequence[str] = study.NAMES,
    tuned: bool = True,
    train_days: int = 7,
    days: int = 7,
) -> Iterator[Row]:
    """A row for each trace, lead time and policy, minute by minute; without traces, of a generated one.

    The scale is 40 replicas at the 99.5th percentile of the training days. Replica-hours are billed from the order, and
    their ratio is to an oracle that knows the load. J = ratio + 99 × shortfall. leads: minutes from order to ready.
    tuned: each policy with its best parameter in hindsight, too.
    """
    study.check_policies(tuple(policies))
    for scenario in scenarios(traces, train_days, days):
        outlook = study.outlook_of(study.forecasts_of(scenario))
        for minutes in leads:
            lead_s = 60.0 * minutes
            for name in policies:
                began_s = time.process_time()
                row: Row = dict(record_of(scenario, lead_s, study.replayed(scenario, name, lead_s, outlook)))
                yield row | {"cpu_s": round(time.process_time() - began_s, 2)}
                if tuned and name in study.CONTENDERS:
                    yield dict(record_of(scenario, lead_s, *tuned_in_hindsight(scenario, name, lead_s, outlook)))


def idle_summary(rows: Sequence[Row]) -> Rows:
    """Rows with their cost over that of the decision that keeps a replica."""
    beside = {(row["trace"], row["lead_min"]): row["cost_per_day"] for row in rows if row["policy"] == BESIDE}
    yield from (row | {"over": row["cost_per_day"] / beside[row["trace"], row["lead_min"]]} for row in rows)


@case(
    "scaling-idle",
    "Cost of idle nights with scale to zero, without it, and under a timer (simulated).",
    quick={"leads": (5.0,), "nights": tuple(NIGHTS)[:1], "train_days": 1, "days": 1},
    summary=idle_summary,
)
def scaling_idle(
    *,
    leads: Sequence[float] = (2.0, 5.0),
    nights: Sequence[str] = tuple(NIGHTS),
    train_days: int = 7,
    days: int = 7,
    seeds: Sequence[int] = (1,),
) -> Iterator[Row]:
    """A row for each kind of night, lead time and policy. Hours are those of replicas from order to stop; missed load
    counts 99 times. Up to three replicas in office hours."""
    for seed in seeds:
        for kind in nights:
            scenario = scaling_replay.scenario_of(
                idle_trace(kind, seed, train_days + days), train_days, days, replica_load=1.0
            )
            outlook = study.outlook_of(study.forecasts_of(scenario))
            day = len(scenario.load) * scenario.step_s / 86_400
            for minutes in leads:
                oracle = oracle_replicas(scenario.demand, round(60 * minutes / scenario.step_s)).sum()
                # Made for each replay, since the timer remembers.
                ways: dict[str, tuple[scaling_replay.Policy, int]] = {
                    "tonnage": (study.TonnageScaling(), 0),
                    BESIDE: (study.TonnageScaling(), 1),
                }
                ways["idle timer"] = (IdleTimer(), 0)
                for name, (policy, fewest) in ways.items():
                    settings = scaling_replay.ReplaySettings(min_replicas=fewest)
                    run = scaling_replay.replay(scenario, policy, 60.0 * minutes, outlook, settings)
                    hours, missed, least = (
                        float(each) * scenario.step_s / 3600 / day
                        for each in (run.wanted.sum(), scaling_replay.missed_load(scenario, run).sum(), oracle)
                    )
                    yield {
                        "trace": scenario.trace,
                        "lead_min": minutes,
                        "policy": name,
                        "replica_hours_per_day": round(hours, 3),
                        "oracle_hours_per_day": round(least, 3),
                        "missed_hours_per_day": round(missed, 4),
                        "cost_per_day": round(hours + scaling_replay.MISS_COST * missed, 3),
                        "seed": seed,
                    }


@case(
    "concurrency",
    "Goodput of tuners of a replica's concurrency over the best static limit (simulated).",
    quick={"seeds": (201,), "workloads": ("peaked",), "decisions": 120},
    by=("policy",),
    columns=(
        "policy",
        "goodput_ratio",
        "later_ratio",
        "near_after",
        "breach_share",
        "first_breach_share",
        "changes_share",
    ),
)
def concurrency(
    *,
    seeds: Sequence[int] = numbers("201-220"),
    workloads: Sequence[str] = tuple(FAMILIES),
    policies: Sequence[str] = tuple(TUNERS),
    decisions: int = 240,
    start: int = 8,
) -> Iterator[Row]:
    """A row for each workload, seed and policy. Developed on seeds 1-20 and 101-120.

    Each workload is drawn from its family and a seed. Goodput counts the requests of intervals that kept the guard on
    p95. decisions: intervals of each run. start: limit at its start.
    """
    for family in workloads:
        for seed in seeds:
            drawn = workload(family, seed, decisions)
            best = best_static(drawn)
            for policy in policies:
                tuner = TUNERS[policy](Rules(drawn.guard_s, start=start))
                begin = tuner.limit if isinstance(tuner, Static) else start
                run = course(tuner, drawn, begin)
                yield {
                    "workload": family,
                    "seed": seed,
                    "best_limit": int(best.limit[0]),
                    "policy": policy,
                    "start": begin,
                    **asdict(score_course(run, best, FIRST)),
                }
