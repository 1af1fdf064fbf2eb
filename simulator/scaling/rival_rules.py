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


STABLE_S = 60.0
_UP_RATE, _DOWN_RATE = 1000.0, 2.0


@dataclass(frozen=True, slots=True)
class Kpa:
    """Knative's autoscaler: a stable window, and a short one that panics.

    Source: knative/serving pkg/autoscaler/scaling/autoscaler.go, with its defaults: stable window 60 s, panic window
    10 % of it at 200 %, target 70 %, scale-up at most 1000 ×, scale-down at most 2 × at a time, no delay. At samples of
    a minute the stable window is the mean of the last two, and the panic window the last one.
    """

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


@dataclass(frozen=True, slots=True)
class PointForecast:
    """Predicted load over profiled capacity, the rule of NVIDIA Dynamo's planner.

    Source: ai-dynamo/dynamo, planner: replicas = ceil(predicted requests × length / capacity × correction), predicted
    by a constant, ARIMA, Kalman or Prophet. Here the prediction is the median of the same forecast that we decide on.
    """

    target: float = 0.8
    """Fraction of a replica's load that is aimed at: the correction, 25 % headroom unless tuned."""

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        return _at_quantile(scaler, at_s, 0.5, self.target)


@dataclass(frozen=True, slots=True)
class Newsvendor:
    """The simplest rule on a distribution: n at the quantile κ / (1 + κ) of the load after the mean lead."""

    target: float = 1.0
    miss_cost: float = 99.0

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        return _at_quantile(scaler, at_s, self.miss_cost / (1 + self.miss_cost), self.target)


def _at_quantile(scaler: Scaler, at_s: float, level: float, target: float) -> Recommendation:
    current = scaler.replicas.wanted if scaler.replicas is not None else 0
    if scaler.forecast is None:
        return Recommendation.plain(current)
    points_s = scaler.lead_time.points_s
    lead_s = sum(points_s) / len(points_s) + max(0.0, at_s - scaler.forecast.made_at_s)
    load = scaler.forecast.quantile(level, lead_s)
    wanted = math.ceil(load / (scaler.replica_load * target) - 1e-9)
    return Recommendation.plain(min(max(wanted, scaler.min_replicas), scaler.max_replicas))
