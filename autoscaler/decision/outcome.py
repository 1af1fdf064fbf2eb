"""Scaling decision: replicas, what they cost in expectation, and what limited them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cluster.autoscaling import Scaler
from cluster.plans import Reason

LimitedBy = Literal[
    "none",
    "load",
    "min",
    "max",
    "schedule",
    "behaviour",
    "stabilization",
    "power",
    "health",
    "stock",
    "quota",
    "stale",
    "mode",
    "conflict",
    "disabled",
]
"""What moved the replicas away from those of least expected cost: last in the order of the limits counts.

load: the load offered now needs more. schedule: bounds that a schedule set. behaviour: steps, tolerance, or a direction
that is disabled. stale: no scale-down without fresh metrics. mode: ScaleUpOnly. conflict: another autoscaler owns the
target. disabled: the target was scaled to 0 by hand, as autoscaling/v2 means it."""


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Expected cost of a number of replicas and of its neighbours, dollars per hour."""

    chosen: float
    one_fewer: float | None
    """None: there is no fewer."""
    one_more: float


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """Decision for one ScalingPolicy."""

    scaler: str
    current: int
    """Replicas that the target's spec asks for now."""
    replicas: int
    """Replicas that it should ask for."""
    recommended: int
    """Replicas before stabilization, behaviour and bounds: what later stabilization remembers."""
    load: float
    """Load that `replicas` serve within the SLO, in the policy's unit: what a mix of instances is asked for."""
    quantile: float | None
    """Probability that the load after the lead time is at most `load`; None without a forecast."""
    cost: ExpectedCost | None
    """None without a forecast."""
    limited_by: LimitedBy
    forecast_used: bool
    stale: bool
    """Whether the last sample of the load is missing or too old."""
    reason: Reason

    @property
    def changes(self) -> bool:
        return self.replicas != self.current


LIMITS: Mapping[LimitedBy, tuple[str, str]] = {
    "none": ("LeastExpectedCost", ""),
    "load": ("LoadNow", "the load offered now needs them"),
    "min": ("AtMinReplicas", "minReplicas"),
    "max": ("AtMaxReplicas", "maxReplicas"),
    "schedule": ("AtScheduledBound", "bound of schedule {scheduled}"),
    "behaviour": ("LimitedByBehavior", "steps and tolerance of behavior"),
    "stabilization": ("Stabilizing", "stabilization window of behavior"),
    "power": ("LimitedByPower", "no power for more"),
    "health": ("LimitedByHealth", "no trusted hardware for more"),
    "stock": ("LimitedByStock", "no free hardware for more"),
    "quota": ("LimitedByQuota", "quota"),
    "stale": ("StaleMetrics", "no scale-down without fresh metrics"),
    "mode": ("ScaleUpOnly", "mode is ScaleUpOnly"),
    "conflict": ("Conflict", "{conflict} scales this target too"),
    "disabled": ("ScaledToZeroByHand", "scaled to 0 by hand; set replicas to 1 or more to resume"),
}
"""Code of the reason, and the limit in words."""
REACTIVE = "PresentLoad"
"""Code of an unlimited decision without a forecast."""


def reason_of(decision: ScalingDecision, scaler: Scaler, at_s: float) -> Reason:
    """The decision in a sentence: what is asked for, why, and what its neighbours would cost."""
    limited = decision.limited_by
    change = f"now {decision.current}" if decision.changes else "unchanged"
    unit = "replica" if decision.replicas == 1 else "replicas"
    parts = [f"{decision.replicas} {unit}, {change}", _ground(decision, scaler)]
    if limited != "none":
        why = LIMITS[limited][1].format(scheduled=scaler.scheduled, conflict=scaler.conflict)
        moved = f" instead of {decision.recommended}" if decision.recommended != decision.replicas else ""
        parts.append(f"limited{moved}: {why}")
    figures: dict[str, float] = {
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
    code = LIMITS[limited][0] if limited != "none" or decision.forecast_used else REACTIVE
    return Reason(code, "; ".join(part for part in parts if part), figures)


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
