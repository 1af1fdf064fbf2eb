"""Serving figures: how the replicas of one service worked under their concurrency limit, over one interval."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from autoscaler.concurrency.tuner import length_bucket
from autoscaler.demand.presets import Figure, Preset
from autoscaler.demand.promql import Service, Windows, labelled
from cluster.autoscaling import Context, Observation

LatencyOf = Literal["request", "token"]
_P95: Mapping[LatencyOf, Figure] = {"request": "request_p95", "token": "token_p95"}


@dataclass(frozen=True, slots=True)
class Serving:
    """Measured figures of all replicas together."""

    at_s: float
    """End of the interval, seconds since the epoch."""
    for_s: float
    """Its length, seconds."""
    latency: LatencyOf = "request"
    """Which latency is bounded."""
    figures: Mapping[Figure, float] = field(default_factory=dict)
    """What was measured; a figure that is missing was not."""


def measures(preset: Preset, latency: LatencyOf) -> bool:
    """Whether a preset has the figures that tuning needs."""
    return {"throughput", "completed", "in_flight", "replicas", _P95[latency]} <= set(preset.serving)


def serving_query(preset: Preset, service: Service, windows: Windows) -> str:
    """One query for all figures. windows: rate_s is the length of the interval."""
    return labelled(preset.serving, service, windows)


def observation_from(serving: Serving, limit: int, gpu_type: str, *, scaling: bool) -> Observation:
    """Observation of one replica in the mean. limit: in force. gpu_type: of the replicas. scaling: whether their number
    changed."""
    known = {name: value for name, value in serving.figures.items() if math.isfinite(value) and value >= 0}
    replicas = known.get("replicas", 0.0)
    before = known.get("replicas_before", replicas)

    def of_each(figure: Figure) -> float:
        return known[figure] / replicas if figure in known and replicas else math.nan

    context = Context(
        gpu_type, length_bucket(known.get("input_mean", 0.0)), length_bucket(known.get("output_mean", 0.0))
    )
    return Observation(
        limit=limit,
        context=context,
        throughput=of_each("throughput"),
        requests=int(known.get("completed", 0.0)),
        p95_s=known.get(_P95[serving.latency], math.nan),
        in_flight=of_each("in_flight"),
        memory_share=known.get("memory", math.nan),
        scaling=scaling or (replicas > 0 and replicas != before),
    )
