"""Scalers: what is known of each workload that is scaled by its load, of its replicas and of their concurrency."""

import math
from dataclasses import dataclass, field
from typing import Literal

from cluster.demand import Demand, Forecast
from cluster.workloads import PodShape


@dataclass(frozen=True, slots=True, order=True)
class Context:
    """Workload context: what determines how many requests a replica can serve at once."""

    gpu_type: str
    input_bucket: int
    """Bucket of the mean number of input tokens of a request (autoscaler.demand.promql.length_bucket)."""
    output_bucket: int
    """Bucket of the mean number of output tokens of a request."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One interval of a workload, as means over its ready replicas. NaN: not measured."""

    limit: int
    """Limit that was in force: requests served at once by one replica."""
    context: Context
    throughput: float
    """Output tokens (or requests; always the same unit) per second and replica."""
    requests: int
    """Requests that all replicas completed: the sample behind `p95_s`."""
    p95_s: float
    """95th percentile of the latency inside a replica, seconds, without the wait in a queue before it. That wait grows
    when the limit falls, so it would mislead the guard."""
    in_flight: float
    """Mean number of requests served at once by one replica."""
    compute_share: float = math.nan
    """Utilisation of the processor, 0..1."""
    memory_share: float = math.nan
    """Utilisation of the memory that requests occupy (KV cache), 0..1."""
    scaling: bool = False
    """Whether replicas were being added or removed: means over a changing set compare with nothing."""

    @property
    def complete(self) -> bool:
        """Whether everything that learning needs was measured."""
        needed = (self.throughput, self.p95_s, self.in_flight)
        return self.requests > 0 and all(math.isfinite(value) and value > 0 for value in needed)


@dataclass(frozen=True, slots=True)
class Arm:
    """Means of what was observed under one limit."""

    limit: int
    weight: float
    """Number of observations, faded."""
    throughput: float
    """Mean log throughput."""
    p95: float
    """Mean log p95."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Knowledge of one context."""

    context: Context
    used_at: int
    """Number of the last decision in this context."""
    limit: int
    """Limit that was decided last."""
    ceiling: float
    """Highest limit that may be tried."""
    arms: tuple[Arm, ...] = ()
    """A bounded number, rising in their limits."""
    throughput_scatter: float = 0.0
    """Variance of log throughput around the means."""
    p95_scatter: float = 0.0
    """Variance of log p95 around the means."""
    scatter_weight: float = 0.0
    """Number of observations behind the scatter, faded."""
    surprised: bool = False
    """Whether the last observation lay too far off to be believed alone."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Successive intervals under one limit that had too few requests each."""

    limit: int = 0
    intervals: int = 0
    requests: int = 0
    throughput: float = 0.0
    """Mean over the intervals."""
    log_p95: float = 0.0
    """Mean over the requests."""


@dataclass(frozen=True, slots=True)
class BanditState:
    """All that the safe bandit remembers."""

    decisions: int = 0
    context: Context | None = None
    """Context of the last decision."""
    learned: tuple[Learned, ...] = ()
    """A bounded number, the last used first."""
    pool: Pool = Pool()


@dataclass(frozen=True, slots=True)
class ConcurrencyTuning:
    """What is known of a policy's concurrency at the instant of a snapshot."""

    guard_s: float
    """Highest p95 latency, seconds."""
    lowest: int
    highest: int
    start: int
    """Limit that the replicas are configured with."""
    wanted: int
    """Limit that was decided last; `start` before the first decision."""
    follows: bool = False
    """Whether the replicas follow the decisions; else `start` stays in force, and they are recommendations."""
    config_map: str = ""
    """ConfigMap, `namespace/name`, to which the limit in force is written; empty: none."""
    state: BanditState = BanditState()
    decided_at_s: float = -math.inf
    """Instant of the observation that was decided on last, seconds since the epoch."""
    seen: Observation | None = None
    """Last observation; None: there is none yet."""
    seen_at_s: float = -math.inf
    """End of its interval, seconds since the epoch."""
    problem: str = ""
    """Why the last interval was not observed, as `Code: words`; empty: it was."""

    @property
    def in_force(self) -> int:
        """Limit that the replicas work with now."""
        return self.in_force_after(self.wanted)

    def in_force_after(self, decided: int) -> int:
        """Limit that the replicas should work with once this one is decided."""
        return decided if self.follows else self.start

    @property
    def is_due(self) -> bool:
        """Whether there is an observation that was not decided on. Since the last one is part of the status, a repeated
        cycle and a new leader decide on each just once."""
        return self.seen is not None and self.seen_at_s > self.decided_at_s


@dataclass(frozen=True, slots=True)
class ConcurrencyLimit:
    """Limit that was decided for a policy's replicas, and what the next decision needs."""

    scaler: str
    """`namespace/name` of the ScalingPolicy."""
    at_s: float
    """Instant of the observation, seconds since the epoch."""
    limit: int
    code: str
    """Cause, as in a condition's reason: `Raised`, `Breach`."""
    words: str
    state: BanditState


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


DOWN_STABILIZATION_S = 300.0
"""Default stabilization of scaling down. Chosen on two public traces for as few direction changes as HPA has with its
300 s at a coarser tolerance, and checked on others (docs/autoscaler.md)."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """Limits on changes of the replicas."""

    up: ScalingRules = field(default_factory=ScalingRules)
    down: ScalingRules = field(default_factory=lambda: ScalingRules(stabilization_s=DOWN_STABILIZATION_S))


@dataclass(frozen=True, slots=True)
class ScalingObjective:
    """Costs that the decision weighs against each other."""

    price_per_hour: float = 1.0
    """Price of one replica and hour, dollars."""
    miss_cost: float = 120.0
    """Cost of load that is not served, as a multiple of the price of the capacity that would have served it."""
    switch_s: float = 0.0
    """Cost of starting or stopping one replica, in seconds of its price (loading weights, draining streams)."""


@dataclass(frozen=True, slots=True)
class MissedShare:
    """Target for the share of the load that is missed, and what was learned to keep it."""

    target: float
    miss_cost: float
    """Miss cost with which it is kept: the mean multiplier of a day."""
    multiplier: float
    """Miss cost that was found last."""
    load: float = 0.0
    """Mean load over a day."""
    share: float = 0.0
    """Share of it that was missed."""
    for_s: float = 0.0
    """Time that was observed, two days at most."""
    at_s: float = 0.0
    """Instant of the last observation, seconds since the epoch."""


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
    ready_load: float | None = None
    """Load that is served now; None: by `replicas.ready` replicas."""
    scheduled: str = ""
    """Name of the schedule that sets the bounds now; empty: they are the policy's own."""
    missed: MissedShare | None = None
    """Target for the missed share; None: the policy has a miss cost."""
    about: str = ""
    """Digest of the target and of what is measured of it: of other ones, nothing that was learned holds."""
    reactive_target: float = 0.7
    """Fraction of a replica's load that is aimed at where there is no forecast and the present load alone decides."""
    demand: Demand | None = None
    """Measured demand of a ModelService: the load as its rate, in requests per second, and the request lengths. None
    for other targets, and where no lengths are known."""
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
