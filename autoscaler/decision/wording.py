"""Reasons of scaling decisions: a code, a sentence, and the figures behind them."""

from autoscaler.decision.outcome import LimitedBy, ScalingDecision
from cluster.autoscaling import Scaler
from cluster.plans import Reason

CODES: dict[LimitedBy, str] = {
    "none": "LeastExpectedCost",
    "load": "LoadNow",
    "min": "AtMinReplicas",
    "max": "AtMaxReplicas",
    "schedule": "AtScheduledBound",
    "behaviour": "LimitedByBehavior",
    "stabilization": "Stabilizing",
    "power": "LimitedByPower",
    "health": "LimitedByHealth",
    "stock": "LimitedByStock",
    "quota": "LimitedByQuota",
    "stale": "StaleMetrics",
    "mode": "ScaleUpOnly",
    "conflict": "Conflict",
    "disabled": "ScaledToZeroByHand",
}
REACTIVE = "PresentLoad"
"""Code of an unlimited decision without a forecast."""

_WHY: dict[LimitedBy, str] = {
    "load": "the load offered now needs them",
    "min": "minReplicas",
    "max": "maxReplicas",
    "schedule": "bound of schedule {scheduled}",
    "behaviour": "steps and tolerance of behavior",
    "stabilization": "stabilization window of behavior",
    "power": "no power for more",
    "health": "no trusted hardware for more",
    "stock": "no free hardware for more",
    "quota": "quota",
    "stale": "no scale-down without fresh metrics",
    "mode": "mode is ScaleUpOnly",
    "conflict": "{conflict} scales this target too",
    "disabled": "scaled to 0 by hand; set replicas to 1 or more to resume",
}


def reason_of(decision: ScalingDecision, scaler: Scaler, at_s: float) -> Reason:
    """The decision in a sentence: what is asked for, why, and what its neighbours would cost."""
    limited = decision.limited_by
    parts = [_change(decision), _ground(decision, scaler)]
    if limited != "none":
        why = _WHY[limited].format(scheduled=scaler.scheduled, conflict=scaler.conflict)
        moved = f" instead of {decision.recommended}" if decision.recommended != decision.replicas else ""
        parts.append(f"limited{moved}: {why}")
    code = CODES[limited] if limited != "none" or decision.forecast_used else REACTIVE
    return Reason(code, "; ".join(part for part in parts if part), _figures(decision, scaler, at_s))


def _change(decision: ScalingDecision) -> str:
    unit = "replica" if decision.replicas == 1 else "replicas"
    if not decision.changes:
        return f"{decision.replicas} {unit}, unchanged"
    return f"{decision.replicas} {unit}, now {decision.current}"


def _ground(decision: ScalingDecision, scaler: Scaler) -> str:
    if decision.cost is None or decision.quantile is None:
        if scaler.load is None:
            return "the load was never observed"
        return f"no forecast: the load of {scaler.load:.4g} at {100 * scaler.reactive_target:.0f} % utilisation"
    cost = decision.cost
    fewer = "" if cost.one_fewer is None else f"one fewer ${cost.one_fewer:.4g}, "
    return (
        f"enough for the load with probability {100 * decision.quantile:.1f} % when a start would be ready; expected "
        f"cost ${cost.chosen:.4g}/h, {fewer}one more ${cost.one_more:.4g}"
    )


def _figures(decision: ScalingDecision, scaler: Scaler, at_s: float) -> dict[str, float]:
    figures = {
        "replicas": decision.replicas,
        "current": decision.current,
        "recommended": decision.recommended,
        "capacity": decision.load,
    }
    if scaler.load is not None:
        figures |= {"load": scaler.load, "age_s": at_s - scaler.observed_at_s}
    if decision.quantile is not None:
        figures["quantile"] = decision.quantile
    if decision.cost is not None:
        figures |= {"cost_per_hour": decision.cost.chosen, "cost_one_more": decision.cost.one_more}
        if decision.cost.one_fewer is not None:
            figures["cost_one_fewer"] = decision.cost.one_fewer
    return figures
