"""Roofline of a served model: time, memory and power of prefill and decode on a GPU that nobody has measured yet.

A decode step with k requests of c tokens each reads the weights that any of them uses and their cache, and calculates
two operations per active weight and token; a prefill of p tokens calculates as much for each of its tokens, and the
attention between them. Each term is taken at a share of the data sheet's rate, plus fixed times per layer for launches
and, on several GPUs, for their exchange:

    step(k, c) = bytes(k, c) / (t·bandwidth·share_b) + k·flops(c) / (t·rate·share_f) + layers·(launch + exchange(t))
    prefill(p) = max(p·(flops(p/2) / (t·rate·share_p) + activations / (bandwidth·share_b)),
                     bytes(p, 0) / (t·bandwidth·share_b)) + exchanged(p, t) / link(p) + layers·(...)

Activations between matrices are on every GPU, however many share the matrices; and exchanges of more than
`LARGE_TOKENS` tokens take another way than small ones, which is slower than the link.

The shares and times are the engine's (`ENGINES`), fitted to published measurements; `Engine.error_share` is the median
error on models that the fit did not see.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import LengthGrid

WEIGHT_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.53, "mxfp4": 0.53}
"""Bytes per weight, scales of the 4-bit forms included (one of 8 bits per 32 weights, or of 16 bits per 64)."""
PLAIN_MLP = ("bloom", "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "opt", "falcon", "mpt", "phi", "starcoder2")
"""Model types whose feed-forward part has two matrices; in all others a third one gates."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What the costs of a model depend on."""

    layers: int
    hidden: int
    kv_heads: int
    """Heads of the cache, at most that many GPUs share it; 1 where attention is latent."""
    parameters: float
    expert_parameters: float = 0.0
    """Those of `parameters` in routed experts."""
    experts: int = 0
    experts_per_token: int = 0
    cache_elements: float = 0.0
    """Elements of the cache per token and layer."""
    window: int = 0
    windowed_layers: int = 0
    """Layers that attend to the last `window` tokens alone."""
    precision: str = "bf16"
    expert_precision: str = ""
    """Of the experts' weights; empty: as the others."""

    @property
    def active_parameters(self) -> float:
        """Parameters that one token is multiplied with."""
        share = self.experts_per_token / self.experts if self.experts else 0.0
        return self.parameters - self.expert_parameters * (1 - share)

    def weight_bytes(self, tokens: float | None = None) -> float:
        """Bytes of the weights that a step with so many tokens reads; None: of all.

        Experts that none of the tokens chose are not read; choices are taken for independent.
        """
        read = 1.0
        if self.experts and tokens is not None:
            read = 1 - (1 - self.experts_per_token / self.experts) ** tokens
        of_experts = self.expert_parameters * WEIGHT_BYTES[self.expert_precision or self.precision]
        return (self.parameters - self.expert_parameters) * WEIGHT_BYTES[self.precision] + read * of_experts

    def cached_tokens(self, context: FloatArray | float) -> FloatArray:
        """Tokens times layers that are in the cache of a request with that context."""
        windowed = np.minimum(context, self.window) if self.windowed_layers else 0.0
        return np.asarray((self.layers - self.windowed_layers) * np.asarray(context) + self.windowed_layers * windowed)

    def cache_bytes(self, context: FloatArray | float, bytes_per_element: float = 2.0) -> FloatArray:
        return self.cached_tokens(context) * self.cache_elements * bytes_per_element


def card_from(config: Mapping[str, Any]) -> ModelCard:
    """Card of a Hugging Face `config.json`. Raises ValueError that names what is missing."""
    text = config.get("text_config") if isinstance(config.get("text_config"), Mapping) else None
    c = {**config, **(text or {})}

    def first(*names: str) -> Any:
        return next((c[name] for name in names if c.get(name) is not None), None)

    def needed(*names: str) -> int:
        value = first(*names)
        if not isinstance(value, int | float) or value <= 0:
            raise ValueError(f"has no {' or '.join(names)}")
        return int(value)

    layers = needed("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    hidden = needed("hidden_size", "n_embd", "d_model")
    heads = needed("num_attention_heads", "n_head", "n_heads")
    vocabulary = needed("vocab_size")
    kv_heads = int(first("num_key_value_heads", "n_head_kv", "num_kv_heads") or (1 if c.get("multi_query") else heads))
    head = int(first("head_dim") or hidden // heads)
    kind = str(c.get("model_type", ""))
    matrices = 2 if kind in PLAIN_MLP else 3
    inner = int(first("intermediate_size", "ffn_hidden_size", "n_inner") or 4 * hidden)
    if latent := first("kv_lora_rank"):
        rope, plain, value = needed("qk_rope_head_dim"), needed("qk_nope_head_dim"), needed("v_head_dim")
        q_rank = first("q_lora_rank")
        queries = q_rank * (hidden + heads * (plain + rope)) if q_rank else hidden * heads * (plain + rope)
        attention = queries + hidden * (latent + rope) + latent * heads * (plain + value) + heads * value * hidden
        kv_heads, cache = 1, float(latent + rope)
    else:
        attention, cache = 2 * hidden * head * (heads + kv_heads), 2.0 * kv_heads * head
    experts = int(first("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts") or 0)
    of_experts = shared = 0.0
    sparse = 0
    if experts:
        expert = matrices * hidden * int(first("moe_intermediate_size") or inner)
        dense_first = int(first("first_k_dense_replace") or 0)
        every = int(first("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq") or 1)
        sparse = (layers - dense_first) // every
        of_experts = float(sparse * experts * expert)
        shared = sparse * (
            int(first("n_shared_experts") or (kind == "llama4_text")) * expert
            + matrices * hidden * int(first("shared_expert_intermediate_size") or 0)
        )
    dense = (layers - sparse) * matrices * hidden * int(first("intermediate_size_mlp") or inner)
    embeddings = vocabulary * hidden * (1 if first("tie_word_embeddings") else 2)
    window, windowed = int(first("sliding_window") or 0), 0
    if window and c.get("use_sliding_window", True):
        kinds = first("layer_types")
        pattern = first("sliding_window_pattern", "_sliding_window_pattern")
        if kinds:
            windowed = sum(each == "sliding_attention" for each in kinds)
        else:
            windowed = layers - layers // int(pattern) if pattern else layers
    precision, of_expert = _precision(c)
    return ModelCard(
        layers, hidden, kv_heads, float(embeddings + layers * attention + dense + shared + of_experts), of_experts,
        experts, int(first("num_experts_per_tok", "moe_top_k", "num_experts_per_token") or 1) if experts else 0,
        cache, window, windowed, precision, of_expert,
    )  # fmt: skip


def usual_card(parameters: float) -> ModelCard:
    """Card of a dense model of that size in the shape of Llama 3: a width of 128 a layer, eight heads of the cache."""
    layers = max(8, round((parameters / (12.5 * 128**2)) ** (1 / 3)))
    hidden = max(8, round((parameters / (12.5 * layers)) ** 0.5 / 128)) * 128
    shape = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": hidden // 128,
             "num_key_value_heads": 8, "intermediate_size": round(3.5 * hidden), "vocab_size": 128256}  # fmt: skip
    return card_from(shape)


def _precision(config: Mapping[str, Any]) -> tuple[str, str]:
    """Precision of the weights, and of the experts' weights where it is another."""
    quantized = config.get("quantization_config")
    if not isinstance(quantized, Mapping):
        return "bf16", ""
    method = str(quantized.get("quant_method", "")).lower()
    bits = quantized.get("bits") or quantized.get("weight_bits")
    if "mxfp4" in method:
        return "bf16", "mxfp4"
    if "fp8" in method or bits == 8 or "float8" in str(quantized):
        return "fp8", ""
    return ("int4", "") if bits == 4 or "num_bits': 4" in str(quantized) else ("int8", "")


@dataclass(frozen=True, slots=True)
class Chip:
    """Accelerator by its data sheet."""

    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops: float
    """Dense operations per second at 16 bits."""
    flops_8bit: float
    """Dense operations per second at 8 bits; where it has none, as at 16."""
    limit_w: float
    link_bytes_per_s: float = 32e9
    """To the other GPUs of its node, in one direction."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Shares of a data sheet that a serving engine reaches, and its fixed times."""

    bandwidth_share: float
    flops_share: float
    """In decode steps."""
    prefill_share: float
    launch_s: float
    """Per layer and step."""
    exchange_s: float
    """Per layer and step, for each doubling of the GPUs."""
    prefill_launch_s: float
    activation_bytes: float
    """Read and written beside matrices, per element of a token's state and layer, in prefill."""
    large_bytes_per_s: float
    """Of exchanges of more than `LARGE_TOKENS` tokens, where the link is faster."""
    request_s: float = 0.0
    """Per request in flight and step: scheduling, sampling and writing of its token."""
    expert_s: float = 0.0
    """Per sparse layer and step: routing and gathering."""
    choice_share: float = 1.0
    """Independent choices of experts that each token of a batch amounts to: tokens choose alike."""
    memory_share: float = 0.9
    """Of a GPU's memory, for weights and cache."""
    most_in_flight: int = 256
    power_share: tuple[float, float, float] = (0.625, 0.175, 0.791)
    """Power of a busy GPU as a share of its limit: at rest between kernels, and more by the shares of a step in which
    it reads and calculates. Fitted to ML.ENERGY's runs on H100 and B200, where the median error is 9 %."""
    error_share: float = 0.16
    """Median error of its times on models that the fit did not see."""


ENGINES = {
    "vllm": Engine(0.96, 0.62, 0.65, 78e-6, 24e-6, 100e-6, 45.0, 91e9, 50e-6, 93e-6, 0.43),
    "eager": Engine(0.86, 0.38, 0.65, 100e-6, 68e-6, 240e-6, 45.0, 91e9, 216e-6, 0.0, 0.5, error_share=0.07),
}
"""vllm: fitted to 430 runs of ML.ENERGY's leaderboard (H100, B200; 12 models of 8 to 671 billion parameters). eager:
without captured graphs, fitted to Splitwise's measurements of Llama-2-70B and BLOOM-176B (A100, H100), from which the
prefill of both is taken."""


LARGE_TOKENS = 2048
"""Of one exchange between GPUs. Measured: the time of a token's prefill jumps between 2,048 and 4,096 tokens at once,
on each GPU type and for each model that Splitwise measured on four or eight GPUs, and on two it does not."""


def step_s(card: ModelCard, chip: Chip, engine: Engine, gpus: int, requests: FloatArray, context: FloatArray) -> Any:
    """Seconds of a decode step with so many requests of that mean context; arrays of one shape."""
    tokens = np.asarray(requests, dtype=np.float64)
    weights = np.vectorize(card.weight_bytes, otypes=[float])(1 + (tokens - 1) * engine.choice_share)
    on_each = min(gpus, max(1, card.kv_heads))
    reading = weights / gpus + tokens * card.cache_bytes(context) / on_each
    return (
        reading / (chip.bandwidth_bytes_per_s * engine.bandwidth_share)
        + tokens * _flops(card, context) / (gpus * _rate(card, chip) * engine.flops_share)
        + tokens * engine.request_s
        + _fixed(card, engine, gpus, engine.launch_s)
    )


def prefill_s(
    card: ModelCard, chip: Chip, engine: Engine, gpus: int, tokens: FloatArray | Sequence[int], batch: int = 1
) -> Any:
    """Seconds of the prefill of a batch of prompts of so many tokens each."""
    count = np.asarray(tokens, dtype=np.float64)
    at_once, bandwidth = batch * count, chip.bandwidth_bytes_per_s * engine.bandwidth_share
    working = at_once * _flops(card, count / 2) / (gpus * _rate(card, chip) * engine.prefill_share)
    working = working + at_once * card.hidden * card.layers * engine.activation_bytes / bandwidth
    reading = card.weight_bytes() / (gpus * bandwidth)
    link = np.where(at_once > LARGE_TOKENS, min(chip.link_bytes_per_s, engine.large_bytes_per_s), chip.link_bytes_per_s)
    moving = 4 * at_once * card.hidden * card.layers * 2 * (gpus - 1) / gpus / link
    return np.maximum(working, reading) + moving + _fixed(card, engine, gpus, engine.prefill_launch_s)


def _flops(card: ModelCard, context: FloatArray) -> FloatArray:
    """Operations of one token: two per active weight, and two for each element of queries and values in its context."""
    return np.asarray(2 * card.active_parameters + 4 * card.hidden * card.cached_tokens(context))


def _rate(card: ModelCard, chip: Chip) -> float:
    return chip.flops_8bit if card.precision in ("fp8", "int8") else chip.flops


def _fixed(card: ModelCard, engine: Engine, gpus: int, launch_s: float) -> float:
    return card.layers * (launch_s + engine.exchange_s * math.log2(gpus) + engine.expert_s * bool(card.experts))


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Factors by which observed times differ from the roofline, as far as the observations tell.

    log factor of a step with k requests: level + that of log2(k), linear between octaves + the bucket's own deviation.
    """

    level: float = 0.0
    of_octave: FloatArray | None = None
    """Shape (OCTAVES,)."""
    of_bucket: FloatArray | float = 0.0
    """Shape of the grid."""
    prefill: float = 0.0
    error_share: float | None = None
    """Median error of a time that is expected after the observations; None: nothing was observed."""

    def factor(self, requests: FloatArray) -> FloatArray:
        """Factor of a step with so many requests of each bucket, shape of the grid."""
        octave = 0.0 if self.of_octave is None else _near_octaves(requests) @ self.of_octave
        return np.asarray(np.exp(self.level + octave + self.of_bucket))


OCTAVES = 13
"""Of requests in flight: up to 4,096."""


def _near_octaves(requests: FloatArray) -> FloatArray:
    """Weights of the two octaves around each number of requests, shape (..., OCTAVES)."""
    place = np.clip(np.log2(np.maximum(requests, 1)), 0, OCTAVES - 1)
    return np.asarray(np.maximum(0.0, 1 - np.abs(place[..., None] - np.arange(OCTAVES))))


@dataclass(frozen=True, slots=True, eq=False)
class Sustained:
    """What one instance sustains of each bucket within an SLO; all arrays have the grid's shape. 0: cannot."""

    requests_per_s: FloatArray
    """Prefill and decode on the same instance."""
    decoded_per_s: FloatArray
    """Where prefill is done elsewhere."""
    in_flight: FloatArray
    tpot_s: FloatArray
    watts: FloatArray
    """Of all its GPUs."""


def grid_up_to(context: int) -> LengthGrid:
    """Buckets of an estimate, as far as they fit into the context."""
    outputs = tuple(n for n in (64, 256, 1024) if n <= context // 2)
    longest = context - outputs[-1]
    return LengthGrid(tuple(n for n in (128, 512, 2048, 8192, 32768, 131072) if n <= longest) or (longest,), outputs)


def cache_tokens(card: ModelCard, chip: Chip, engine: Engine, gpus: int) -> float:
    """Tokens of long requests whose cache fits beside the weights; below 0 where the weights do not fit."""
    left = chip.memory_bytes * engine.memory_share - card.weight_bytes() / gpus
    long = 8192.0
    return left * min(gpus, max(1, card.kv_heads)) / (float(card.cache_bytes(long)) / long)


def sustained(
    card: ModelCard, chip: Chip, engine: Engine, gpus: int, grid: LengthGrid, tpot_s: float, scale: Scale = Scale()
) -> Sustained:
    """Throughput per bucket with as many requests in flight as the SLO and the memory allow.

    With k in flight, a step carries k/answer of a prefill: TPOT(k) = step(k) + k/answer·prefill.
    """
    prompt, answer = np.meshgrid(*(np.array(edges, float) for edges in (grid.input_tokens, grid.output_tokens)),
                                 indexing="ij")  # fmt: skip
    context = prompt + answer / 2
    each = card.cache_bytes(prompt + answer) / (float(card.cache_bytes(8192.0)) / 8192)
    room = np.floor(np.maximum(cache_tokens(card, chip, engine, gpus), 0) / each)
    most = np.minimum(room, engine.most_in_flight)
    first = prefill_s(card, chip, engine, gpus, prompt) * math.exp(scale.prefill)

    def tpot(requests: FloatArray, *, prefills: bool) -> FloatArray:
        step = step_s(card, chip, engine, gpus, requests, context) * scale.factor(requests)
        return np.asarray(step + (requests / answer * first if prefills else 0.0))

    def held(*, prefills: bool) -> FloatArray:
        low: FloatArray = np.zeros_like(prompt)
        high: FloatArray = np.maximum(most, 0)
        while (high - low).max() >= 1:
            middle = np.ceil((low + high) / 2)
            fits = tpot(np.maximum(middle, 1), prefills=prefills) <= tpot_s
            low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        return low

    both, alone = held(prefills=True), held(prefills=False)
    at = np.maximum(both, 1)
    time = tpot(at, prefills=True)
    return Sustained(
        np.where(both > 0, both / (answer * time), 0.0),
        np.where(alone > 0, alone / (answer * tpot(np.maximum(alone, 1), prefills=False)), 0.0),
        both,
        np.where(both > 0, time, 0.0),
        watts(card, chip, engine, gpus, at, context, at / answer * first),
    )


def watts(
    card: ModelCard,
    chip: Chip,
    engine: Engine,
    gpus: int,
    requests: FloatArray,
    context: FloatArray,
    prefill_each_s: Any,
) -> FloatArray:
    """Power of an instance that decodes so many requests, with so much prefill in each step. Shape of `requests`."""
    step = step_s(card, chip, engine, gpus, requests, context)
    calculating = requests * _flops(card, context) / (gpus * _rate(card, chip) * engine.flops_share)
    reading = np.maximum(
        step - calculating - requests * engine.request_s - _fixed(card, engine, gpus, engine.launch_s), 0
    )
    rest, by_reading, by_work = engine.power_share
    whole = step + prefill_each_s
    share = rest + by_reading * reading / whole + by_work * (calculating + prefill_each_s) / whole
    return np.asarray(gpus * chip.limit_w * np.minimum(share, 1.0))


LEVEL_SD, OCTAVE_SD, BUCKET_SD, NOISE_SD = 0.3, 0.15, 0.1, 0.15
"""Standard deviations of logarithms before anything is observed: of an instance type's level (the median error of 16 %
and its tail), of an octave of requests in flight, of a bucket of lengths, and of one request's time. Fitted to the same
runs; the last is the spread of bursts, chosen."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One request of a running service."""

    input_tokens: float
    output_tokens: float
    in_flight: float
    """Requests in flight on its instance, itself included, on average."""
    tpot_s: float
    ttft_s: float | None = None


def refined(
    card: ModelCard, chip: Chip, engine: Engine, gpus: int, grid: LengthGrid, observed: Sequence[Observed]
) -> Scale:
    """Scale after these requests: mean of the Gaussian posterior over level, octaves and buckets (Bayesian regression).

    Requests beyond the grid count for its level and octaves alone.
    """
    if not observed:
        return Scale()
    table = np.array([(o.input_tokens, o.output_tokens, o.in_flight, o.tpot_s) for o in observed], dtype=np.float64)
    requests = np.maximum(table[:, 2], 1)
    expected = step_s(card, chip, engine, gpus, requests, table[:, 0] + table[:, 1] / 2)
    # Steps that carried prefill took longer by it; at most half of a time per token is taken for that.
    carried = np.minimum(requests / table[:, 1] * prefill_s(card, chip, engine, gpus, table[:, 0]), table[:, 3] / 2)
    rows = np.searchsorted(grid.input_tokens, table[:, 0])
    columns = np.searchsorted(grid.output_tokens, table[:, 1])
    buckets = math.prod(grid.shape)
    features = np.zeros((len(table), 1 + OCTAVES + buckets))
    features[:, 0], features[:, 1 : 1 + OCTAVES] = 1, _near_octaves(requests)
    inside = np.flatnonzero((rows < grid.shape[0]) & (columns < grid.shape[1]))
    features[inside, 1 + OCTAVES + rows[inside] * grid.shape[1] + columns[inside]] = 1
    prior = np.array([LEVEL_SD] + [OCTAVE_SD] * OCTAVES + [BUCKET_SD] * buckets)
    covariance = np.linalg.inv(features.T @ features / NOISE_SD**2 + np.diag(prior**-2))
    ratio = np.log((table[:, 3] - carried) / expected)
    mean = covariance @ features.T @ ratio / NOISE_SD**2
    # What is left beyond noise, in requests of one bucket and octave, is the model's own error and stays.
    unlike: dict[tuple[int, int, int], list[float]] = {}
    for *where, left in zip(rows, columns, np.round(np.log2(requests)), ratio - features @ mean, strict=True):
        unlike.setdefault((int(where[0]), int(where[1]), int(where[2])), []).append(float(left))
    misfit = float(np.mean([np.mean(each) ** 2 - NOISE_SD**2 / len(each) for each in unlike.values()]))
    variance = float(np.median(np.einsum("ij,jk,ik->i", features, covariance, features))) + max(0.0, misfit)
    error = 0.6745 * math.sqrt(variance)
    first = [(o.input_tokens, o.ttft_s) for o in observed if o.ttft_s]
    prefill = 0.0
    if first:
        tokens, seconds = np.array(first, dtype=np.float64).T
        slower = np.log(seconds / prefill_s(card, chip, engine, gpus, tokens))
        # Waiting only adds to a first token's time: its lower quartile is taken for the prefill itself.
        prefill = float(np.quantile(slower, 0.25)) * len(first) / (len(first) + (NOISE_SD / LEVEL_SD) ** 2)
    of_bucket = mean[1 + OCTAVES :].reshape(grid.shape)
    return Scale(float(mean[0]), mean[1 : 1 + OCTAVES], of_bucket, prefill, error)
