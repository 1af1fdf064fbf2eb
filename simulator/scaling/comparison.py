"""Replays of one scenario under several policies on the same forecasts."""

from collections.abc import Sequence

from cluster.autoscaling import ScalingObjective
from simulator.scaling.fleet import Leads
from simulator.scaling.outlook import forecasts_of, outlook_of
from simulator.scaling.replay import ReplaySettings, Scenario
from simulator.scaling.report import Compared
from simulator.scaling.study import replayed


def compared(scenario: Scenario, policies: Sequence[str], lead_s: float, objective: ScalingObjective) -> Compared:
    """Every policy with its defaults; all of them know the load up to each step and nothing after it."""
    forecasts = forecasts_of(scenario)
    settings = ReplaySettings(objective=objective)
    leads = Leads((lead_s,))
    results = [replayed(scenario, name, leads, outlook_of(forecasts), settings) for name in policies]
    return Compared(scenario, lead_s, objective, results, forecasts)
