"""Measurements of serving from results of vLLM's benchmark, GuideLLM, AIPerf, AIConfigurator, and profiles."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, Mistake

FORMS = "results of vllm bench serve, GuideLLM or AIPerf (JSON), or AIConfigurator (CSV)"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run at a constant load; its lengths are means over its requests."""

    input_tokens: float
    output_tokens: float
    requests_per_s: float
    tpot_s: float
    ttft_s: float
    in_flight: float
    system: str = ""
    """As the file names the GPUs, "" where it does not."""
    gpus: int | None = None
    watts: float | None = None


def read_results(path: Path) -> list[Measurement]:
    """Measurements of one file. Raises ConfigError where the file is of no known form or has no finished request."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Mistake(str(path), f"cannot be read: {error}")) from error
    try:
        found = list(_rows_of_csv(text) if path.suffix == ".csv" else _of_json(text))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        words = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(Mistake(str(path), f"cannot be understood: {words}", f"give {FORMS}")) from error
    if not found:
        raise ConfigError(Mistake(str(path), "has no finished request", f"give {FORMS}"))
    return found


def _of_json(text: str) -> Iterator[Measurement]:
    try:
        objects = [json.loads(text)]
    except json.JSONDecodeError:  # vLLM's --append-result writes one object a line
        objects = [json.loads(line) for line in text.splitlines() if line.strip()]
    for each in objects:
        if "mean_tpot_ms" in each:
            yield _of_vllm(each)
        elif "benchmarks" in each:
            yield from map(_of_guidellm, each["benchmarks"])
        elif "inter_token_latency" in each:
            yield _of_aiperf(each)
        else:
            raise ValueError("it is none of the known results")


def _of_vllm(run: Mapping[str, Any]) -> Measurement:
    """Source: vllm/benchmarks/serve.py, `--save-result`."""
    rate, count = float(run["request_throughput"]), run["completed"]
    outputs = run["total_output_tokens"] / count
    ttft, tpot = run["mean_ttft_ms"] / 1000, run["mean_tpot_ms"] / 1000
    in_flight = rate * (ttft + (outputs - 1) * tpot)
    return Measurement(run["total_input_tokens"] / count, outputs, rate, tpot, ttft, in_flight)


def _of_guidellm(run: Mapping[str, Any]) -> Measurement:
    """GuideLLM's time per output token includes the first one; its latency between tokens is what others call so."""
    metrics = run["metrics"]

    def mean(name: str) -> float:
        return float(metrics[name]["successful"]["mean"])

    inputs, outputs = mean("prompt_token_count"), mean("output_token_count")
    rate, ttft, tpot = mean("requests_per_second"), mean("time_to_first_token_ms"), mean("inter_token_latency_ms")
    in_flight = mean("request_concurrency") if "request_concurrency" in metrics else 0.0
    return Measurement(inputs, outputs, rate, tpot / 1000, ttft / 1000, in_flight or rate * outputs * tpot / 1000)


def _of_aiperf(run: Mapping[str, Any]) -> Measurement:
    """Source: AIPerf, `profile_export_aiperf.json`; durations in the unit that each metric names."""

    def mean(name: str) -> float:
        value = float(run[name]["avg"])
        return value / {"ms": 1e3, "us": 1e6, "ns": 1e9}.get(run[name].get("unit", ""), 1.0)

    count, rate = mean("request_count"), mean("request_throughput")
    inputs = mean("input_sequence_length") if "input_sequence_length" in run else mean("total_isl") / count
    latency = mean("request_latency")
    endpoints = ((run.get("telemetry_data") or {}).get("endpoints") or {}).values()
    gpus = [gpu for endpoint in endpoints for gpu in endpoint.get("gpus", {}).values()]
    drawn = [gpu["metrics"]["gpu_power_usage"]["avg"] for gpu in gpus if "gpu_power_usage" in gpu.get("metrics", {})]
    return Measurement(
        inputs, mean("output_sequence_length"), rate, mean("inter_token_latency"), mean("time_to_first_token"),
        rate * latency, gpus[0]["gpu_name"] if gpus else "", len(gpus) or None, sum(drawn) if drawn else None,
    )  # fmt: skip


def _rows_of_csv(text: str) -> Iterator[Measurement]:
    """Source: AIConfigurator, the columns of aggregated serving; rows of phases apart are of several instances."""
    for row in csv.DictReader(text.splitlines()):
        if "(p)workers" in row:
            raise ValueError("its rows are of prefill and decode apart; give the file of aggregated serving")
        gpus = int(float(row["num_total_gpus"]))
        watts = float(row["power_w"]) * gpus if row.get("power_w") else None
        yield Measurement(
            float(row["isl"]), float(row["osl"]), float(row["seq/s"]), float(row["tpot"]) / 1000,
            float(row["ttft"]) / 1000, float(row["concurrency"]), row.get("system", ""), gpus, watts,
        )  # fmt: skip


def profile_of(
    name: str, model: str, gpu_type: str, gpus: int, runs: Sequence[Measurement], slos_s: Sequence[float]
) -> dict[str, Any]:
    """ModelProfile of runs on one instance type, as a manifest: per bucket the highest throughput within each SLO.

    A bucket without a run takes the throughput of the smallest measured one that contains it: less than it could have.
    Raises ConfigError where no run meets any SLO.
    """
    inputs = sorted({round(run.input_tokens) for run in runs})
    outputs = sorted({round(run.output_tokens) for run in runs})
    tables = []
    for slo in sorted(slos_s):
        met = [run for run in runs if run.tpot_s <= slo * (1 + 1e-9)]
        best = {(i, j): _best(met, i, j) for i in inputs for j in outputs}
        rows = [
            [best[i, j] or max((best[a, b] for a in inputs for b in outputs if a >= i and b >= j), default=0.0)
             for j in outputs]
            for i in inputs
        ]  # fmt: skip
        if any(map(any, rows)):
            drawn = [run.watts for run in met if run.watts]
            power = {"watts": round(sum(drawn) / len(drawn), 1)} if drawn else {}
            tables.append({"slo": {"tpot": f"{slo * 1000:.9g}ms"}, "requestsPerSecond": rows, **power})
    if not tables:
        fastest = min(run.tpot_s for run in runs) * 1000
        raise ConfigError(Mistake("--tpot", f"no run is as fast; the fastest has {fastest:.3g} ms per token"))
    lone = {i: min(run.ttft_s for run in runs if round(run.input_tokens) >= i) for i in inputs}
    spec = {
        "model": model,
        "gpuType": gpu_type,
        "gpusPerInstance": gpus,
        "grid": {"inputTokens": inputs, "outputTokens": outputs},
        "throughput": tables,
        "prefill": [f"{max(lone[i], 1e-6) * 1000:.6g}ms" for i in inputs],
    }
    return {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelProfile", "metadata": {"name": name}, "spec": spec}


def _best(met: Sequence[Measurement], inputs: int, outputs: int) -> float:
    own = (run for run in met if round(run.input_tokens) == inputs and round(run.output_tokens) == outputs)
    return max((float(f"{run.requests_per_s:.4g}") for run in own), default=0.0)
