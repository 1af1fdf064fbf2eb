"""One replay as a record, and the tuning of a policy in hindsight."""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.errors import ConfigError, Mistake
from simulator.scaling.fleet import Leads
from simulator.scaling.policies import CONTENDERS, NAMES, ORACLE
from simulator.scaling.replay import (
    Outlook,
    Policy,
    ReplayRun,
    ReplaySettings,
    Scenario,
    Score,
    oracle_run,
    replay,
    score,
)

Record = Mapping[str, object]


def figure(record: Record, name: str) -> float:
    """Number in a record. Raises TypeError for anything else."""
    value = record[name]
    if not isinstance(value, (int, float)):
        raise TypeError(name)
    return float(value)


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """Replay of one policy on one scenario."""

    policy: str
    tuned: float | None
    """Parameter that hindsight chose; None: the default."""
    run: ReplayRun
    score: Score


def check_policies(names: tuple[str, ...]) -> None:
    """Raises ConfigError for a policy that is not known."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ConfigError(
            tuple(Mistake(f"policy {name}", "is not known", f"one of {', '.join(NAMES)}") for name in unknown)
        )


def replayed(
    scenario: Scenario, name: str, leads: Leads, outlook: Outlook, settings: ReplaySettings | None = None
) -> Replayed:
    """A policy with its default parameter."""
    if name == ORACLE:
        run = oracle_run(scenario, leads.mean_s)
        return Replayed(name, None, run, score(scenario, run, leads.mean_s))
    contender = CONTENDERS[name]
    return _of(scenario, name, contender.of(contender.default, scenario), leads, outlook, settings)


def tuned_in_hindsight(
    scenario: Scenario, name: str, leads: Leads, outlook: Outlook, settings: ReplaySettings | None = None
) -> Replayed:
    """A policy with the parameter of its grid that has the lowest J on the very days that it is scored on."""
    contender = CONTENDERS[name]
    found = [
        _of(scenario, name, contender.of(parameter, scenario), leads, outlook, settings, parameter)
        for parameter in contender.grid
    ]
    return min(found, key=lambda each: each.score.j)


def _of(
    scenario: Scenario,
    name: str,
    policy: Policy,
    leads: Leads,
    outlook: Outlook,
    settings: ReplaySettings | None,
    tuned: float | None = None,
) -> Replayed:
    run = replay(scenario, policy, leads, outlook, settings)
    return Replayed(name, tuned, run, score(scenario, run, leads.mean_s))


def record_of(scenario: Scenario, leads: Leads, result: Replayed) -> dict[str, object]:
    """Figures of a replay, as the benchmark writes them."""
    figures = result.score
    return {
        "trace": scenario.trace,
        "lead_min": round(leads.mean_s / 60.0, 3),
        "policy": result.policy,
        "tuned": result.tuned,
        "gpu_hours_ratio": round(figures.gpu_hours_ratio, 4),
        "shortfall_ratio": round(figures.shortfall_ratio, 6),
        "j": round(figures.j, 4),
        "violation_minutes_pct": round(figures.violation_minutes_pct, 3),
        "direction_changes_per_day": round(figures.direction_changes_per_day, 1),
    }
