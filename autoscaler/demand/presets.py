"""Presets: PromQL of the offered load, and of request lengths, for common inference servers and gateways.

Metric names were read in the servers' sources and documentation; each preset names the versions. In the expressions,
`$m` stands for the matchers of one service, `$o` for those without the label `model`, `$w` for the window of a rate,
`$s` for its seconds, and `$l` for the window of request lengths.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Quantity = Literal["requests", "queue", "saturation", "input_mean", "output_mean"]
"""What one expression measures. requests: offered requests per second. queue: requests that wait. saturation: used
fraction of the KV cache. input_mean, output_mean: mean tokens of a request."""

LengthOf = Literal["input", "output"]

Figure = Literal[
    "throughput",
    "completed",
    "request_p95",
    "token_p95",
    "in_flight",
    "memory",
    "replicas",
    "replicas_before",
    "input_mean",
    "output_mean",
]
"""Figure of the replicas over an interval, by which their concurrency is tuned. throughput: output tokens, or requests,
per second of all replicas. completed: requests that ended. request_p95, token_p95: 95th percentile of the seconds of a
request inside a replica, and from one output token to the next. in_flight: mean requests that all replicas served at
once. memory: used fraction of the KV cache. replicas, replicas_before: replicas at its end and at its begin."""


@dataclass(frozen=True, slots=True, eq=False)
class Preset:
    """Expressions for one kind of server."""

    name: str
    versions: str
    """Versions whose metric names these are."""
    expressions: Mapping[Quantity, str]
    """PromQL by quantity; each has at most one result, without labels."""
    lengths: Mapping[LengthOf, str] = field(default_factory=dict)
    """PromQL of the buckets of request lengths, one result per bucket edge (`le`); empty: it has none."""
    serving: Mapping[Figure, str] = field(default_factory=dict)
    """PromQL by figure, whose interval is the window of rates; empty: the concurrency of such a server is not tuned."""
    scope: str = 'namespace="{namespace}"'
    """Matchers that limit every expression to one namespace. `{namespace}`, and names in `required`, are filled in."""
    required: tuple[str, ...] = ()
    """Labels that a policy must give, because all services of the namespace would be added up otherwise."""
    is_offered: bool = True
    """Whether requests that are rejected or queued count. Otherwise the rate is a lower bound while a queue exists."""


def _mean(histogram: str) -> str:
    return f"sum(rate({histogram}_sum{{$m}}[$l])) / sum(rate({histogram}_count{{$m}}[$l]))"


def _buckets(histogram: str, matchers: str = "$m") -> str:
    return f"sum by (le) (increase({histogram}_bucket{{{matchers}}}[$l]))"


def _rate(counter: str, matchers: str = "$m") -> str:
    return f"sum(rate({counter}{{{matchers}}}[$w]))"


def _growth(gauge: str) -> str:
    """Growth per second. Requests that came equal those that ended, plus those that stayed."""
    return f"sum(delta({gauge}{{$m}}[$w])) / $s"


def _optional(expression: str) -> str:
    """The expression, and 0 where the server does not have the metric; only as a part of a sum."""
    return f"({expression} or vector(0))"


def _p95(*histograms: str) -> str:
    """95th percentile of the first of these histograms that the server has, in its unit."""
    buckets = (f"sum by (le) (rate({each}_bucket{{$m}}[$w]))" for each in histograms)
    return f"histogram_quantile(0.95, {' or '.join(buckets)})"


def _sum(*expressions: str) -> str:
    return f"clamp_min({' + '.join(expressions)}, 0)"


VLLM = Preset(
    name="vllm",
    versions="0.5 and later; rejections since vllm:admission_rejections_total (September 2026)",
    expressions={
        # Aborted requests are counted in request_success_total, by finished_reason.
        "requests": _sum(
            _rate("vllm:request_success_total"),
            _growth("vllm:num_requests_running"),
            _growth("vllm:num_requests_waiting"),
            _optional(_rate("vllm:admission_rejections_total")),
        ),
        "queue": "sum(vllm:num_requests_waiting{$m})",
        # Renamed in 0.9.
        "saturation": "avg(vllm:kv_cache_usage_perc{$m}) or avg(vllm:gpu_cache_usage_perc{$m})",
        "input_mean": _mean("vllm:request_prompt_tokens"),
        "output_mean": _mean("vllm:request_generation_tokens"),
    },
    lengths={"input": _buckets("vllm:request_prompt_tokens"), "output": _buckets("vllm:request_generation_tokens")},
    serving={
        "throughput": _rate("vllm:generation_tokens_total"),
        "completed": "sum(increase(vllm:request_success_total{$m}[$w]))",
        "request_p95": _p95("vllm:request_inference_time_seconds"),
        # Renamed in 0.11; both exist for some releases.
        "token_p95": _p95("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        "in_flight": "sum(avg_over_time(vllm:num_requests_running{$m}[$w]))",
        "memory": "avg(avg_over_time(vllm:kv_cache_usage_perc{$m}[$w])) "
        "or avg(avg_over_time(vllm:gpu_cache_usage_perc{$m}[$w]))",
        "replicas": "count(vllm:num_requests_running{$m})",
        "replicas_before": "count(vllm:num_requests_running{$m} offset $w)",
        "input_mean": _mean("vllm:request_prompt_tokens"),
        "output_mean": _mean("vllm:request_generation_tokens"),
    },
)

SGLANG = Preset(
    name="sglang",
    versions="0.4 and later, started with --enable-metrics; lengths with --collect-tokens-histogram",
    expressions={
        "requests": _sum(
            _rate("sglang:num_requests_total"), _growth("sglang:num_running_reqs"), _growth("sglang:num_queue_reqs")
        ),
        "queue": "sum(sglang:num_queue_reqs{$m})",
        "saturation": "avg(sglang:token_usage{$m})",
        "input_mean": _mean("sglang:prompt_tokens_histogram"),
        "output_mean": _mean("sglang:generation_tokens_histogram"),
    },
    lengths={
        "input": _buckets("sglang:prompt_tokens_histogram"),
        "output": _buckets("sglang:generation_tokens_histogram"),
    },
    # A request that is aborted in the queue leaves it without being counted as ended.
    is_offered=False,
)

TRITON = Preset(
    name="triton",
    versions="24.01 and later; KV cache and lengths with the TensorRT-LLM back end, 25.03 and later",
    expressions={
        "requests": _sum(
            _rate("nv_inference_request_success"),
            _optional(_rate("nv_inference_request_failure")),  # rejected ones among them
            _optional(_growth("nv_inference_pending_request_count")),
        ),
        "queue": "sum(nv_inference_pending_request_count{$m})",
        # The models inside an ensemble have other names than the one that is called.
        "saturation": 'avg(nv_trt_llm_kv_cache_block_metrics{$o,kv_cache_block_type="fraction"})',
        "input_mean": "sum(rate(nv_llm_input_token_len_sum{$o}[$l])) / sum(rate(nv_llm_input_token_len_count{$o}[$l]))",
        "output_mean": "sum(rate(nv_llm_output_token_len_sum{$o}[$l])) "
        "/ sum(rate(nv_llm_output_token_len_count{$o}[$l]))",
    },
    lengths={
        "input": _buckets("nv_llm_input_token_len", "$o"),
        "output": _buckets("nv_llm_output_token_len", "$o"),
    },
    # The models of an ensemble each count the same request.
    required=("model",),
)

DYNAMO = Preset(
    name="dynamo",
    versions="0.7 and later; dynamo_frontend_requests_started_total since 1.4",
    expressions={
        "requests": f"{_rate('dynamo_frontend_requests_started_total')} or "
        + _sum(_rate("dynamo_frontend_requests_total"), _growth("dynamo_frontend_inflight_requests")),
        # Before 1.4 there is only the number of requests that have no first token yet.
        "queue": "sum(dynamo_frontend_router_queue_pending_requests{$m}) or sum(dynamo_frontend_queued_requests{$m})",
        "input_mean": _mean("dynamo_frontend_input_sequence_tokens"),
        "output_mean": _mean("dynamo_frontend_output_sequence_tokens"),
    },
    lengths={
        "input": _buckets("dynamo_frontend_input_sequence_tokens"),
        "output": _buckets("dynamo_frontend_output_sequence_tokens"),
    },
)

INFERENCE_GATEWAY = Preset(
    name="inferenceGateway",
    versions="Gateway API Inference Extension 1.0 and later, llm-d router; queue with flow control",
    expressions={
        # A request is counted when it is scheduled: neither when it waits nor when it is shed.
        "requests": _sum(
            _rate("inference_objective_request_total"),
            _optional(
                _rate("inference_objective_request_error_total", '$m,error_code="InferencePoolResourceExhausted"')
            ),
            _optional(_growth("inference_extension_flow_control_queue_size")),
        ),
        "queue": "sum(inference_extension_flow_control_queue_size{$m})",
        "input_mean": _mean("inference_objective_input_tokens"),
        "output_mean": _mean("inference_objective_output_tokens"),
    },
    lengths={
        "input": _buckets("inference_objective_input_tokens"),
        "output": _buckets("inference_objective_output_tokens"),
    },
)

ISTIO = Preset(
    name="istio",
    versions="1.5 and later",
    # The client's proxy also counts requests that no server received.
    expressions={"requests": _rate("istio_requests_total", '$m,reporter="source"')},
    scope='destination_service_namespace="{namespace}",destination_service_name="{service}"',
    required=("service",),
)

ENVOY_GATEWAY = Preset(
    name="envoyGateway",
    versions="Envoy Gateway 1.0 and later",
    expressions={
        "requests": "clamp_min("
        + _rate("envoy_cluster_upstream_rq_total")
        + f" - {_optional(_rate('envoy_cluster_upstream_rq_retry'))}"
        + f" + {_optional(_rate('envoy_cluster_upstream_rq_pending_overflow'))}"
        + f" + {_optional(_rate('envoy_cluster_upstream_cx_none_healthy'))}, 0)",
        "queue": "sum(envoy_cluster_upstream_rq_pending_active{$m})",
    },
    scope='envoy_cluster_name=~"httproute/{namespace}/{httproute}/rule/[0-9]+"',
    required=("httproute",),
)

RAY_SERVE = Preset(
    name="rayServe",
    versions="Ray 2.10 and later",
    expressions={
        "requests": f"{_rate('ray_serve_num_router_requests_total')} or {_rate('ray_serve_num_router_requests')}",
        "queue": "sum(ray_serve_deployment_queued_queries{$m})",
    },
    serving={
        "throughput": _rate("ray_serve_deployment_processing_latency_ms_count"),
        "completed": "sum(increase(ray_serve_deployment_processing_latency_ms_count{$m}[$w]))",
        "request_p95": f"{_p95('ray_serve_deployment_processing_latency_ms')} / 1000",
        # Little's law: seconds of processing that ended in each second.
        "in_flight": f"{_rate('ray_serve_deployment_processing_latency_ms_sum')} / 1000",
        "replicas": "count(count by (replica) (ray_serve_deployment_processing_latency_ms_count{$m}))",
        "replicas_before": "count(count by (replica) (ray_serve_deployment_processing_latency_ms_count{$m} offset $w))",
    },
    # Every deployment of an application counts the requests that it receives from another one.
    required=("deployment",),
    # The router does not count requests beyond max_queued_requests.
    is_offered=False,
)

PRESETS: Mapping[str, Preset] = {
    preset.name: preset for preset in (VLLM, SGLANG, TRITON, DYNAMO, INFERENCE_GATEWAY, ISTIO, ENVOY_GATEWAY, RAY_SERVE)
}


Role = Literal["load", "requests", "inputTokens", "outputTokens", "queue"]
"""What a source measures of a target. load: offered load in the policy's own unit, the same as `requests` where a
preset measures it. requests: requests per second. inputTokens, outputTokens: tokens per second. queue: waiting
requests."""

SATURATED = 0.9
"""Used fraction of the KV cache from which a server counts as saturated. vLLM preempts requests near 1; llm-d's
autoscaler calls a replica saturated at 0.8."""


@dataclass(frozen=True, slots=True)
class Load:
    """Measured values of one instant."""

    values: Mapping[Role, float]
    """Value by role: requests and tokens per second, waiting requests. A role that is missing was not measured."""
    is_censored: bool
    """Whether the rates are lower bounds of what was offered."""
    is_full: bool | None = None
    """Whether queue and cache say that the servers are full; None: they were not both measured."""


_SHOWN: tuple[Quantity, ...] = ("queue", "saturation")


def quantities(preset: Preset, roles: Iterable[Role]) -> tuple[Quantity, ...]:
    """Quantities that these roles need, and those that show whether the servers are full."""
    wanted: list[Quantity] = [quantity for role in roles for quantity in _NEEDED[role]]
    return tuple(dict.fromkeys(each for each in (*wanted, *_SHOWN) if each in preset.expressions))


def load_from(
    preset: Preset, roles: Iterable[Role], measured: Mapping[Quantity, float], full: tuple[Role, float] = ("load", 0.0)
) -> Load:
    """Values of these roles. What is not finite was not measured: missing is not zero, so a server of which neither
    queue nor cache was measured may be full.

    full: value of a role below which the ready replicas are not full, whatever was measured of them.
    """
    known = {quantity: value for quantity, value in measured.items() if math.isfinite(value) and value >= 0}
    values = {role: value for role in roles if (value := _value(role, known)) is not None}
    shown = set(_SHOWN) & preset.expressions.keys()
    is_unknown = bool(shown) and not shown & known.keys() and values.get(full[0], math.inf) >= full[1]
    is_full = known.get("queue", 0.0) > 0 or known.get("saturation", 0.0) >= SATURATED
    is_known = is_full or known.keys() >= set(_SHOWN)
    return Load(values, (is_full or is_unknown) and not preset.is_offered, is_full if is_known else None)


_NEEDED: Mapping[Role, tuple[Quantity, ...]] = {
    "load": ("requests",),
    "requests": ("requests",),
    "inputTokens": ("requests", "input_mean"),
    "outputTokens": ("requests", "output_mean"),
    "queue": ("queue",),
}


def _value(role: Role, known: Mapping[Quantity, float]) -> float | None:
    if role == "queue":
        return known.get("queue")
    requests = known.get("requests")
    if requests is None or role in ("load", "requests"):
        return requests
    # Tokens of the requests that came, not of those that ended: the mean length changes slower than the rate.
    mean = known.get("input_mean" if role == "inputTokens" else "output_mean")
    if mean is None:
        return 0.0 if requests == 0 else None
    return requests * mean
