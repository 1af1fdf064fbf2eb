"""Published measurements of serving beside the roofline: ML.ENERGY's runs and Splitwise's phases, with their models."""

import csv
import gzip
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import LengthGrid
from controller.objects.catalogue import read_catalogue
from placement import roofline
from placement.roofline import Chip, Engine, ModelCard, card_from

QWEN = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}
LLAMA = {"num_key_value_heads": 8, "vocab_size": 128256}
GPT_OSS = {
    "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
    "num_experts_per_tok": 4, "vocab_size": 201088, "sliding_window": 128,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
GEMMA = {"vocab_size": 262208, "tie_word_embeddings": True, "sliding_window": 1024, "sliding_window_pattern": 6}
DEEPSEEK = {
    "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "vocab_size": 129280, "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip


def _shape(layers: int, hidden: int, heads: int, inner: int, **more: object) -> ModelCard:
    return card_from({"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
                      "intermediate_size": inner, **more})  # fmt: skip


def _sparse(layers: int, hidden: int, heads: int, expert: int) -> ModelCard:
    more = {**QWEN, "num_key_value_heads": 4, "moe_intermediate_size": expert, "num_experts": 128}
    return _shape(layers, hidden, heads, 4 * hidden, num_experts_per_tok=8, **more)


_405B, _235B = _shape(126, 16384, 128, 53248, **LLAMA), _sparse(94, 4096, 64, 1536)
CARDS: Mapping[str, ModelCard] = {
    "Qwen3-8B": _shape(36, 4096, 32, 12288, **QWEN),
    "Qwen3-14B": _shape(40, 5120, 40, 17408, **QWEN),
    "Qwen3-32B": _shape(64, 5120, 64, 25600, **QWEN),
    "Qwen3-30B-A3B-Instruct-2507": _sparse(48, 2048, 32, 768),
    "Qwen3-30B-A3B-Thinking-2507": _sparse(48, 2048, 32, 768),
    "Qwen3-235B-A22B-Instruct-2507": _235B,
    "Qwen3-235B-A22B-Thinking-2507": _235B,
    "Qwen3-235B-A22B-Instruct-2507-FP8": replace(_235B, precision="fp8"),
    "Qwen3-235B-A22B-Thinking-2507-FP8": replace(_235B, precision="fp8"),
    "Llama-3.1-8B-Instruct": _shape(32, 4096, 32, 14336, **LLAMA),
    "Llama-3.1-70B-Instruct": _shape(80, 8192, 64, 28672, **LLAMA),
    "Llama-3.3-70B-Instruct": _shape(80, 8192, 64, 28672, **LLAMA),
    "Llama-3.1-405B-Instruct": _405B,
    "Llama-3.1-405B-Instruct-FP8": replace(_405B, precision="fp8"),
    "gemma-3-12b-it": _shape(48, 3840, 16, 15360, num_key_value_heads=8, head_dim=256, **GEMMA),
    "gemma-3-27b-it": _shape(62, 5376, 32, 21504, num_key_value_heads=16, head_dim=128, **GEMMA),
    "DeepSeek-V3.1": card_from(DEEPSEEK),
    "DeepSeek-R1-0528": card_from(DEEPSEEK),
    "gpt-oss-120b": card_from({**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128,
                               "layer_types": ["sliding_attention", "full_attention"] * 18}),
    "gpt-oss-20b": card_from({**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32,
                              "layer_types": ["sliding_attention", "full_attention"] * 12}),
    "llama2-70b": _shape(80, 8192, 64, 28672, num_key_value_heads=8, vocab_size=32000),
    "bloom-176b": card_from({"model_type": "bloom", "n_layer": 70, "hidden_size": 14336, "n_head": 112,
                             "vocab_size": 250880, "tie_word_embeddings": True}),
}  # fmt: skip
"""By the names of the data. Source: the models' config.json on Hugging Face."""
CHIPS: Mapping[str, Chip] = {
    name: found
    for name, entry in (("A100", "a100-80"), ("H100", "h100"), ("B200", "b200"))
    if (found := read_catalogue(None).chip(entry)) is not None
}


@dataclass(frozen=True, slots=True)
class Run:
    model: str
    task: str
    gpu: str
    gpus: int
    in_flight: float
    context: float
    tpot_s: float
    watts: float


def energy_runs(data: Path) -> list[Run]:
    """Runs of text tasks at a steady batch. A mean time per token is requests in flight over tokens per second."""
    found = []
    with gzip.open(data / "power" / "mlenergy_llm_power.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            _, model, task = row["model_task"].split("__")
            if task in ("lm-arena-chat", "gpqa") and model in CARDS:
                batch, answer = float(row["avg_batch_size"]), float(row["avg_output_len"])
                # Prompts of these tasks have some 200 tokens; long answers are in flight for longer.
                tpot_s = batch / float(row["output_throughput_tokens_per_sec"])
                where = (model, task, row["gpu_model"], int(row["num_gpus"]))
                found.append(Run(*where, batch, 200 + 0.55 * answer, tpot_s, float(row["avg_power_watts"])))
    return found


@dataclass(frozen=True, slots=True)
class Phases:
    """Medians of one setting of Splitwise's measurements, and their repetitions."""

    model: str
    gpu: str
    gpus: int
    prompt: int
    batch: int
    prefill_s: float
    step_s: float
    steps_s: tuple[float, ...]


def splitwise_phases(data: Path) -> list[Phases]:
    """Settings with 128 tokens of answer, without the capped H100s, whose times are derived.

    Left out: batches of 64 on two GPUs, which did not fit: their times per token and prompt are of a swapped batch.
    """
    rows = defaultdict(list)
    with (data / "serving" / "splitwise_perf_model.csv").open() as file:
        for row in csv.DictReader(file):
            if int(row["token_size"]) == 128 and not row["hardware"].endswith("pcap"):
                key = (row["model"], row["hardware"][:4].upper(), int(row["tensor_parallel"]))
                rows[*key, int(row["prompt_size"]), int(row["batch_size"])].append(row)
    return [
        Phases(model, gpu, gpus, prompt, batch, statistics.median(float(r["prompt_time"]) for r in own) / 1e3,
               statistics.median(float(r["token_time"]) for r in own) / 1e3,
               tuple(float(r["token_time"]) / 1e3 for r in own))
        for (model, gpu, gpus, prompt, batch), own in sorted(rows.items())
        if (gpus, batch) != (2, 64)
    ]  # fmt: skip


def step_of(run: Run, engine: Engine) -> float:
    arrays = (np.array(run.in_flight), np.array(run.context))
    return float(roofline.step_s(CARDS[run.model], CHIPS[run.gpu], engine, run.gpus, *arrays))


def fitted(start: Engine, names: Sequence[str], times: Callable[[Engine], FloatArray], measured: FloatArray) -> Engine:
    """Engine whose named constants make the mean error of logarithms least, by steps along one of them at a time."""

    def loss(engine: Engine) -> float:
        return float(np.mean(np.abs(np.log(times(engine) / measured))))

    best, known, step = start, loss(start), 0.3
    while step > 0.02:
        tried = [replace(best, **{name: getattr(best, name) * f}) for name in names for f in (1 + step, 1 / (1 + step))]
        found = min(tried, key=loss)
        if (now := loss(found)) < known - 1e-6:
            best, known = found, now
        else:
            step /= 2
    return best


class Measured:
    """Times of a model by Splitwise's settings, between them linear in batch and prompt."""

    def __init__(self, phases: Sequence[Phases], model: str, gpu: str, gpus: int) -> None:
        own = [each for each in phases if (each.model, each.gpu, each.gpus) == (model, gpu, gpus)]
        self._batches = sorted((each.batch, each.step_s) for each in own if each.prompt == 512)
        self._prompts = sorted((each.prompt, each.prefill_s) for each in own if each.batch == 1)
        self.card, self.gpus = CARDS[model], gpus
        self._bandwidth = CHIPS[gpu].bandwidth_bytes_per_s * ENGINE.bandwidth_share

    def step_s(self, requests: FloatArray, context: FloatArray) -> FloatArray:
        """Beyond the largest batch as between the last two. Batches were measured with 512 tokens: the reading of more
        is added as the data sheet has it."""
        batch, seconds = (np.array(each, dtype=np.float64) for each in zip(*self._batches, strict=True))
        slope = (seconds[-1] - seconds[-2]) / (batch[-1] - batch[-2])
        inside = np.interp(requests, batch, seconds) + np.maximum(requests - batch[-1], 0) * slope
        more = self.card.cache_bytes(np.maximum(context - 512, 0)) / (self.gpus * self._bandwidth)
        return np.asarray(inside + requests * more)

    def prefill_s(self, tokens: FloatArray) -> FloatArray:
        prompt, seconds = (np.array(each, dtype=np.float64) for each in zip(*self._prompts, strict=True))
        return np.asarray(np.interp(tokens, prompt, seconds))

    def table(self, grid: LengthGrid, tpot_s: float, chip: Chip, *, prefills: bool = True) -> FloatArray:
        """Requests per second within the SLO, as `placement.roofline.sustained` has them of estimated times."""
        room = roofline.cache_tokens(self.card, chip, ENGINE, self.gpus)
        found = np.zeros(grid.shape)
        for i, prompt in enumerate(grid.input_tokens):
            for j, answer in enumerate(grid.output_tokens):
                k = np.arange(1.0, 1 + min(256, max(0, room // (prompt + answer))))
                carried = k / answer * self.prefill_s(np.array(prompt)) if prefills else 0.0
                tpot = self.step_s(k, np.array(prompt + answer / 2)) + carried
                found[i, j] = max((k / (answer * tpot))[tpot <= tpot_s], default=0.0)
        return found


ENGINE = roofline.ENGINES["eager"]
