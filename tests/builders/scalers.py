"""Builders for scalers: a test states only what matters to it. One replica serves a load of 1 unless said."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster.autoscaling import Behavior, LeadTime, Replicas, Scaler, ScaleTarget, ScalingObjective, ScalingRules
from cluster.demand import Forecast

NOW_S = 10_000.0
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
STEADY = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Shape of a load that is known exactly, as multiples of its level."""
SPREAD = (0.6, 0.85, 1.0, 1.15, 1.4, 1.6)


def forecast_of(
    level: float, shape: Sequence[float] = SPREAD, *, made_at_s: float = NOW_S, ramp: float = 0.0
) -> Forecast:
    """Forecast for each minute of the next half hour. ramp: growth of its level from one minute to the next."""
    leads_s = 60.0 * np.arange(1, 31)
    levels = level + ramp * np.arange(1, 31)
    return Forecast(made_at_s, leads_s, LEVELS, levels[:, None] * np.array(shape)[None, :], "test")


def scaler(wanted: int | None = 4, **changes: Any) -> Scaler:
    """Scaler in mode Auto with a fresh load of 3 and a spread forecast of 3. wanted: None if not observed."""
    facts: dict[str, Any] = {
        "name": "ns/chat",
        "target": ScaleTarget("apps/v1", "Deployment", "ns/chat"),
        "mode": "Auto",
        "replicas": None if wanted is None else Replicas(wanted, wanted),
        "min_replicas": 0,
        "max_replicas": 1000,
        "replica_load": 1.0,
        "objective": ScalingObjective(),
        "behavior": Behavior(ScalingRules(), ScalingRules()),
        "load": 3.0,
        "observed_at_s": NOW_S,
        "max_age_s": 120.0,
        "forecast": forecast_of(3.0),
        "lead_time": LeadTime((300.0,)),
    }
    return Scaler(**(facts | changes))
