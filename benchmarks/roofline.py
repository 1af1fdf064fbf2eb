"""Throughput profiles from a roofline model: the default of the mix benchmark, the same on every machine.

A decode step with k requests of a bucket in the batch reads the weights once and the cache of every request. In
addition, each step carries a k-th of each request's prefill:

    step(k) = weights/bandwidth + k · (context · cache/bandwidth + 2 · parameters · prompt/(flops · answer))

k is as large as the SLO and the memory allow, and the throughput is k / (answer · step(k)). These figures are not
measured. They resemble measured ones (small GPUs are cheap for short requests and cannot serve long ones), which
suffices to test a solver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erf, log, sqrt

import numpy as np

from benchmarks.profiles import ProfileSet
from cluster.arrays import FloatArray
from cluster.demand import LengthGrid, Slo

WEIGHT_BYTES = 13.5e9
"""Llama-2-7B at two bytes a parameter."""
PARAMETERS = 6.74e9
CACHE_BYTES = 524_288
"""Cache per token: 32 layers × width 4,096 × key and value × two bytes."""
BANDWIDTH_SHARE = 0.8
"""Fraction of the data sheet's memory bandwidth that decoding reaches. Chosen."""
FLOPS_SHARE = 0.5
"""Fraction of the data sheet's dense half-precision rate that prefill reaches. Chosen."""
MEMORY_SHARE = 0.9
"""Fraction of the memory for weights and cache, the default of serving engines."""


@dataclass(frozen=True, slots=True)
class Chip:
    """GPU by its data sheet."""

    bandwidth_bytes_per_s: float
    flops: float
    memory_bytes: float
    price_per_hour: float


CHIPS: Mapping[str, Chip] = {
    "L4": Chip(300e9, 121e12, 24e9, 0.70),
    "A10G": Chip(600e9, 70e12, 24e9, 1.01),
    "A100": Chip(2039e9, 312e12, 80e9, 3.67),
    "H100": Chip(3350e9, 989e12, 80e9, 7.516),
}
"""Source: vendors' data sheets, dense half precision; cloud list prices of the Mélange example."""

GRID = LengthGrid((25, 100, 250, 500, 1000, 2000, 4000, 8000, 12000, 16000), (25, 100, 250, 500, 1000, 2000))
"""Buckets of Mélange's published heatmaps."""


def roofline_table(chip: Chip, grid: LengthGrid, slo: Slo) -> FloatArray:
    """Requests per second that one GPU sustains per bucket, shape of the grid; 0 where not even one request fits."""
    prompt = np.array(grid.input_tokens, dtype=np.float64)[:, None]
    answer = np.array(grid.output_tokens, dtype=np.float64)[None, :]
    bandwidth = chip.bandwidth_bytes_per_s * BANDWIDTH_SHARE
    fixed_s = WEIGHT_BYTES / bandwidth
    context = prompt + answer / 2
    each_s = context * CACHE_BYTES / bandwidth + 2 * PARAMETERS * prompt / (chip.flops * FLOPS_SHARE * answer)
    by_slo = (slo.tpot_s - fixed_s) / each_s
    by_memory = (chip.memory_bytes * MEMORY_SHARE - WEIGHT_BYTES) / (CACHE_BYTES * (prompt + answer))
    held = np.minimum(by_slo, by_memory)
    table: FloatArray = np.where(held >= 1, held / (answer * (fixed_s + np.maximum(held, 1) * each_s)), 0.0)
    return table


def lognormal_share(edges: Sequence[int], median: float, spread: float) -> FloatArray:
    """Fraction of a log-normal length in each bucket; the tail beyond the last edge is cut off, the rest scaled."""
    below = np.array([0.5 * (1 + erf((log(edge) - log(median)) / (spread * sqrt(2)))) for edge in edges])
    share: FloatArray = np.diff(below, prepend=0.0) / below[-1]
    return share


def _histogram(grid: LengthGrid, prompt: tuple[float, float], answer: tuple[float, float]) -> FloatArray:
    """Histogram of independent prompt and output lengths by median and spread, without buckets below 1 in 10,000."""
    share = np.outer(lognormal_share(grid.input_tokens, *prompt), lognormal_share(grid.output_tokens, *answer))
    share[share < 1e-4] = 0.0
    kept: FloatArray = share / share.sum()
    return kept


def roofline_profiles() -> ProfileSet:
    """Profiles of four GPU types, two SLOs, and chat-like, document-like and mixed requests."""
    slos = {label: Slo(tpot_s) for label, tpot_s in (("40ms", 0.04), ("120ms", 0.12))}
    short = _histogram(GRID, (80, 1.2), (150, 0.9))
    long = _histogram(GRID, (4000, 0.7), (250, 0.4))
    return ProfileSet(
        grid=GRID,
        prices={name: chip.price_per_hour for name, chip in CHIPS.items()},
        tables={
            label: {name: roofline_table(chip, GRID, slo) for name, chip in CHIPS.items()}
            for label, slo in slos.items()
        },
        slos=slos,
        workloads={"short": short, "long": long, "mixed": 0.8 * short + 0.2 * long},
    )


def random_profiles(types: int, buckets: tuple[int, int], seed: int) -> ProfileSet:
    """Random GPU types similar to the real ones and a random histogram, for sizes beyond the real ones."""
    rng = np.random.default_rng(seed)
    grid = LengthGrid(
        tuple(np.unique(np.geomspace(25, 16000, buckets[0]).astype(int)).tolist()),
        tuple(np.unique(np.geomspace(25, 2000, buckets[1]).astype(int)).tolist()),
    )
    chips = {f"gpu{n}": _random_chip(rng, largest=n == 0) for n in range(types)}
    slo = Slo(0.12)
    share = rng.dirichlet(np.full(grid.shape[0] * grid.shape[1], 0.5)).reshape(grid.shape)
    return ProfileSet(
        grid=grid,
        prices={name: chip.price_per_hour for name, chip in chips.items()},
        tables={"120ms": {name: roofline_table(chip, grid, slo) for name, chip in chips.items()}},
        slos={"120ms": slo},
        workloads={"random": share},
        rates=(8, 32, 128),
        slice_factor=20,
    )


def _random_chip(rng: np.random.Generator, *, largest: bool) -> Chip:
    """Random GPU with independent speed, memory and price, so that no type is best for everything.

    The largest can serve every bucket.
    """
    size = 1.0 if largest else float(rng.uniform())
    bandwidth, flops, memory = 300e9 * 14**size, 70e12 * 14**size, 24e9 * 4**size
    noise = rng.uniform(0.8, 1.25, size=3)
    price = 0.7 * 11**size * float(rng.uniform(0.8, 1.25))
    return Chip(bandwidth * noise[0], flops * noise[1], memory * max(1.0, noise[2]), price)
