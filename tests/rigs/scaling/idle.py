"""Services with idle nights: their loads, and a timer that stops the last replica of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import column
from cluster.autoscaling import Scaler
from simulator.scaling.rival_rules import Hpa, Recommendation
from simulator.scaling.traces import DAY_S, MINUTE_S, LoadTrace

OPEN_H, CLOSED_H = 8.0, 18.0
"""Hours of the day (UTC) between which a service is used, on Monday to Friday."""
_WEEKDAYS = 5
_PEAK = 3.0
"""Load at noon, in replicas."""
_NOISE = 0.15
"""Standard deviation of a minute's load around the course, relative."""
_STRAY = 0.1
"""Load of a minute with a stray request, in replicas."""
NIGHTS: Mapping[str, float] = {"silent": 0.0, "stray": 1 / 30, "frequent": 1 / 5}
"""Probability that a minute outside of these hours has a stray request. With a miss cost of 99, a replica that waits
for them costs less than missing them from one in ten minutes on."""


def idle_trace(nights: str, seed: int, days: int) -> LoadTrace:
    """Load of a small service that is used in office hours, in replicas. It begins on a Monday."""
    chance = np.random.default_rng((seed, list(NIGHTS).index(nights)))
    minutes = np.arange(round(days * DAY_S / MINUTE_S))
    hour, day = minutes / 60 % 24, minutes // 1440
    is_open = (hour >= OPEN_H) & (hour < CLOSED_H) & (day % 7 < _WEEKDAYS)
    course = _PEAK * np.sin(np.pi * np.clip((hour - OPEN_H) / (CLOSED_H - OPEN_H), 0, 1))
    used = np.maximum(0.0, course * (1 + _NOISE * chance.standard_normal(len(minutes))))
    strays = _STRAY * (chance.random(len(minutes)) < NIGHTS[nights])
    return LoadTrace(f"{nights} nights", MINUTE_S, 0.0, column(np.where(is_open, used, strays), np.float64))


@dataclass(slots=True)
class IdleTimer:
    """HPA, and zero replicas after a time without load, as KEDA and Knative scale to zero; one at the first load.

    Source: KEDA, ScaledObject, cooldownPeriod (300 s).
    """

    cooldown_s: float = 300.0
    hpa: Hpa = field(default_factory=Hpa)
    _busy_at_s: float = -np.inf

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        if scaler.load is None or scaler.load > 0:
            self._busy_at_s = at_s
            return self.hpa(scaler, at_s)
        if at_s - self._busy_at_s >= self.cooldown_s:
            return Recommendation.plain(0)
        return Recommendation.plain(scaler.replicas.wanted if scaler.replicas else 0)
