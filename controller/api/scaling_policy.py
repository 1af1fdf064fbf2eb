"""ScalingPolicy: how the replicas of a target follow its load: demand sources, objective, limits and mode."""

from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Literal, get_args
from zoneinfo import ZoneInfo

from pydantic import Field

from controller.api import fields
from controller.api.conditions import ObservedStatus
from controller.api.kind import AGE, Kind, PrinterColumn, condition, reason
from controller.api.rule import Flaw, Rule

Role = Literal["load", "requests", "inputTokens", "outputTokens", "queue"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Roles by precedence: the first one that a policy has a source for is its load; the others are indicators."""
Preset = Literal["vllm", "sglang", "triton", "dynamo", "inferenceGateway", "istio", "envoyGateway", "rayServe"]
Mode = Literal["Off", "Recommend", "ScaleUpOnly", "Auto"]
Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

MOST_REPLICAS = 100_000
"""Upper bound of replicas. Source: Kubernetes supports 150,000 pods in a cluster."""
SCALE_DOWN_WINDOW_S = 300
"""Default stabilization of scaling down: cluster.autoscaling.DOWN_STABILIZATION_S, without importing its arrays."""
TIME_OF_DAY = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
TIME_ZONE = r"^[A-Za-z][A-Za-z0-9_+/-]{0,63}$"

MOST_CONCURRENT = 100_000
"""Upper bound of the requests that one replica serves at once; vLLM's largest default is 1,024."""
SHORTEST_INTERVAL_S = 60.0
"""Shortest time between two decisions on concurrency. A rate needs two scrapes, mostly 15 s apart, in 40 s."""

LONGEST_HISTORY_S = 31 * 86_400.0
"""Longest history, in steps of a minute 220 kB of memory. Seasons that are learned are days and weeks."""

Concurrency = Annotated[int, Field(ge=1, le=MOST_CONCURRENT)]
Replicas = Annotated[int, Field(ge=0, le=MOST_REPLICAS)]
LabelText = Annotated[str, Field(max_length=253)]


class Target(fields.Strict):
    """Object that is scaled, in the namespace of the policy."""

    api_version: str = Field(
        max_length=128,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+$",
        description="API version of the target (`apps/v1`, `tonnage.dev/v1alpha1`).",
    )
    kind: str = Field(
        pattern=r"^[A-Z][A-Za-z0-9]{0,62}$",
        description="Kind of the target: ModelService, or any kind with a scale subresource (`Deployment`).",
    )
    name: fields.ObjectName = Field(description="Name of the target.")


class PrometheusSource(fields.Strict):
    """Prometheus query of offered load."""

    preset: Preset | None = Field(
        default=None, description="Ready-made queries for the metric names of this server; instead of query."
    )
    query: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="PromQL expression with one result: the offered load now. A rate of arrivals, rejected and queued "
        "ones included; the rate of served requests saturates with the replicas.",
    )
    labels: Annotated[dict[str, LabelText], Field(max_length=16)] = Field(
        default={}, description="Labels of the target's series for a preset, beside the policy's namespace."
    )
    server: str | None = Field(
        default=None,
        pattern=r"^https?://[^ ]{1,500}$",
        description="URL of Prometheus, among those of the operator's settings; default: the first of them.",
    )


class CustomMetricSource(fields.Strict):
    """Metric of the target in the custom metrics API (custom.metrics.k8s.io)."""

    name: str = Field(
        min_length=1, max_length=253, pattern=r"^[A-Za-z_:/][A-Za-z0-9_:./-]*$", description="Name of the metric."
    )
    selector: Annotated[dict[str, LabelText], Field(max_length=16)] = Field(
        default={}, description="Labels that the metric must have."
    )


class PushSource(fields.Strict):
    """Samples that a program sends to the operator's push endpoint."""


class DemandSource(fields.Strict):
    """Source of one measured quantity; exactly one of prometheus, customMetric and push."""

    role: Role = Field(
        default="load",
        description="Measured quantity. load: offered load in the policy's own unit. requests: requests per second. "
        "inputTokens, outputTokens: tokens per second. queue: waiting requests.",
    )
    prometheus: PrometheusSource | None = Field(default=None, description="Prometheus query.")
    custom_metric: CustomMetricSource | None = Field(default=None, description="Metric of the custom metrics API.")
    push: PushSource | None = Field(default=None, description="Samples sent to the operator's push endpoint.")
    max_age: fields.Duration = Field(
        default=120.0, description="Age from which the last sample is stale; then nothing is scaled down."
    )


class DemandSources(fields.Strict):
    """Measured demand of the target."""

    sources: Annotated[fields.ListOf[DemandSource], Field(min_length=1, max_length=5), fields.keyed_by("role")] = Field(
        description="Sources, one for each role. The first of load, requests, inputTokens, outputTokens and queue that "
        "has a source is the load, also while that fails; the others are indicators."
    )

    @property
    def load(self) -> DemandSource:
        """Source of the load: that of the first role, measured or not. Otherwise the load would change its unit when
        one source fails."""
        return min(self.sources, key=lambda source: ROLES.index(source.role))


class ReplicaCapacity(fields.Strict):
    """Capacity of the target's replicas."""

    per_replica: fields.PositiveNumber = Field(
        description="Load that one replica serves within its SLO, in the unit of the load."
    )
    elastic: bool = Field(
        default=False,
        description="Whether nodes are added while pods wait (cluster autoscaler). Otherwise replicas with GPUs are "
        "not scaled up beyond what the free, trusted and powered nodes hold.",
    )


class LeadTimePolicy(fields.Strict):
    """Time from the order of a replica to its readiness."""

    fixed: fields.Duration | None = Field(
        default=None, description="Fixed lead time; default: learned from the observed starts of the target's pods."
    )
    assumed: fields.Duration | None = Field(
        default=None,
        description="Assumed lead time until enough starts were observed; default: between 1 and 5 minutes.",
    )


class Objective(fields.Strict):
    """Costs that are weighed against each other."""

    missed: Annotated[float, Field(ge=0.0001, le=0.1)] | None = Field(
        default=None,
        description="Share of the load that may be missed (0.005: one request in 200). The miss cost with which just "
        "that is missed is then learned, and missCost does not count.",
    )
    miss_cost: fields.PositiveNumber = Field(
        default=120.0,
        description="Cost of load that is not served, as a multiple of the price of the capacity that would have "
        "served it. 120 serves all of the load in 99 of 100 minutes.",
    )
    replica_hour_price: fields.NumberFromZero | None = Field(
        default=None, description="Price of one replica and hour, dollars; default: that of gpuType, or 1."
    )
    gpu_type: fields.ObjectName | None = Field(
        default=None, description="GPUType whose on-demand price is that of each GPU of a replica."
    )
    gpus: int = Field(default=1, ge=1, le=64, description="GPUs of one replica; only with gpuType.")
    switch_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=0.0, description="Cost of starting or stopping one replica, in seconds of its price."
    )


class ForecastPolicy(fields.Strict):
    """Forecast of the load."""

    model: Literal["auto", "core"] = Field(
        default="auto",
        description="auto: of all models, whichever had the smaller loss on this load lately. core: the same; it "
        "once left out gradient-boosted quantiles, which are gone.",
    )
    history: fields.Duration = Field(
        default=14 * 86_400.0, description="Oldest load that is learned from (`336h`), at most 744h."
    )


class BehaviorStep(fields.Strict):
    """Largest change in a period, as in autoscaling/v2 HPAScalingPolicy."""

    type: Literal["Pods", "Percent"] = Field(description="Whether value is a number of replicas or a percentage.")
    value: int = Field(ge=1, le=MOST_REPLICAS, description="Largest change within the period.")
    period_seconds: int = Field(ge=1, le=1800, description="Length of the period, seconds.")


class ScalingBehavior(fields.Strict):
    """Limits on changes in one direction, as in autoscaling/v2 HPAScalingRules."""

    stabilization_window_seconds: int = Field(
        default=0,
        ge=0,
        le=3600,
        description="Seconds over which the most cautious recommendation counts: the highest for scaling down, the "
        "lowest for scaling up.",
    )
    select_policy: Literal["Max", "Min", "Disabled"] = Field(
        default="Max", description="Which of the policies' limits counts; Disabled: no change in this direction."
    )
    policies: fields.ListOf[BehaviorStep] = Field(
        default=(), max_length=8, description="Limits on the change in a period; none: no limit."
    )
    tolerance: fields.Fraction = Field(default=0.0, description="Smallest relative change that is made.")


class ScaleDownBehavior(ScalingBehavior):
    """Limits on scaling down, which waits by default: the one default that differs from scaling up."""

    stabilization_window_seconds: int = Field(
        default=SCALE_DOWN_WINDOW_S,
        ge=0,
        le=3600,
        description="Seconds over which the highest recommendation counts.",
    )


class PolicyBehavior(fields.Strict):
    """Limits on changes, with the names and the meaning of autoscaling/v2 HorizontalPodAutoscalerBehavior."""

    scale_up: ScalingBehavior = Field(default=ScalingBehavior(), description="Limits on scaling up.")
    scale_down: ScaleDownBehavior = Field(default=ScaleDownBehavior(), description="Limits on scaling down.")


class Fallback(fields.Strict):
    """Replicas during an outage of the metrics. It only ever adds: an outage never removes a replica."""

    replicas: Replicas = Field(description="Lowest number of replicas while the metrics are missing.")
    after: fields.Duration = Field(
        default=600.0, description="Age of the last sample from which it counts, longer than maxAge."
    )


class ConcurrencyPolicy(fields.Strict):
    """Tuning of the concurrency of each replica (its maximum number of sequences)."""

    tune: bool = Field(
        default=False,
        description="Whether the replicas follow status.concurrency.limit in mode Auto. Else, and in other modes, it "
        "is a recommendation, and start stays in force.",
    )
    min: Concurrency = Field(default=1, description="Lowest concurrency.")
    max: Concurrency = Field(description="Highest concurrency.")
    start: Concurrency | None = Field(
        default=None,
        description="Concurrency that the replicas are configured with, in force until the first decision; default: "
        "max.",
    )
    p95: fields.Duration = Field(
        description="Upper bound of the 95th percentile of latency; a change that breaks it is undone."
    )
    latency: Literal["request", "token"] = Field(
        default="request",
        description="What p95 bounds. request: time of a request inside a replica, without its wait in a queue. token: "
        "time from one output token to the next.",
    )
    config_map: fields.ObjectName | None = Field(
        default=None,
        description="ConfigMap in the policy's namespace to which the limit in force is written, as its key "
        "`concurrency`; its other keys are left alone. Default: the limit is in the status only.",
    )
    interval: fields.Duration = Field(
        default=300.0,
        description="Time from one decision to the next, at least a minute. The last two thirds of it are measured, so "
        "that a new limit has the first third to take effect.",
    )

    @property
    def start_limit(self) -> int:
        """Concurrency that the replicas are configured with."""
        return self.max if self.start is None else self.start


class Schedule(fields.Strict):
    """Bounds on the replicas at regular times; they replace those of the spec while they hold."""

    name: fields.DnsLabel = Field(description="Name of the schedule.")
    days: Annotated[fields.ListOf[Day], fields.as_set()] = Field(
        default=(), max_length=7, description="Days on which it starts; none: every day."
    )
    start: str = Field(pattern=TIME_OF_DAY, description="Start, `HH:MM`.")
    end: str = Field(pattern=TIME_OF_DAY, description="End, `HH:MM`; not after start: on the following day.")
    timezone: str = Field(
        default="UTC",
        pattern=TIME_ZONE,
        description="Time zone of start and end, by its IANA name (`Europe/Berlin`); daylight saving is followed.",
    )
    min_replicas: Replicas | None = Field(
        default=None, description="Lowest number of replicas meanwhile; default: unchanged."
    )
    max_replicas: Replicas | None = Field(
        default=None, description="Highest number of replicas meanwhile; default: unchanged."
    )


class ScalingPolicySpec(fields.Strict):
    target: Target = Field(description="Object that is scaled, in the same namespace.")
    min_replicas: Replicas = Field(default=1, description="Lowest number of replicas; 0: the target may scale to zero.")
    max_replicas: int = Field(ge=1, le=MOST_REPLICAS, description="Highest number of replicas.")
    demand: DemandSources = Field(description="Sources of the measured demand.")
    capacity: ReplicaCapacity | None = Field(
        default=None,
        description="Capacity of a replica; required except for a ModelService, whose ModelProfiles have it.",
    )
    lead_time: LeadTimePolicy = Field(
        default=LeadTimePolicy(), description="Time from the order of a replica to its readiness."
    )
    objective: Objective = Field(default=Objective(), description="Costs that are weighed against each other.")
    forecast: ForecastPolicy = Field(default=ForecastPolicy(), description="Forecast of the load.")
    behavior: PolicyBehavior = Field(
        default=PolicyBehavior(),
        description="Limits on changes, as in autoscaling/v2; default: scaling down waits, nothing else is limited.",
    )
    fallback: Fallback | None = Field(
        default=None, description="Replicas during an outage of the metrics; default: those that there are."
    )
    concurrency: ConcurrencyPolicy | None = Field(default=None, description="Tuning of each replica's concurrency.")
    mode: Mode = Field(
        default="Recommend",
        description="Off: nothing is computed. Recommend: the decision is reported, and nothing is changed. "
        "ScaleUpOnly: replicas are added, never removed. Auto: both.",
    )
    schedules: Annotated[fields.ListOf[Schedule], Field(max_length=16), fields.keyed_by("name")] = Field(
        default=(),
        description="Bounds at regular times. Where several hold, the highest of their bounds count. minReplicas is "
        "never raised above maxReplicas.",
    )


class ForecastStatus(fields.StatusPart):
    """Forecast of the load at the lead time."""

    p50: float = Field(description="Median of the load.")
    p90: float = Field(description="Load that is exceeded in 1 of 10 cases.")
    p99: float = Field(description="Load that is exceeded in 1 of 100 cases.")
    at_seconds: float = Field(ge=0, description="Lead that the forecast is for, seconds.")
    model: str = Field(default="", max_length=64, description="Model that made it.")


class LeadTimeStatus(fields.StatusPart):
    """Lead time that the decision reckons with."""

    p50: float = Field(ge=0, description="Median, seconds.")
    p95: float = Field(ge=0, description="95th percentile, seconds.")
    samples: int = Field(ge=0, le=MOST_REPLICAS, description="Observed starts; 0: the lead time is assumed or fixed.")
    learned: fields.ListOf[Annotated[float, Field(ge=0)]] = Field(
        default=(), max_length=32, description="The newest observed lead times, oldest first, seconds."
    )


class ExpectedCostStatus(fields.StatusPart):
    """Expected cost of a number of replicas: its price, and that of the load expected to be missed."""

    chosen: float = Field(description="Expected cost of the recommended replicas, dollars per hour.")
    one_fewer: float | None = Field(default=None, description="Expected cost of one replica fewer, dollars per hour.")
    one_more: float | None = Field(default=None, description="Expected cost of one replica more, dollars per hour.")


class PastRecommendation(fields.StatusPart):
    """Recommended number of replicas from an instant on."""

    time: fields.Instant = Field(description="When it was first recommended.")
    replicas: Replicas = Field(description="Recommended replicas.")


class ReplicaChange(fields.StatusPart):
    """Change of the replicas that was made."""

    time: fields.Instant = Field(description="When it was made.")
    change: int = Field(ge=-MOST_REPLICAS, le=MOST_REPLICAS, description="Replicas added; negative: removed.")


Count = Annotated[int, Field(ge=0, le=10**9)]
Logarithm = Annotated[float, Field(ge=-100, le=100)]


class ConcurrencyArm(fields.StatusPart):
    """Means of what was measured under one concurrency."""

    limit: Concurrency = Field(description="Concurrency.")
    weight: fields.PositiveNumber = Field(description="Number of intervals, of which older ones count less.")
    throughput: Logarithm = Field(description="Mean of the logarithm of the throughput of a replica.")
    p95: Logarithm = Field(description="Mean of the logarithm of p95 in seconds.")


class ConcurrencyContext(fields.StatusPart):
    """Knowledge of one kind of load."""

    gpu_type: str = Field(max_length=253, description="GPU types of the replicas.")
    input_bucket: int = Field(ge=0, le=100, description="Bucket of the mean prompt: up to 4, 16, 64, ... tokens.")
    output_bucket: int = Field(ge=0, le=100, description="Bucket of the mean output, likewise.")
    used_at: Count = Field(description="Number of the last decision on it.")
    limit: Concurrency = Field(description="Concurrency decided last.")
    ceiling: fields.PositiveNumber = Field(description="Highest concurrency that may be tried.")
    arms: Annotated[fields.ListOf[ConcurrencyArm], Field(max_length=32), fields.keyed_by("limit")] = Field(
        default=(), description="What was measured, by concurrency."
    )
    throughput_scatter: fields.NumberFromZero = Field(default=0.0, description="Variance of log throughput.")
    p95_scatter: fields.NumberFromZero = Field(default=0.0, description="Variance of log p95.")
    scatter_weight: fields.NumberFromZero = Field(default=0.0, description="Number of intervals behind the variances.")
    surprised: bool = Field(default=False, description="Whether the last interval was too unusual to count alone.")


class ConcurrencyPool(fields.StatusPart):
    """Intervals under one limit with too few requests each, which are judged together."""

    limit: Concurrency = Field(description="Concurrency in force.")
    intervals: Count = Field(description="Number of intervals.")
    requests: Count = Field(description="Number of requests.")
    throughput: fields.NumberFromZero = Field(description="Mean throughput of a replica.")
    log_p95: Logarithm = Field(description="Mean of the logarithm of p95.")


class ConcurrencyStatus(fields.StatusPart):
    """Tuned concurrency, what it was decided by, and what was learned; a restart goes on from here."""

    limit: Concurrency = Field(description="Requests that each replica should serve at once.")
    in_force: Concurrency = Field(description="Requests that each replica may serve at once now.")
    time: fields.Instant | None = Field(default=None, description="End of the interval that was decided on last.")
    reason: str = Field(default="", max_length=64, description="Cause of the limit, in one word.")
    message: str = Field(default="", max_length=1024, description="Cause of the limit.")
    decisions: Count = Field(default=0, description="Number of decisions.")
    learned: fields.ListOf[ConcurrencyContext] = Field(
        default=(), max_length=16, description="What was learned of each kind of load, the last one first."
    )
    pool: ConcurrencyPool | None = Field(default=None, description="Intervals with too few requests.")


class MissedStatus(fields.StatusPart):
    """What was learned to keep the objective's missed share."""

    miss_cost: float = Field(ge=0, description="Miss cost with which the share is kept: a day's mean multiplier.")
    multiplier: float | None = Field(default=None, ge=0, description="Miss cost that was found last.")
    load: float = Field(ge=0, description="Mean load of the last day.")
    share: float = Field(ge=0, description="Share of it that was missed.")
    seconds: float = Field(ge=0, description="Time that was observed, two days at most.")
    time: fields.Instant = Field(description="When it was last observed.")


class ScalingPolicyStatus(ObservedStatus):
    """State of the policy. Conditions: Accepted, Ready, MetricsAvailable, ForecastTrusted, ScalingLimited, Conflict,
    ConcurrencyTuned (with spec.concurrency)."""

    about: str | None = Field(
        default=None, max_length=64, description="Digest of the target and the sources that this status is about."
    )
    current_replicas: Replicas | None = Field(default=None, description="Replicas that serve now.")
    desired_replicas: Replicas | None = Field(default=None, description="Replicas that the target's spec asks for.")
    recommended_replicas: Replicas | None = Field(default=None, description="Replicas that the decision asks for.")
    missed: MissedStatus | None = Field(default=None, description="Missed share of the load, with objective.missed.")
    load: float | None = Field(default=None, ge=0, description="Last measured load.")
    load_time: fields.Instant | None = Field(default=None, description="When the load was measured.")
    replica_load: float | None = Field(default=None, ge=0, description="Load that one replica serves within its SLO.")
    forecast: ForecastStatus | None = Field(default=None, description="Forecast of the load at the lead time.")
    lead_time: LeadTimeStatus | None = Field(default=None, description="Lead time that the decision reckons with.")
    coverage90: fields.Fraction | None = Field(
        default=None, description="Fraction of past loads within the forecasts' 90 % interval."
    )
    coverage99: fields.Fraction | None = Field(
        default=None, description="Fraction of past loads within the forecasts' 99 % interval."
    )
    skill: float | None = Field(
        default=None, description="1 - loss of the forecasts / loss of naive ones; above 0: better than naive."
    )
    chosen_quantile: fields.Fraction | None = Field(
        default=None, description="Probability that the recommended replicas serve the load at the lead time."
    )
    expected_cost: ExpectedCostStatus | None = Field(
        default=None, description="Expected cost of the recommended replicas, and of one fewer and one more."
    )
    limited_by: str | None = Field(
        default=None, max_length=64, description="What limited the decision; absent: nothing did."
    )
    recommendations: fields.ListOf[PastRecommendation] = Field(
        default=(), max_length=64, description="Earlier recommendations that stabilization still needs, oldest first."
    )
    changes: fields.ListOf[ReplicaChange] = Field(
        default=(), max_length=64, description="Earlier changes that limits on changes still need, oldest first."
    )
    last_scale_time: fields.Instant | None = Field(default=None, description="When the replicas were last changed.")
    concurrency: ConcurrencyStatus | None = Field(default=None, description="Tuned concurrency of each replica.")


class ScalingPolicy(fields.OwnKind):
    """How the replicas of a target follow its load."""

    kind: Literal["ScalingPolicy"]
    spec: ScalingPolicySpec = Field(description="Target, demand, objective, limits and mode.")
    status: ScalingPolicyStatus = Field(default=ScalingPolicyStatus(), description="Written by Tonnage.")

    @cached_property
    def about(self) -> str:
        """Digest of the target and of what is measured of it: of other ones, nothing that was learned holds."""
        what = self.spec.demand.model_dump_json(exclude={"sources": {"__all__": {"max_age"}}})
        return blake2b((self.spec.target.model_dump_json() + what).encode(), digest_size=8).hexdigest()

    @property
    def own_status(self) -> ScalingPolicyStatus:
        """The status, without what was learned of another target or by another query."""
        return self.status if self.status.about in (None, self.about) else ScalingPolicyStatus()


def _bounds_in_order(schedule: Schedule) -> bool:
    low, high = schedule.min_replicas, schedule.max_replicas
    return low is None or high is None or low <= high


def _zone_flaws(policy: ScalingPolicy) -> Iterator[Flaw]:
    for n, schedule in enumerate(policy.spec.schedules):
        try:
            ZoneInfo(schedule.timezone)
        except (KeyError, ValueError, OSError):  # unknown, malformed, or a folder of zones
            yield Flaw(
                ("spec", "schedules", n, "timezone"),
                f"{schedule.timezone} is no known time zone",
                "use an IANA name such as Europe/Berlin",
            )


RULES = (
    Rule(
        ("spec",),
        "(has(self.minReplicas) ? self.minReplicas : 1) <= self.maxReplicas",
        "minReplicas is above maxReplicas; lower minReplicas or raise maxReplicas",
        lambda spec: spec.min_replicas <= spec.max_replicas,
    ),
    Rule(
        ("spec",),
        "self.target.kind == 'ModelService' || has(self.capacity)",
        "capacity is required for this target; set capacity.perReplica to what one serves",
        lambda spec: spec.target.kind == "ModelService" or spec.capacity is not None,
    ),
    Rule(
        ("spec", "demand", "sources", "[]"),
        "[has(self.prometheus), has(self.customMetric), has(self.push)].filter(each, each).size() == 1",
        "has not exactly one of prometheus, customMetric and push; name one source for each role",
        lambda source: sum(each is not None for each in (source.prometheus, source.custom_metric, source.push)) == 1,
    ),
    Rule(
        ("spec", "demand", "sources", "[]", "prometheus"),
        "has(self.preset) != has(self.query)",
        "has not exactly one of preset and query; choose a preset or write a query",
        lambda source: (source.preset is None) != (source.query is None),
    ),
    Rule(
        ("spec", "objective"),
        "!has(self.replicaHourPrice) || !has(self.gpuType)",
        "has both replicaHourPrice and gpuType; keep one of them",
        lambda objective: objective.replica_hour_price is None or objective.gpu_type is None,
    ),
    Rule(
        ("spec", "concurrency"),
        "(has(self.min) ? self.min : 1) <= self.max",
        "min is above max; lower min or raise max",
        lambda concurrency: concurrency.min <= concurrency.max,
    ),
    Rule(
        ("spec", "concurrency"),
        "!has(self.start) || ((has(self.min) ? self.min : 1) <= self.start && self.start <= self.max)",
        "start is outside of min to max; choose bounds that contain it",
        lambda concurrency: concurrency.start is None or concurrency.min <= concurrency.start <= concurrency.max,
    ),
    Rule(
        ("spec", "concurrency"),
        f"!has(self.interval) || duration(self.interval) >= duration('{SHORTEST_INTERVAL_S:.0f}s')",
        "interval is below 60s; two scrapes must fit into two thirds of it",
        lambda concurrency: concurrency.interval >= SHORTEST_INTERVAL_S,
    ),
    Rule(
        ("spec", "forecast"),
        f"!has(self.history) || duration(self.history) <= duration('{LONGEST_HISTORY_S:.0f}s')",
        "history is above 744h; a month is the most that is learned from",
        lambda forecast: forecast.history <= LONGEST_HISTORY_S,
    ),
    Rule(
        ("spec", "schedules", "[]"),
        "has(self.minReplicas) || has(self.maxReplicas)",
        "has neither minReplicas nor maxReplicas; set the bound that should hold then",
        lambda schedule: schedule.min_replicas is not None or schedule.max_replicas is not None,
    ),
    Rule(
        ("spec", "schedules", "[]"),
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        "minReplicas is above maxReplicas; lower minReplicas or raise maxReplicas",
        _bounds_in_order,
    ),
)

KIND = Kind(
    model=ScalingPolicy,
    plural="scalingpolicies",
    short_names=("sp",),
    is_namespaced=True,
    columns=(
        PrinterColumn("Target", ".spec.target.name", "string", "Name of the target."),
        PrinterColumn("Mode", ".spec.mode", "string", "Mode of the policy."),
        PrinterColumn("Current", ".status.currentReplicas", "integer", "Replicas that serve now."),
        PrinterColumn("Desired", ".status.desiredReplicas", "integer", "Replicas that the target's spec asks for."),
        PrinterColumn("Recommended", ".status.recommendedReplicas", "integer", "Replicas that the decision asks for."),
        PrinterColumn("P99", ".status.forecast.p99", "number", "99th percentile of the load at the lead time."),
        PrinterColumn("Limited by", ".status.limitedBy", "string", "What limited the decision."),
        PrinterColumn("Kind", ".spec.target.kind", "string", "Kind of the target.", is_wide=True),
        PrinterColumn("Load", ".status.load", "number", "Last measured load.", is_wide=True),
        condition("Ready", "Whether the policy decides by fresh metrics, and nothing opposes it."),
        reason("Ready"),
        AGE,
    ),
    rules=RULES,
    checks=(_zone_flaws,),  # the condition Accepted reports those of an object on a cluster
    watched_as="scaling_policies",
)
