"""`tonnage profile`: estimates that serve at once, results of benchmarks, an endpoint, and observed requests."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from cli.main import tonnage
from cluster.demand import LengthGrid
from controller.objects.catalogue import read_catalogue
from placement.roofline import ENGINES, cache_tokens, card_from, sustained

EXAMPLES = Path(__file__).parents[3] / "examples"
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip


def run(*arguments: object) -> Result:
    return CliRunner().invoke(tonnage, ["profile", *map(str, arguments)])


def made(*arguments: object) -> list[Any]:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    folder = tmp_path / "llama-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


def test_a_model_without_measurements_is_served_by_its_estimate(llama: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    (fleet / "profiles.yaml").write_text(run("estimate", llama, "-f", EXAMPLES / "gpu-types.yaml").stdout)
    demand = {"requestsPerSecond": 4, "inputTokens": [512], "outputTokens": [128], "histogram": [[1.0]]}
    service = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "metadata": {"name": "chat"},
               "spec": {"model": "llama-8b", "slo": {"tpot": "120ms"}, "demand": demand}}  # fmt: skip
    (fleet / "service.yaml").write_text(yaml.safe_dump(service))

    files = [f"-f{fleet}", *(f"-f{EXAMPLES}/{name}.yaml" for name in ("gpu-types", "nodes"))]
    plan = CliRunner().invoke(tonnage, ["plan", "-o", "json", *files])

    (planned,) = json.loads(plan.stdout)["services"]
    assert sum(planned["instances"].values()) >= 1
    assert "estimated" in plan.stderr


def test_an_estimate_says_that_it_is_one_and_how_wrong_it_may_be(llama: Path) -> None:
    profiles = made("estimate", llama, "--gpu", "h100", "--gpus", 1, "--gpus", 2)

    assert [(each["spec"]["origin"], each["spec"]["error"]) for each in profiles] == [("estimated", 0.16)] * 2
    assert [each["spec"]["gpusPerInstance"] for each in profiles] == [1, 2]


def test_weights_that_do_not_fit_get_no_profile(llama: Path) -> None:
    # Llama-2-70B has 69 billion weights of two bytes: 138 GB in two, but not in one of 80 GiB.
    shape = {**LLAMA, "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "vocab_size": 32000}
    (llama / "config.json").write_text(json.dumps({**shape, "intermediate_size": 28672}))

    assert [each["spec"]["gpusPerInstance"] for each in made("estimate", llama, "--gpu", "h100")] == [2, 4, 8]
    assert made("estimate", llama, "--gpu", "h100", "--precision", "int4")[0]["spec"]["gpusPerInstance"] == 1


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [  # Parameters as the models' cards say.
        (LLAMA, 8.03, 8.03),
        ({**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000}, 46.7, 12.9),
    ],
)  # fmt: skip
def test_the_parameters_of_a_configuration_are_those_of_its_card(
    config: dict[str, Any], billions: float, active: float
) -> None:
    card = card_from(config)

    assert card.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert card.active_parameters / 1e9 == pytest.approx(active, rel=0.01)


def test_a_configuration_that_lacks_a_figure_is_refused_by_its_name(llama: Path) -> None:
    (llama / "config.json").write_text(json.dumps({"hidden_size": 4096}))

    result = run("estimate", llama)

    assert result.exit_code == 2
    assert "has no num_hidden_layers" in result.stderr


def test_more_memory_and_a_looser_slo_never_serve_less() -> None:
    card, chip = card_from(LLAMA), read_catalogue(None).chip("h100")
    assert chip is not None
    grid, engine = LengthGrid((128, 2048, 8192), (64, 1024)), ENGINES["vllm"]
    tables = [sustained(card, chip, engine, 1, grid, slo) for slo in (0.02, 0.04, 0.12)]

    for tight, loose in pairwise(tables):
        assert (loose.in_flight >= tight.in_flight).all()
    for each, slo in zip(tables, (0.02, 0.04, 0.12), strict=True):
        assert (each.tpot_s <= slo).all()
        assert (each.decoded_per_s >= each.requests_per_s).all()
        assert (each.watts <= chip.limit_w).all()
    tokens = np.array([[i + j for j in grid.output_tokens] for i in grid.input_tokens])
    assert (tables[-1].in_flight * tokens <= cache_tokens(card, chip, engine, 1) * (1 + 1e-9)).all()


VLLM = {  # Keys of `vllm bench serve --save-result`.
    "date": "20250601-120000", "model_id": "m", "num_prompts": 100, "request_rate": "inf", "max_concurrency": 16,
    "duration": 50.0, "completed": 100, "total_input_tokens": 51200, "total_output_tokens": 12800,
    "request_throughput": 2.0, "output_throughput": 256.0, "mean_ttft_ms": 80.0, "mean_tpot_ms": 30.0,
}  # fmt: skip
GUIDELLM = {
    "benchmarks": [
        {
            "duration": 60.0,
            "metrics": {
                "request_totals": {"successful": 120, "errored": 0},
                "prompt_token_count": {"successful": {"mean": 512.0, "total_sum": 61440}},
                "output_token_count": {"successful": {"mean": 128.0, "total_sum": 15360}},
                "requests_per_second": {"successful": {"mean": 2.0}},
                "time_to_first_token_ms": {"successful": {"mean": 80.0}},
                "time_per_output_token_ms": {"successful": {"mean": 30.6}},
                "inter_token_latency_ms": {"successful": {"mean": 30.0}},
            },
        }
    ]
}
AIPERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "request_latency": {"unit": "ms", "avg": 3890.0},
    "time_to_first_token": {"unit": "ms", "avg": 80.0, "p50": 78.0},
    "inter_token_latency": {"unit": "ms", "avg": 30.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "request_count": {"unit": "requests", "avg": 100.0},
    "total_isl": {"unit": "tokens", "avg": 51200.0},
    "telemetry_data": {"endpoints": {"localhost:9401": {"gpus": {"gpu_0": {
        "gpu_name": "NVIDIA H100 80GB HBM3", "metrics": {"gpu_power_usage": {"unit": "W", "avg": 500.0}}}}}}},
}  # fmt: skip
AICONFIGURATOR = (
    "model,isl,osl,prefix,concurrency,request_rate,bs,global_bs,ttft,tpot,request_latency,seq/s,seq/s/gpu,tokens/s,"
    "tokens/s/gpu,tokens/s/user,num_total_gpus,tp,pp,dp,backend,version,system,power_w\n"
    "QWEN3_32B,512,128,0,8,2.0,8,8,80.0,30.0,3890.0,2.0,1.0,256,128,33.3,2,2,1,1,vllm,0.12,h100_sxm,450.0\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vllm.json", VLLM),
        ("guidellm.json", GUIDELLM),
        ("aiperf.json", AIPERF),
        ("best_config_topn.csv", AICONFIGURATOR),
    ],
)
def test_results_of_each_benchmark_make_the_same_profile(tmp_path: Path, name: str, content: object) -> None:
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))

    (profile,) = made("import", tmp_path / name, "--model", "m", "--gpu-type", "h100", "--gpus", 1)

    spec = profile["spec"]
    assert spec["grid"] == {"inputTokens": [512], "outputTokens": [128]}
    assert [(t["slo"]["tpot"], t["requestsPerSecond"]) for t in spec["throughput"]] == [
        ("40ms", [[2.0]]), ("120ms", [[2.0]]),
    ]  # fmt: skip
    assert spec["prefill"] == ["80ms"]


def test_the_width_and_the_watts_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(AICONFIGURATOR)
    (tmp_path / "b.json").write_text(json.dumps(AIPERF))

    profiles = made("import", tmp_path / "a.csv", tmp_path / "b.json", "--model", "m", "--gpu-type", "h100")

    found = {each["spec"]["gpusPerInstance"]: each["spec"]["throughput"][0]["watts"] for each in profiles}
    assert found == {1: 500.0, 2: 900.0}


def test_a_bucket_without_a_run_takes_the_throughput_of_a_larger_one(tmp_path: Path) -> None:
    longer = {**VLLM, "total_input_tokens": 204800, "request_throughput": 0.5}
    other = {**VLLM, "total_output_tokens": 6400, "request_throughput": 4.0}
    for n, each in enumerate((VLLM, longer, other)):
        (tmp_path / f"{n}.json").write_text(json.dumps(each))

    (profile,) = made("import", *tmp_path.glob("*.json"), "--model", "m", "--gpu-type", "h100", "--tpot", "40ms")

    # Measured: 512 + 128 at 2, 2048 + 128 at 0.5 and 512 + 64 at 4 requests per second; 2048 + 64 is within 2048 + 128.
    assert profile["spec"]["throughput"][0]["requestsPerSecond"] == [[4.0, 2.0], [0.5, 0.5]]


def test_a_file_of_no_known_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"latency": 3}')

    result = run("import", tmp_path / "x.json", "--model", "m", "--gpu-type", "h100")

    assert result.exit_code == 2
    assert "none of the known results" in result.stderr


@pytest.fixture
def engine() -> Iterator[str]:
    """Server of completions, whose time per token is 20 ms and 5 ms more for each request in flight."""
    flying = 0

    async def completions(request: web.Request) -> web.StreamResponse:
        nonlocal flying
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        flying += 1
        await asyncio.sleep(0.02)
        for n in range(body["max_tokens"]):
            if n:
                await asyncio.sleep(0.02 + 0.005 * flying)
            await response.write(b'data: {"choices": [{"text": "a"}]}\n\n')
        usage = {"prompt_tokens": len(body["prompt"].split()), "completion_tokens": body["max_tokens"]}
        await response.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())
        flying -= 1
        return response

    loop, bound = asyncio.new_event_loop(), threading.Event()
    port = 0

    runners: list[web.AppRunner] = []

    async def serve() -> None:
        nonlocal port
        app = web.Application()
        app.router.add_post("/v1/completions", completions)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        bound.set()

    tasks = [loop.create_task(serve())]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    assert bound.wait(10)
    yield f"http://127.0.0.1:{port}/v1"
    asyncio.run_coroutine_threadsafe(runners[0].cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
    assert tasks[0].done()


def test_an_endpoint_is_measured_until_it_is_slower_than_the_slo(engine: str) -> None:
    loads = ("--in-flight", 1, "--in-flight", 4, "--in-flight", 96, "--in-flight", 97)
    options = ("--input", 16, "--output", 8, *loads, "--tpot", "300ms")
    result = run("measure", engine, "--model", "m", "--gpu-type", "h100", *options)

    assert result.exit_code == 0, result.stderr
    (profile,) = yaml.safe_load_all(result.stdout)
    assert profile["spec"]["grid"] == {"inputTokens": [16], "outputTokens": [8]}
    # With 96 in flight a token takes 20 + 96 × 5 = 500 ms: slower than the SLO, and the last load is not tried.
    runs = re.findall(r"(\d+) in flight: (\S+) requests/s, .* (\S+) ms per token", result.stderr)
    assert [int(load) for load, _, _ in runs] == [1, 4, 96]
    best = max(float(rate) for _, rate, tpot in runs if float(tpot) <= 300)
    assert profile["spec"]["throughput"][0]["requestsPerSecond"][0][0] == pytest.approx(best, rel=0.01)


def test_an_endpoint_that_refuses_is_reported(engine: str) -> None:
    result = run("measure", engine.replace("/v1", "/v2"), "--model", "m", "--gpu-type", "h100")

    assert result.exit_code == 1
    assert "answers 404" in result.stderr


def test_observed_requests_correct_the_estimate_and_its_error(llama: Path, tmp_path: Path) -> None:
    rows = ["inputTokens,outputTokens,inFlight,tpotMs,ttftMs,gpuType"]
    rows += [f"500,200,{1 + n % 64},{2 * (9 + 0.12 * (1 + n % 64)):.2f},40,h100" for n in range(200)]
    (tmp_path / "seen.csv").write_text("\n".join(rows))
    options = ("--gpu", "h100", "--gpus", 1, "--tpot", "40ms")

    (before,) = made("estimate", llama, *options)
    (after,) = made("refine", llama, *options, "--observed", tmp_path / "seen.csv")

    assert after["spec"]["origin"] == "refined"
    assert after["spec"]["error"] < before["spec"]["error"]
    slow, fast = (each["spec"]["throughput"][0]["requestsPerSecond"][1][1] for each in (after, before))
    assert slow < 0.8 * fast  # the service is twice as slow as it would be by its data sheet
