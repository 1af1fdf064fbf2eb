"""Readings: what is asked of which server for one ScalingPolicy, or why a source is not asked."""

from dataclasses import dataclass
from typing import Literal

from autoscaler.demand.presets import PRESETS, Preset, Role
from autoscaler.demand.promql import BadLabelsError, LatencyOf, Service, escaped, measures, service_of
from controller.api.scaling_policy import DemandSource, ScalingPolicy, Target


@dataclass(frozen=True, slots=True)
class Allowed:
    """What policies may ask, by the operator's settings."""

    server: str = ""
    """URL of the operator's Prometheus; empty: there is none."""
    other_servers: tuple[str, ...] = ()
    """Further URLs that policies may name."""
    queries: bool = False
    """Whether policies may have queries of their own."""
    custom_metrics: bool = False
    """Whether the custom metrics API is read."""
    own_namespace: str = ""
    """Namespace of the operator's pods, whose metrics the operator's Prometheus may have recorded; empty: not known."""


@dataclass(frozen=True, slots=True)
class PresetReading:
    """Roles that one query with a preset measures together."""

    server: str
    preset: Preset
    service: Service
    roles: tuple[Role, ...]
    max_age_s: float
    with_lengths: bool
    """Whether request lengths are read, too."""


@dataclass(frozen=True, slots=True)
class QueryReading:
    """A policy's own query."""

    server: str
    query: str
    role: Role
    max_age_s: float

    @property
    def roles(self) -> tuple[Role, ...]:
        return (self.role,)


@dataclass(frozen=True, slots=True)
class CustomReading:
    """Metric of the target in the custom metrics API."""

    target: Target
    metric: str
    selector: tuple[tuple[str, str], ...]
    role: Role
    max_age_s: float

    @property
    def roles(self) -> tuple[Role, ...]:
        return (self.role,)


@dataclass(frozen=True, slots=True)
class ServingReading:
    """Figures of the replicas, by which their concurrency is tuned."""

    server: str
    preset: Preset
    service: Service
    latency: LatencyOf
    every_s: float
    """Seconds from one reading to the next."""

    @property
    def for_s(self) -> float:
        """Length of the measured interval, seconds: before it, a new limit had a third of the time to take effect."""
        return self.every_s * 2 / 3


@dataclass(frozen=True, slots=True)
class RefusedSource:
    """Source that is not asked."""

    role: Role
    code: str
    words: str
    source: Literal["prometheus", "custom"] = "prometheus"


Reading = PresetReading | QueryReading | CustomReading | RefusedSource


def readings_of(policy: ScalingPolicy, allowed: Allowed) -> tuple[Reading, ...]:
    """Readings of a policy. Roles with the same preset, server and labels share one, so that they fit together.

    Pushed samples need none: they come by themselves.
    """
    presets: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[DemandSource]] = {}
    others: list[Reading] = []
    for source in policy.spec.demand.sources:
        asked, custom = source.prometheus, source.custom_metric
        if asked is None:
            if custom is not None and not allowed.custom_metrics:
                words = "the custom metrics API is not read; set autoscaler.custom_metrics"
                others.append(RefusedSource(source.role, "CustomMetricsNotAllowed", words, "custom"))
            elif custom is not None:
                selector = tuple(sorted(custom.selector.items()))
                others.append(CustomReading(policy.spec.target, custom.name, selector, source.role, source.max_age))
            continue
        server = asked.server or allowed.server
        refused = _refused(source, server, allowed)
        if refused is not None:
            others.append(refused)
        elif asked.preset is not None:
            presets.setdefault((server, asked.preset, tuple(sorted(asked.labels.items()))), []).append(source)
        else:
            others.append(QueryReading(server, asked.query or "", source.role, source.max_age))
    with_preset: list[Reading] = []
    for (server, name, labels), sources in presets.items():
        preset, roles = PRESETS[name], tuple(source.role for source in sources)
        try:
            service = service_of(preset, policy.metadata.namespace, dict(labels))
        except BadLabelsError as error:
            with_preset += [RefusedSource(role, "LabelsInvalid", str(error)) for role in roles]
            continue
        with_lengths = policy.spec.target.kind == "ModelService" and bool(preset.lengths)
        max_age_s = min(source.max_age for source in sources)
        with_preset.append(PresetReading(server, preset, service, roles, max_age_s, with_lengths))
    return (*with_preset, *others)


def recorded_reading_of(policy: ScalingPolicy, allowed: Allowed) -> QueryReading | None:
    """Reading of the history of a load that is pushed, or a custom metric; None for others, and without a Prometheus.

    It is what the operator published of it while it was fresh, if the operator's Prometheus scrapes the operator. The
    namespace keeps pods of tenants from adding to it.
    """
    source = policy.spec.demand.load
    if source.prometheus is not None or not (allowed.server and allowed.own_namespace):
        return None
    name = f"{policy.metadata.namespace}/{policy.metadata.name}"
    where = f'namespace="{escaped(allowed.own_namespace)}",policy="{escaped(name)}"'
    fresh = f"tonnage_scaling_sample_age_seconds{{{where}}} < {source.max_age:g}"
    query = f"max(tonnage_scaling_load{{{where}}} and {fresh})"
    return QueryReading(allowed.server, query, source.role, source.max_age)


def serving_reading_of(policy: ScalingPolicy, allowed: Allowed) -> ServingReading | RefusedSource | None:
    """Reading of the replicas' figures, through the first source of demand whose preset has them; None: the policy's
    concurrency is not tuned."""
    wanted = policy.spec.concurrency
    if wanted is None:
        return None
    for source in policy.spec.demand.sources:
        asked = source.prometheus
        if asked is None or asked.preset is None or not measures(PRESETS[asked.preset], wanted.latency):
            continue
        server = asked.server or allowed.server
        if refused := _refused(source, server, allowed):
            return refused
        try:
            service = service_of(PRESETS[asked.preset], policy.metadata.namespace, asked.labels)
        except BadLabelsError as error:
            return RefusedSource(source.role, "LabelsInvalid", str(error))
        return ServingReading(server, PRESETS[asked.preset], service, wanted.latency, wanted.interval)
    having = ", ".join(name for name, preset in PRESETS.items() if measures(preset, wanted.latency))
    words = f"no source has a preset that measures latency by {wanted.latency}: use {having}"
    return RefusedSource(policy.spec.demand.sources[0].role, "NotMeasured", words)


def _refused(source: DemandSource, server: str, allowed: Allowed) -> RefusedSource | None:
    asked = source.prometheus
    if not server:
        words = "the operator has no Prometheus; set autoscaler.prometheus.url"
        return RefusedSource(source.role, "NoPrometheus", words)
    if server not in (allowed.server, *allowed.other_servers):
        words = f"{server} is not among autoscaler.prometheus.other_urls"
        return RefusedSource(source.role, "ServerNotAllowed", words)
    if asked is not None and asked.query is not None and not allowed.queries:
        words = "queries of policies could read other namespaces; set autoscaler.prometheus.allow_queries, or a preset"
        return RefusedSource(source.role, "QueriesNotAllowed", words)
    return None
