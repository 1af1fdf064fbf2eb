"""Figures of replicas as Prometheus computes them from the metrics of two servers: unit tests by promtool."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from autoscaler.demand.presets import RAY_SERVE, VLLM, Preset
from autoscaler.demand.promql import Windows, service_of, serving_query
from tests.deploy.prometheus import tool

TEN_MINUTES = 10
LATENCY = {"1": 0, "2": 57, "4": 60, "+Inf": 60}
"""Requests a minute by the upper edge of their seconds: 95 % take at most 2."""


def query(preset: Preset) -> str:
    return serving_query(preset, service_of(preset, "team-a", {"deployment": "llm"}), Windows(rate_s=120.0))


def series(name: str, labels: str, begin: float, by_minute: float) -> dict[str, str]:
    where = f'namespace="team-a",deployment="llm",{labels}'
    return {"series": f"{name}{{{where}}}", "values": f"{begin}+{by_minute}x{TEN_MINUTES}"}


def of_vllm() -> Iterator[dict[str, str]]:
    for pod in ('pod="a"', 'pod="b"'):
        yield series("vllm:generation_tokens_total", pod, 0, 600)
        yield series("vllm:request_success_total", pod, 0, 60)
        yield series("vllm:num_requests_running", pod, 8, 0)
        yield series("vllm:kv_cache_usage_perc", pod, 0.5, 0)
        for edge, count in LATENCY.items():
            yield series("vllm:request_inference_time_seconds_bucket", f'{pod},le="{edge}"', 0, count)


def of_ray_serve() -> Iterator[dict[str, str]]:
    name = "ray_serve_deployment_processing_latency_ms"
    for replica in ('replica="a"', 'replica="b"'):
        yield series(f"{name}_count", replica, 0, 60)
        yield series(f"{name}_sum", replica, 0, 90_000)
        for edge, count in {"1000": 0, "2000": 57, "4000": 60, "+Inf": 60}.items():
            yield series(f"{name}_bucket", f'{replica},le="{edge}"', 0, count)


def judged(preset: Preset, given: Iterator[dict[str, str]], figures: dict[str, float], folder: Path) -> str:
    """What promtool finds wrong; another namespace's series would be counted, if the query did not exclude them."""
    own = list(given)
    others = [{**each, "series": each["series"].replace("team-a", "team-b")} for each in own]
    expected = [{"labels": f'{{tonnage_quantity="{name}"}}', "value": value} for name, value in figures.items()]
    asked = [{"expr": query(preset), "eval_time": f"{TEN_MINUTES}m", "exp_samples": expected}]
    test = {"interval": "1m", "input_series": own + others, "promql_expr_test": asked}
    file = folder / "test.yaml"
    file.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}), encoding="utf-8")
    done = subprocess.run([tool("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False)  # noqa: S603
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_figures_of_two_vllm_servers(tmp_path: Path) -> None:
    # Each: 600 tokens and 60 requests a minute, 8 requests at once. The window is two minutes.
    figures = {
        "throughput": 20.0, "completed": 240.0, "request_p95": 2.0, "in_flight": 16.0, "memory": 0.5,
        "replicas": 2.0, "replicas_before": 2.0,
    }  # fmt: skip

    assert judged(VLLM, of_vllm(), figures, tmp_path) == ""


def test_the_figures_of_two_replicas_of_ray_serve(tmp_path: Path) -> None:
    # Each: 60 requests a minute of 1.5 s in the mean, so 1.5 at once (Little's law).
    figures = {
        "throughput": 2.0, "completed": 240.0, "request_p95": 2.0, "in_flight": 3.0, "replicas": 2.0,
        "replicas_before": 2.0,
    }  # fmt: skip

    assert judged(RAY_SERVE, of_ray_serve(), figures, tmp_path) == ""
