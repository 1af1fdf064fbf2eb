"""Scaling decision: replicas, what they cost in expectation, and what limited them."""

from dataclasses import dataclass
from typing import Literal

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
