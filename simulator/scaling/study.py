"""Scaling policies by name, replayed on the same forecasts, with default parameters or those best in hindsight."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.decision.decide import decide
from autoscaler.forecast.fits import fit
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import regular
from cluster.autoscaling import Scaler, ScalingObjective
from cluster.demand import Forecast
from cluster.errors import ConfigError, Mistake
from simulator.scaling import replay
from simulator.scaling.replay import score
from simulator.scaling.rival_rules import Fixed, Hpa, Recommendation
from simulator.scaling.traces import DAY_S

TONNAGE, ORACLE = "tonnage", "oracle"
MISS_COST = ScalingObjective().miss_cost


@dataclass(frozen=True, slots=True)
class Contender:
    """Policy with a parameter."""

    of: Callable[[float, replay.LoadScenario], replay.Policy]
    """The policy with this parameter on this scenario."""
    default: float


@dataclass(frozen=True, slots=True)
class TonnageScaling:
    """Our decision as a policy of the replay."""

    miss_cost: float = MISS_COST

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        objective = replace(scaler.objective, miss_cost=self.miss_cost)
        decision = decide(replace(scaler, objective=objective), at_s)
        if decision is None:
            return Recommendation.plain(0 if scaler.replicas is None else scaler.replicas.wanted)
        return Recommendation(decision.replicas, decision.recommended)


CONTENDERS: Mapping[str, Contender] = {
    TONNAGE: Contender(lambda miss_cost, _: TonnageScaling(miss_cost), MISS_COST),
    "hpa": Contender(lambda target, scenario: Hpa(target, step_s=scenario.step_s), 0.7),
    "fixed": Contender(lambda share, of: Fixed(int(np.ceil(share * np.nanmax(of.trained)))), 1.0),
}
"""tonnage: expected cost. hpa: Kubernetes' autoscaler. fixed: the highest load of the training days, at all times."""
NAMES = (*CONTENDERS, ORACLE)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedPolicy:
    """Replay of one policy on one scenario."""

    policy: str
    run: replay.ReplayRun
    score: replay.Score


def check_policies(names: tuple[str, ...]) -> None:
    """Raises ConfigError for a policy that is not known."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ConfigError(
            tuple(Mistake(f"policy {name}", "is not known", f"one of {', '.join(NAMES)}") for name in unknown)
        )


def replayed(
    scenario: replay.LoadScenario,
    name: str,
    lead_s: float,
    outlook: replay.Outlook,
    settings: replay.ReplaySettings | None = None,
) -> ReplayedPolicy:
    """A policy with its default parameter."""
    if name == ORACLE:
        run = replay.oracle_run(scenario, lead_s)
    else:
        contender = CONTENDERS[name]
        run = replay.replay(scenario, contender.of(contender.default, scenario), lead_s, outlook, settings)
    return ReplayedPolicy(name, run, score(scenario, run, lead_s))


REFIT_S = DAY_S / 2
"""Time from one fit to the next; in the operator fits run in the background."""


def forecasts_of(scenario: replay.LoadScenario) -> tuple[Forecast | None, ...]:
    """Forecast at each step of a scenario, after the training days and with fits at intervals.

    At a gap there is no new sample: the forecast is that of the last one, wider with its age.
    """
    trained = regular(scenario.start_s - len(scenario.trained) * scenario.step_s, scenario.step_s, scenario.trained)
    forecaster = OnlineForecaster.of(trained, fit(trained))
    refit_steps = max(1, round(REFIT_S / scenario.step_s))
    found = []
    for step, load in enumerate(scenario.load.tolist()):
        at_s = scenario.start_s + step * scenario.step_s
        forecaster.observe(at_s, load)
        if step and step % refit_steps == 0:
            forecaster.adopt(fit(forecaster.history.whole()))
        found.append(forecaster.forecast(at_s))
    return tuple(found)


def outlook_of(forecasts: tuple[Forecast | None, ...]) -> replay.Outlook:
    return lambda step: forecasts[step]


_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Dollars:
    replicas: float
    """Price of the replica-hours."""
    missed: float
    """Cost of the load that no ready replica served."""

    @property
    def total(self) -> float:
        return self.replicas + self.missed


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Replays of one scenario under several policies."""

    scenario: replay.LoadScenario
    lead_s: float
    objective: ScalingObjective
    results: Sequence[ReplayedPolicy]
    """The first one is the policy that the charts look at; at least one."""
    forecasts: Sequence[Forecast | None]
    """One for each step."""

    def dollars(self, result: ReplayedPolicy) -> Dollars:
        """Dollars of the replayed days."""
        per_step = self.objective.price_per_hour * self.scenario.step_s / _HOUR_S
        missed = float(replay.missed_load(self.scenario, result.run).sum())
        return Dollars(float(result.run.wanted.sum()) * per_step, self.objective.miss_cost * missed * per_step)


def compared(
    scenario: replay.LoadScenario, policies: Sequence[str], lead_s: float, objective: ScalingObjective
) -> Compared:
    """Every policy with its defaults; all of them know the load up to each step and nothing after it."""
    forecasts = forecasts_of(scenario)
    settings = replay.ReplaySettings(objective=objective)
    results = [replayed(scenario, name, lead_s, outlook_of(forecasts), settings) for name in policies]
    return Compared(scenario, lead_s, objective, results, forecasts)
