"""Rules of other autoscalers on the same facts as ours, and bounds of what any rule can do: for replays."""

import math
from dataclasses import dataclass

import numpy as np

from autoscaler.decision.decide import stabilized, within_steps
from cluster.arrays import FloatArray, IntArray
from cluster.autoscaling import Behavior, Scaler, ScalingRules, ScalingStep


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Replicas that a rule wants."""

    replicas: int
    recommended: int
    """Replicas before stabilization, which later stabilization remembers."""

    @classmethod
    def plain(cls, replicas: int) -> "Recommendation":
        return cls(replicas, replicas)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same replicas at all times, such as those of the highest load seen so far."""

    replicas: int

    def __call__(self, _scaler: Scaler, _at_s: float) -> Recommendation:
        return Recommendation.plain(self.replicas)


def oracle_replicas(load: FloatArray, lead_steps: int) -> IntArray:
    """Fewest replicas to want at each step so that no load is ever missed, knowing all of it.

    load: shape (steps,), in replicas. What a step needs must be wanted since `lead_steps` before, so each step wants
    the highest need of itself and the next `lead_steps`: below that nothing is served in time, and above it nothing is
    gained. It is the cheapest policy without a miss.
    """
    need = np.ceil(load - 1e-9).astype(np.int64)
    wanted = need.copy()
    for ahead in range(1, min(lead_steps, len(need) - 1) + 1):
        wanted[:-ahead] = np.maximum(wanted[:-ahead], need[ahead:])
    return wanted


SYNC_S = 15.0
DEFAULT_BEHAVIOR = Behavior(
    up=ScalingRules(steps=(ScalingStep("Percent", 100, SYNC_S), ScalingStep("Pods", 4, SYNC_S))),
    down=ScalingRules(stabilization_s=300.0, steps=(ScalingStep("Percent", 100, SYNC_S),)),
)


@dataclass(frozen=True, slots=True)
class Hpa:
    """HPA with an average-value metric; the load offered is what it sees, so that it is not blind when saturated.

    Source: kube-controller-manager, pkg/controller/podautoscaler (replica_calculator.go, horizontal.go), with its
    defaults: tolerance 10 %, sync every 15 s, scale-down stabilized over 5 min, scale-up at most 100 % or 4 pods
    in 15 s.
    """

    target: float = 0.7
    """Fraction of a replica's load that is aimed at."""
    tolerance: float = 0.1
    step_s: float = 60.0
    """Time from one call to the next; in between it syncs on the same sample."""

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        current = scaler.replicas.wanted if scaler.replicas is not None else 0
        if scaler.load is None:  # a missing metric changes nothing
            return Recommendation.plain(current)
        load = scaler.load / scaler.replica_load
        is_near = current and abs(load / (current * self.target) - 1) <= self.tolerance
        wanted = current if is_near else max(1, math.ceil(load / self.target - 1e-9))
        steady = stabilized(wanted, current, DEFAULT_BEHAVIOR, scaler.recommended, at_s)
        replicas = current
        for _ in range(max(1, round(self.step_s / SYNC_S))):
            replicas = within_steps(steady, replicas, DEFAULT_BEHAVIOR, (), at_s)
        return Recommendation(min(max(replicas, scaler.min_replicas, 1), scaler.max_replicas), wanted)
