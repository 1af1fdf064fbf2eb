"""Scalers: what is known of each workload that is scaled by its load, as the autoscaler's decision reads it."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cluster.arrays import BoolArray
from cluster.concurrency import ConcurrencyTuning
from cluster.demand import Demand
from cluster.forecast import Forecast
from cluster.workloads import PodShape

ScalingMode = Literal["Off", "Recommend", "ScaleUpOnly", "Auto"]
"""Off: nothing is computed. Recommend: the decision is reported, and nothing is changed. ScaleUpOnly: replicas are
added, never removed. Auto: both."""


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """Object that is scaled: a ModelService, or any object with a scale subresource."""

    api_version: str
    kind: str
    name: str
    """`namespace/name`."""
    plural: str = ""
    """Resource name in paths (`deployments`), by the API server's discovery; empty: not known, or not needed."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """API group, kind and name: what versions of one group share, and kinds of two groups with one name do not."""
        return self.api_version.rpartition("/")[0], self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class ScalingStep:
    """Largest change in a period, with the meaning of autoscaling/v2 HPAScalingPolicy."""

    kind: Literal["Pods", "Percent"]
    value: float
    period_s: float


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """Limits on changes in one direction, with the meaning of autoscaling/v2 HPAScalingRules."""

    stabilization_s: float = 0.0
    """Seconds over which the most cautious recommendation counts: the highest for scaling down, the lowest for up."""
    select: Literal["Max", "Min", "Disabled"] = "Max"
    """Which of the steps' limits counts; Disabled: no change in this direction."""
    steps: tuple[ScalingStep, ...] = ()
    """Empty: no limit."""
    tolerance: float = 0.0
    """Smallest relative change that is made."""


DOWN_STABILIZATION_S = 600.0
"""Default stabilization of scaling down. Chosen on two public traces for as few direction changes as HPA has with its
300 s at a coarser tolerance, and checked on others (docs/autoscaler.md)."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """Limits on changes of the replicas."""

    up: ScalingRules = field(default_factory=ScalingRules)
    down: ScalingRules = field(default_factory=lambda: ScalingRules(stabilization_s=DOWN_STABILIZATION_S))


UNLIMITED = Behavior(ScalingRules(), ScalingRules())
"""No limit on changes."""


@dataclass(frozen=True, slots=True)
class ScalingObjective:
    """Costs that the decision weighs against each other."""

    price_per_hour: float = 1.0
    """Price of one replica and hour, dollars."""
    miss_cost: float = 99.0
    """Cost of load that is not served, as a multiple of the price of the capacity that would have served it."""
    switch_s: float = 0.0
    """Cost of starting or stopping one replica, in seconds of its price (loading weights, draining streams)."""


@dataclass(frozen=True, slots=True)
class LeadTime:
    """Distribution of the time from ordering a replica to its readiness, as points of equal probability."""

    points_s: tuple[float, ...] = (120.0,)
    """Rising, seconds; at least one."""
    samples: int = 0
    """Number of observed starts that it was learned from; 0: it is an assumption."""


MOST_ORDERED = 200
"""Most instants of orders that are kept of a target: as many as an estimate of lead times counts."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas of a target."""

    wanted: int
    """Number that its spec asks for now."""
    ready: int
    """Number that serves now."""
    ordered_at_s: tuple[float, ...] = ()
    """Instant of the order of each replica that is wanted and not ready yet, rising; seconds since the epoch. Pending
    capacity counts once: these are part of `wanted`. Of a target that asks for absurdly many, the oldest MOST_ORDERED
    or a few more."""
    observed_at_s: float = 0.0
    """Instant at which `wanted` was read, seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class ForecastSkill:
    """Measured quality of a series' forecasts, over a sliding window."""

    model: str
    """Name of the model in use."""
    is_trusted: bool
    """Whether that model beats the naive one; otherwise the naive one is in use."""
    skill: float | None = None
    """1 - pinball loss / pinball loss of the naive model; None: too few forecasts came due."""
    coverage_90: float | None = None
    """Fraction of the values that the 90 % interval held; likewise."""
    coverage_99: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadHistory:
    """Load of one policy over the last weeks, for a background decider that fits its forecast."""

    scaler: str
    """`namespace/name` of the ScalingPolicy."""
    start_s: float
    """Instant of the first value, seconds since the epoch."""
    step_s: float
    values: NDArray[np.float32]
    """Shape (points,), in the policy's unit; NaN where nothing was measured."""
    is_censored: BoolArray
    """Shape (points,): the value is a lower bound, because the target was saturated."""
    boosted: bool = True
    """Whether gradient-boosted quantiles are fitted, too."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaler:
    """State of one ScalingPolicy at the instant of a snapshot. Load and capacity have one unit of the policy's own."""

    name: str
    """`namespace/name` of the ScalingPolicy."""
    target: ScaleTarget
    mode: ScalingMode
    replicas: Replicas | None
    """None: the target was not observed, and nothing is decided."""
    min_replicas: int
    max_replicas: int
    """Both after schedules."""
    replica_load: float
    """Load that one replica serves within the SLO."""
    objective: ScalingObjective
    behavior: Behavior
    load: float | None
    """Offered load at `observed_at_s`; None: never observed. Missing is not zero."""
    observed_at_s: float
    """Instant of the last sample, seconds since the epoch."""
    max_age_s: float
    """Age from which the last sample is stale: then nothing is scaled down."""
    forecast: Forecast | None
    """Predictive distribution of the load; None: too little history, so only the present load decides."""
    lead_time: LeadTime
    recommended: tuple[tuple[float, int], ...] = ()
    """Earlier recommendations, as (instant, replicas), oldest first, as far back as the longest stabilization."""
    changes: tuple[tuple[float, int], ...] = ()
    """Earlier changes, as (instant, change of replicas), oldest first, as far back as the longest period of a step."""
    capacity_limit: int | None = None
    """Most replicas that the hardware allows now; None: no such limit is known."""
    capacity_limited_by: str = ""
    """What sets `capacity_limit`: `power`, `health`, `stock`, `quota`."""
    shape: PodShape | None = None
    """Needs of one replica, where the free hardware limits their number; None: it does not, or they are not known."""
    placed: int = 0
    """Replicas that have a node."""
    scheduled: str = ""
    """Name of the schedule that sets the bounds now; empty: they are the policy's own."""
    reactive_target: float = 0.7
    """Fraction of a replica's load that is aimed at where there is no forecast and the present load alone decides."""
    demand: Demand | None = None
    """Measured demand of a ModelService: the load as its rate, in requests per second, and the request lengths. None
    for other targets, and where no lengths are known."""
    mix_costs_for: int | None = None
    """Replicas whose mix was priced last, of a ModelService in mode Recommend."""
    mix_costs_at_s: float = -math.inf
    """When it was priced, seconds since the epoch."""
    starts_s: tuple[float, ...] = ()
    """Observed lead times that `lead_time` was learned from, oldest first, seconds."""
    skill: ForecastSkill | None = None
    """Measured quality of the forecasts; None: not known yet. No decision depends on it."""
    source_problem: str = ""
    """Why the last reading of the load failed, as `Code: words`; empty: it did not."""
    concurrency: ConcurrencyTuning | None = None
    """Tuning of each replica's concurrency; None: the policy has none."""
    problem: str = ""
    """Why nothing can be decided, as `Code: words`; empty: nothing is known to prevent it."""
    conflict: str = ""
    """Other autoscaler that owns the target, as `Kind/namespace/name`; empty: none. Then nothing is changed."""
