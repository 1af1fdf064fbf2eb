"""Replicas of one ScalingPolicy: least expected cost first, then the limits in a fixed order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.decision.expected_cost import CostCurve, Weighing, cost_curve
from autoscaler.decision.outcome import ExpectedCost, LimitedBy, ScalingDecision, reason_of
from cluster.autoscaling import Behavior, Replicas, Scaler, ScalingStep
from cluster.plans import Reason

Changes = Sequence[tuple[float, int]]


def stabilized(wanted: int, current: int, behavior: Behavior, recommended: Changes, at_s: float) -> int:
    """Most cautious recommendation of each direction's window: up to the lowest, down to the highest.

    recommended: earlier recommendations; this one counts too. Source: stabilizeRecommendationWithBehaviors of
    kube-controller-manager.
    """
    up = min([wanted, *_within(recommended, at_s, behavior.up.stabilization_s)])
    down = max([wanted, *_within(recommended, at_s, behavior.down.stabilization_s)])
    return min(max(current, up), down)


def within_steps(wanted: int, current: int, behavior: Behavior, changes: Changes, at_s: float) -> int:
    """The wanted replicas, or as many as the direction's tolerance and steps allow now."""
    rules = behavior.up if wanted > current else behavior.down
    if wanted == current or rules.select == "Disabled":
        return current
    if abs(wanted - current) <= rules.tolerance * current:
        return current
    if not rules.steps:
        return wanted
    reaches = [_reach(step, current, changes, at_s, up=wanted > current) for step in rules.steps]
    furthest = (max if (rules.select == "Max") == (wanted > current) else min)(reaches)
    return min(wanted, max(furthest, current)) if wanted > current else max(wanted, min(furthest, current))


def _reach(step: ScalingStep, current: int, changes: Changes, at_s: float, *, up: bool) -> int:
    """Replicas that a step allows: counted from those at the start of its period. From none, one can be started."""
    start = current - sum(_within(changes, at_s, step.period_s))
    if step.kind == "Pods":
        return math.floor(start + step.value if up else start - step.value)
    if not up:
        return math.trunc(start * (1 - step.value / 100))
    return max(1, math.ceil(start * (1 + step.value / 100)))


def _within(events: Changes, at_s: float, for_s: float) -> list[int]:
    return [number for instant, number in events if at_s - for_s < instant <= at_s]


WEIGHING = Weighing()


@dataclass(frozen=True, slots=True)
class _Draft:
    """Replicas on their way through the limits."""

    replicas: int
    limited_by: LimitedBy = "none"

    def to(self, replicas: int, limited_by: LimitedBy) -> "_Draft":
        """This number of replicas; the limit is named where it changed them."""
        return self if replicas == self.replicas else _Draft(replicas, limited_by)


def decide(scaler: Scaler, at_s: float) -> ScalingDecision | None:
    """Decision for this policy at this instant; None where it is off, or its target was not observed."""
    if scaler.mode == "Off" or scaler.replicas is None:
        return None
    stale = is_stale(scaler, at_s)
    curve = None
    if scaler.forecast is not None:
        curve = cost_curve(scaler, scaler.forecast, scaler.replicas.wanted, at_s, WEIGHING)
    wanted = _wanted(scaler, scaler.replicas, curve, stale=stale)
    draft = _within_limits(scaler, scaler.replicas.wanted, wanted, at_s)
    cost = None
    if curve is not None:  # with that of its neighbours
        chosen = draft.replicas
        fewer = _at(curve, chosen - 1) if chosen > 0 else None
        cost = ExpectedCost(_at(curve, chosen), fewer, _at(curve, chosen + 1))
    decision = ScalingDecision(
        scaler=scaler.name,
        current=scaler.replicas.wanted,
        replicas=draft.replicas,
        recommended=wanted.replicas,
        load=draft.replicas * scaler.replica_load,
        quantile=None if curve is None else float(curve.served[min(draft.replicas, len(curve.served) - 1)]),
        cost=cost,
        limited_by=draft.limited_by,
        forecast_used=curve is not None,
        stale=stale,
        reason=Reason("", ""),
    )
    return replace(decision, reason=reason_of(decision, scaler, at_s))


def is_stale(scaler: Scaler, at_s: float) -> bool:
    """Whether the load was never observed, or its last sample is too old."""
    return scaler.load is None or at_s - scaler.observed_at_s >= scaler.max_age_s


def _wanted(scaler: Scaler, replicas: Replicas, curve: CostCurve | None, *, stale: bool) -> _Draft:
    """Replicas of least expected cost, at least those that the load offered now needs, and none fewer on stale data."""
    current = replicas.wanted
    if curve is not None:
        draft = _Draft(curve.cheapest)
    else:
        draft = _Draft(current if scaler.load is None else _needed(scaler, scaler.load, scaler.reactive_target))
    if scaler.load is not None:
        draft = draft.to(max(draft.replicas, _needed(scaler, scaler.load, 1.0)), "load")
    return draft.to(max(draft.replicas, current), "stale") if stale else draft


def _needed(scaler: Scaler, load: float, target: float) -> int:
    """Replicas that serve this load at this fraction of their capacity."""
    return math.ceil(load / (scaler.replica_load * target) - 1e-9)


def _within_limits(scaler: Scaler, current: int, wanted: _Draft, at_s: float) -> _Draft:
    """The wanted replicas after every limit, in the order in which autoscaling/v2 applies them; bounds come last."""
    if current == 0 and scaler.min_replicas > 0:
        return _Draft(0, "disabled")
    draft = wanted.to(stabilized(wanted.replicas, current, scaler.behavior, scaler.recommended, at_s), "stabilization")
    draft = draft.to(within_steps(draft.replicas, current, scaler.behavior, scaler.changes, at_s), "behaviour")
    if scaler.capacity_limit is not None:
        held = min(draft.replicas, max(scaler.capacity_limit, current))
        draft = draft.to(held, _CAPACITY_LIMITS.get(scaler.capacity_limited_by, "stock"))
    draft = draft.to(min(draft.replicas, scaler.max_replicas), "schedule" if scaler.scheduled else "max")
    draft = draft.to(max(draft.replicas, scaler.min_replicas), "schedule" if scaler.scheduled else "min")
    if scaler.mode == "ScaleUpOnly":
        draft = draft.to(max(draft.replicas, current), "mode")
    if scaler.conflict and scaler.mode != "Recommend":
        draft = draft.to(current, "conflict")
    return draft


_CAPACITY_LIMITS: dict[str, LimitedBy] = {"power": "power", "health": "health", "stock": "stock", "quota": "quota"}


def _at(curve: CostCurve, replicas: int) -> float:
    """Expected cost of these replicas; beyond the curve each one more costs as much."""
    last = len(curve.per_hour) - 1
    beyond = max(0, replicas - last) * (curve.per_hour[last] - curve.per_hour[last - 1])
    return float(curve.per_hour[min(replicas, last)] + beyond)
