"""Knative Pod Autoscaler: a stable window, and a short one that panics.

Source: knative/serving pkg/autoscaler/scaling/autoscaler.go, with its defaults: stable window 60 s, panic window 10 %
of it at 200 %, target 70 %, scale-up at most 1000 ×, scale-down at most 2 × at a time, no delay. At samples of a minute
the stable window is the mean of the last two, and the panic window the last one.
"""

import math
from dataclasses import dataclass

from autoscaler.peers.recommendation import Recommendation
from cluster.autoscaling import Scaler

STABLE_S = 60.0
_UP_RATE, _DOWN_RATE = 1000.0, 2.0


@dataclass(frozen=True, slots=True)
class Kpa:
    target: float = 0.7
    panic_at: float = 2.0
    """Ratio of wanted to ready replicas from which it panics: no scale-down until a stable window has passed."""

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        state = scaler.replicas
        if state is None or scaler.load is None:
            return Recommendation.plain(0 if state is None else state.wanted)
        ready = max(state.ready, 1)
        needed = math.ceil(scaler.load / (scaler.replica_load * self.target) - 1e-9)
        window = [needed, *(number for instant, number in scaler.recommended if at_s - instant <= STABLE_S)]
        stable = math.ceil(sum(window) / len(window))
        replicas = max(min(stable, math.ceil(_UP_RATE * ready)), math.floor(ready / _DOWN_RATE))
        if max(window) / ready >= self.panic_at:
            replicas = max(replicas, needed, state.wanted)
        return Recommendation(min(max(replicas, scaler.min_replicas), scaler.max_replicas), needed)
