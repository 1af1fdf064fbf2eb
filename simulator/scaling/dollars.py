"""Dollars of a replay: replicas from order to stop, and load that was missed."""

from dataclasses import dataclass

from cluster.autoscaling import ScalingObjective
from simulator.scaling.replay import ReplayRun, Scenario, missed_load

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


def dollars_of(scenario: Scenario, run: ReplayRun, objective: ScalingObjective) -> Dollars:
    """Dollars of the replayed days."""
    per_step = objective.price_per_hour * scenario.step_s / _HOUR_S
    missed = float(missed_load(scenario, run).sum())
    return Dollars(float(run.wanted.sum()) * per_step, objective.miss_cost * missed * per_step)
