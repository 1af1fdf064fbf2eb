"""PromQL of one service: a preset's expressions with matchers that no label of a policy can widen."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any, Literal

from autoscaler.demand.presets import Figure, LengthOf, Preset, Quantity
from cluster.autoscaling import Context, Observation

QUANTITY = "tonnage_quantity"
"""Label that tells the results of a combined query apart."""
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_MATCHED = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=")


class BadLabelsError(ValueError):
    """Labels of a policy that a preset cannot use."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of rates, seconds."""

    rate_s: float = 60.0
    """Window of rates; at least two scrape intervals, or there is nothing to subtract."""
    lengths_s: float = 3600.0
    """Window of request lengths; long, because lengths change slower than rates."""


@dataclass(frozen=True, slots=True)
class Service:
    """Matchers of the series of one service."""

    matchers: str
    without_model: str
    """The same without a matcher of the label `model`."""


def service_of(preset: Preset, namespace: str, labels: Mapping[str, str]) -> Service:
    """Matchers of a policy's service, limited to its namespace.

    Raises BadLabelsError for labels that are missing, malformed, or set by the preset itself.
    """
    for name in preset.required:
        if name not in labels:
            raise BadLabelsError(f"preset {preset.name} needs the label {name}")
    in_scope = {name: labels[name] for name in preset.required if f"{{{name}}}" in preset.scope}
    for value in (namespace, *in_scope.values()):
        if not _OBJECT_NAME.fullmatch(value):
            raise BadLabelsError(f"{value!r} is no name of an object")
    pattern = "=~" in preset.scope
    scope = preset.scope.format(
        **{name: _in_pattern(value) if pattern else value for name, value in in_scope.items()},
        namespace=_in_pattern(namespace) if pattern else namespace,
    )
    taken = {*_MATCHED.findall(re.sub(r'"[^"]*"', "", preset.scope)), "__name__"}
    rest = {name: value for name, value in labels.items() if name not in in_scope}
    for name in rest:
        if name in taken or not _LABEL_NAME.fullmatch(name):
            raise BadLabelsError(f"the label {name!r} cannot be chosen with preset {preset.name}")
    every = [scope, *(f'{name}="{escaped(value)}"' for name, value in sorted(rest.items()))]
    return Service(",".join(every), ",".join(each for each in every if not each.startswith("model=")))


def escaped(value: str) -> str:
    """Text inside a PromQL string in double quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def combined(preset: Preset, service: Service, quantities: Iterable[Quantity], windows: Windows) -> str:
    """One query for several quantities, so that they describe the same instant; each result is named by QUANTITY.

    Quantities that the preset does not have are left out; empty: none is left.
    """
    expressions = {name: preset.expressions[name] for name in quantities if name in preset.expressions}
    return labelled(expressions, service, windows)


def labelled(expressions: Mapping[Any, str], service: Service, windows: Windows) -> str:
    """One query for several expressions of a preset; each result has the expression's key as its label QUANTITY."""
    return " or ".join(
        f'label_replace({_filled(expression, service, windows)}, "{QUANTITY}", "{name}", "", "")'
        for name, expression in expressions.items()
    )


def lengths_query(preset: Preset, service: Service, which: LengthOf, windows: Windows) -> str:
    """Query of the buckets of request lengths; empty where the preset has none."""
    return _filled(preset.lengths[which], service, windows) if which in preset.lengths else ""


def _filled(expression: str, service: Service, windows: Windows) -> str:
    return Template(expression).substitute(
        m=service.matchers,
        o=service.without_model,
        w=_duration(windows.rate_s),
        s=f"{windows.rate_s:g}",
        l=_duration(windows.lengths_s),
    )


def _duration(length_s: float) -> str:
    return f"{round(length_s * 1000)}ms"


def _in_pattern(name: str) -> str:
    """Name of an object inside a regular expression inside a PromQL string."""
    return name.replace(".", "\\\\.")


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


_BUCKET_FACTOR = 4.0
"""Ratio of the lengths at a bucket's borders (chosen: within it, requests need KV cache and time of one order, and a
workload's mean seldom crosses a border)."""


def length_bucket(tokens: float) -> int:
    """Bucket of a mean length in tokens: 0 below 4 tokens, 1 below 16, 2 below 64 and so on."""
    return int(math.log(max(tokens, 1.0)) / math.log(_BUCKET_FACTOR) + 1e-9)


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
