"""Metrics of ScalingPolicies after a cycle. Pure."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from cluster.autoscaling import ConcurrencyLimit, Scaler
from cluster.plans import Finding, Reason
from cluster.snapshot import Snapshot
from controller.metrics.registry import Sample
from controller.report.scaling_status import NO_LIMITS, limit_of
from controller.snapshot.scalers import is_past_bound

COSTS = {"cost_per_hour": "chosen", "cost_one_fewer": "one_fewer", "cost_one_more": "one_more"}


def samples_of_scaling(
    now: Snapshot, findings: Iterable[Finding], limits: Iterable[ConcurrencyLimit] = ()
) -> Iterator[Sample]:
    """Gauges of every policy that is not off. findings, limits: of the plan."""
    found = {each.about: each.reason for each in findings}
    decided = {each.scaler: each.limit for each in limits}
    for scaler in now.scalers:
        if scaler.mode != "Off" and not is_past_bound(scaler):
            yield from _measured(scaler, now.at_s)
            yield from _forecast(scaler)
            yield from _concurrency(scaler, decided.get(scaler.name))
            reason = found.get(f"ScalingPolicy/{scaler.name}")
            if reason is not None:
                yield from _decision(scaler.name, reason)


def _measured(scaler: Scaler, at_s: float) -> Iterator[Sample]:
    name, age_s = (scaler.name,), at_s - scaler.observed_at_s
    if scaler.replicas is not None:
        yield Sample("tonnage_scaling_replicas", (scaler.name, "wanted"), scaler.replicas.wanted)
        yield Sample("tonnage_scaling_replicas", (scaler.name, "ready"), scaler.replicas.ready)
        yield Sample("tonnage_scaling_capacity", name, scaler.replicas.ready * scaler.replica_load)
    if scaler.load is not None:
        yield Sample("tonnage_scaling_load", name, scaler.load)
        yield Sample("tonnage_scaling_sample_age_seconds", name, age_s)
    yield Sample("tonnage_scaling_metrics_missing", name, scaler.load is None or age_s >= scaler.max_age_s)
    yield Sample("tonnage_scaling_conflict", name, bool(scaler.conflict))


def _forecast(scaler: Scaler) -> Iterator[Sample]:
    name, points_s = scaler.name, scaler.lead_time.points_s
    for level in (0.5, 0.95):
        yield Sample("tonnage_scaling_lead_seconds", (name, f"{level:g}"), float(np.quantile(points_s, level)))
    if scaler.forecast is not None:
        ahead_s = float(np.median(points_s)) + max(0.0, scaler.observed_at_s - scaler.forecast.made_at_s)
        for level in (0.5, 0.9, 0.99):
            load = scaler.forecast.quantile(level, ahead_s)
            yield Sample("tonnage_scaling_forecast", (name, f"{level:g}"), load)
    skill = scaler.skill
    if skill is not None:
        coverages: Mapping[str, float | None] = {"90": skill.coverage_90, "99": skill.coverage_99}
        for interval, coverage in coverages.items():
            if coverage is not None:
                yield Sample("tonnage_scaling_coverage_ratio", (name, interval), coverage)
        if skill.skill is not None:
            yield Sample("tonnage_scaling_skill_ratio", (name,), skill.skill)


def _concurrency(scaler: Scaler, decided: int | None) -> Iterator[Sample]:
    tuning = scaler.concurrency
    if tuning is None:
        return
    wanted = tuning.wanted if decided is None else decided
    limits = {"wanted": wanted, "in_force": tuning.in_force_after(wanted)}
    for which, limit in limits.items():
        yield Sample("tonnage_scaling_concurrency_limit", (scaler.name, which), limit)
    seen = tuning.seen
    if seen is not None and seen.complete:
        yield Sample("tonnage_scaling_concurrency_in_flight", (scaler.name,), seen.in_flight)
        yield Sample("tonnage_scaling_concurrency_latency_seconds", (scaler.name,), seen.p95_s)


def _decision(name: str, reason: Reason) -> Iterator[Sample]:
    for figure, replicas in COSTS.items():
        if figure in reason.figures:
            yield Sample("tonnage_scaling_cost_dollars_per_hour", (name, replicas), reason.figures[figure])
    if (limit := limit_of(reason)) not in NO_LIMITS:
        yield Sample("tonnage_scaling_limited", (name, limit), 1)
