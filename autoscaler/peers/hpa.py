"""Horizontal Pod Autoscaler, autoscaling/v2, on the average offered load per replica.

Source: kube-controller-manager, pkg/controller/podautoscaler (replica_calculator.go, horizontal.go), with its defaults:
tolerance 10 %, sync every 15 s, scale-down stabilized over 5 min, scale-up at most 100 % or 4 pods in 15 s.
"""

import math
from dataclasses import dataclass

from autoscaler.decision.behavior import stabilized, within_steps
from autoscaler.peers.recommendation import Recommendation
from cluster.autoscaling import Behavior, Scaler, ScalingRules, ScalingStep

SYNC_S = 15.0
DEFAULT_BEHAVIOR = Behavior(
    up=ScalingRules(steps=(ScalingStep("Percent", 100, SYNC_S), ScalingStep("Pods", 4, SYNC_S))),
    down=ScalingRules(stabilization_s=300.0, steps=(ScalingStep("Percent", 100, SYNC_S),)),
)


@dataclass(frozen=True, slots=True)
class Hpa:
    """HPA with an average-value metric; the load offered is what it sees, so that it is not blind when saturated."""

    target: float = 0.7
    """Fraction of a replica's load that is aimed at."""
    tolerance: float = 0.1
    step_s: float = 60.0
    """Time from one call to the next; in between it syncs on the same sample."""

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        current = scaler.replicas.wanted if scaler.replicas is not None else 0
        if scaler.load is None:  # a missing metric changes nothing
            return Recommendation.plain(current)
        wanted = self._wanted(scaler.load / scaler.replica_load, current)
        steady = stabilized(wanted, current, DEFAULT_BEHAVIOR, scaler.recommended, at_s)
        replicas = current
        for _ in range(max(1, round(self.step_s / SYNC_S))):
            replicas = within_steps(steady, replicas, DEFAULT_BEHAVIOR, (), at_s)
        return Recommendation(min(max(replicas, scaler.min_replicas, 1), scaler.max_replicas), wanted)

    def _wanted(self, load: float, current: int) -> int:
        """load: in replicas."""
        if current and abs(load / (current * self.target) - 1) <= self.tolerance:
            return current
        return max(1, math.ceil(load / self.target - 1e-9))
