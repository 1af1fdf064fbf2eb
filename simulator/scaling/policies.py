"""Scaling policies that are compared in replays, by name, each with the one parameter that hindsight would tune."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.decision.decide import WEIGHING, decide
from autoscaler.decision.expected_cost import Weighing
from cluster.autoscaling import Scaler
from simulator.scaling.replay import MISS_COST, Policy, Scenario
from simulator.scaling.rival_rules import Fixed, Hpa, Kpa, Newsvendor, PointForecast, Recommendation

TONNAGE, ORACLE = "tonnage", "oracle"
_TARGETS = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
_MISS_COSTS = (20.0, 50.0, 99.0, 200.0, 500.0)


@dataclass(frozen=True, slots=True)
class Contender:
    """Policy with a parameter."""

    of: Callable[[float, Scenario], Policy]
    """The policy with this parameter on this scenario."""
    default: float
    grid: tuple[float, ...] = ()
    """Values that hindsight chooses from; the parameter of a policy without a choice is not used."""


@dataclass(frozen=True, slots=True)
class Tonnage:
    """Our decision as a policy of the replay."""

    miss_cost: float = MISS_COST
    weighing: Weighing = WEIGHING

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        objective = replace(scaler.objective, miss_cost=self.miss_cost)
        decision = decide(replace(scaler, objective=objective), at_s, self.weighing)
        if decision is None:
            return Recommendation.plain(0 if scaler.replicas is None else scaler.replicas.wanted)
        return Recommendation(decision.replicas, decision.recommended)


def _highest(share: float, scenario: Scenario) -> Policy:
    return Fixed(int(np.ceil(share * np.nanmax(scenario.trained))))


CONTENDERS: Mapping[str, Contender] = {
    TONNAGE: Contender(lambda miss_cost, _: Tonnage(miss_cost), MISS_COST, _MISS_COSTS),
    "newsvendor": Contender(lambda miss_cost, _: Newsvendor(miss_cost=miss_cost), MISS_COST, _MISS_COSTS),
    "hpa": Contender(lambda target, scenario: Hpa(target, step_s=scenario.step_s), 0.7, _TARGETS),
    "kpa": Contender(lambda target, _: Kpa(target), 0.7, _TARGETS),
    "point": Contender(lambda target, _: PointForecast(target), 0.8, _TARGETS),
    "fixed": Contender(_highest, 1.0, (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)),
}
"""tonnage: expected cost. newsvendor: its simplest form. hpa, kpa: Kubernetes' and Knative's autoscalers. point: a
predictive planner on the median. fixed: the highest load of the training days, at all times."""
NAMES = (*CONTENDERS, ORACLE)
