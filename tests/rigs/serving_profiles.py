"""Inputs of GPU mixes: throughput profiles, prices and length histograms, of a file or of a roofline model.

The roofline model is the same on every machine. A decode step with k requests of a bucket in the batch reads the
weights once and the cache of every request. In addition, each step carries a k-th of each request's prefill:

    step(k) = weights/bandwidth + k · (context · cache/bandwidth + 2 · parameters · prompt/(flops · answer))

k is as large as the SLO and the memory allow, and the throughput is k / (answer · step(k)). These figures are not
measured. They resemble measured ones (small GPUs are cheap for short requests and cannot serve long ones), which
suffices to test a solver.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import erf, log, sqrt
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import LengthGrid, Slo
from cluster.errors import ConfigError, Mistake
from controller.api.model_service import HISTOGRAM_TOLERANCE

GIVEN = "given"
"""Name of the only workload and SLO in a file of the short form."""
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


RATES: tuple[float, ...] = (1, 2, 4, 8, 16, 32)
SLICES = 8
"""Requests per second, and slices of a bucket, where a file names none."""


@dataclass(frozen=True, slots=True, eq=False)
class ProfileSet:
    """Inputs of GPU mixes for several workloads and SLOs."""

    grid: LengthGrid
    prices: Mapping[str, float]
    """US dollars per hour of one instance, by GPU type."""
    tables: Mapping[str, Mapping[str, FloatArray]]
    """Requests per second by SLO and GPU type, shape of the grid."""
    slos: Mapping[str, Slo]
    workloads: Mapping[str, FloatArray]
    """Fraction per bucket by workload, shape of the grid."""
    rates: tuple[float, ...] = RATES
    slice_factor: int = SLICES


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


def length_histogram(grid: LengthGrid, prompt: tuple[float, float], answer: tuple[float, float]) -> FloatArray:
    """Histogram of independent prompt and output lengths by median and spread; buckets below 1 in 10,000 are empty."""
    share = np.outer(lognormal_share(grid.input_tokens, *prompt), lognormal_share(grid.output_tokens, *answer))
    share[share < 1e-4] = 0.0
    kept: FloatArray = share / share.sum()
    return kept


def roofline_profiles() -> ProfileSet:
    """Profiles of four GPU types, two SLOs, and chat-like, document-like and mixed requests."""
    slos = {label: Slo(tpot_s) for label, tpot_s in (("40ms", 0.04), ("120ms", 0.12))}
    short = length_histogram(GRID, (80, 1.2), (150, 0.9))
    long = length_histogram(GRID, (4000, 0.7), (250, 0.4))
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


def random_profiles(types: int, buckets: int, seed: int) -> ProfileSet:
    """Random GPU types similar to the real ones and a random histogram, for sizes beyond the real ones.

    Speed, memory and price are independent, so that no type is best for everything; the first can serve every bucket.
    buckets: a square number.
    """
    rng = np.random.default_rng(seed)
    side = math.isqrt(buckets)
    grid = LengthGrid(
        tuple(np.unique(np.geomspace(25, 16000, side).astype(int)).tolist()),
        tuple(np.unique(np.geomspace(25, 2000, side).astype(int)).tolist()),
    )
    chips = {}
    for n in range(types):
        size = 1.0 if n == 0 else float(rng.uniform())
        bandwidth, flops, memory = 300e9 * 14**size, 70e12 * 14**size, 24e9 * 4**size
        noise = rng.uniform(0.8, 1.25, size=3)
        price = 0.7 * 11**size * float(rng.uniform(0.8, 1.25))
        chips[f"gpu{n}"] = Chip(bandwidth * noise[0], flops * noise[1], memory * max(1.0, noise[2]), price)
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


# Files

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Table = list[list[Annotated[float, msgspec.Meta(ge=0)]]]


class _Full(msgspec.Struct):
    """Tables by SLO and type, rows by input bucket; histograms by workload."""

    input_buckets: list[int]
    output_buckets: list[int]
    cost_per_hour: dict[str, _Positive]
    profiles: dict[str, dict[str, _Table]]
    distributions: dict[str, _Table]


class _Gpu(msgspec.Struct):
    cost: _Positive
    tputs: _Table


class _Short(msgspec.Struct):
    """One workload at one SLO and rate, as in the published worked example."""

    gpu_info: dict[str, _Gpu]
    workload_distribution: _Table
    total_request_rate: _Positive
    slice_factor: Annotated[int, msgspec.Meta(ge=1)] = 8


def read_profiles(path: Path) -> ProfileSet:
    """Profiles of a file in the full or the short form. Raises ConfigError with the errors of the file."""
    try:
        content = path.read_bytes()
        form: type[_Short] | type[_Full] = _Short if b'"gpu_info"' in content else _Full
        read: _Short | _Full = msgspec.json.decode(content, type=form)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(Mistake(str(path), f"cannot be read as profiles: {error}")) from error
    if isinstance(read, _Short):
        shape = len(read.workload_distribution), len(read.workload_distribution[0])
        # This form has no lengths. Buckets are numbered from 1; a fixed headroom does not depend on them.
        grid = LengthGrid(tuple(range(1, shape[0] + 1)), tuple(range(1, shape[1] + 1)))
        prices = {name: each.cost for name, each in read.gpu_info.items()}
        tables = {GIVEN: {name: each.tputs for name, each in read.gpu_info.items()}}
        slos, shares = {GIVEN: Slo(1.0)}, {GIVEN: read.workload_distribution}
        rates: tuple[float, ...] = (read.total_request_rate,)
        factor = read.slice_factor
    else:
        grid = LengthGrid(tuple(read.input_buckets), tuple(read.output_buckets))
        prices, tables, shares = read.cost_per_hour, read.profiles, read.distributions
        slos, rates, factor = {label: _slo(label) for label in tables}, RATES, SLICES
    if mistakes := list(_mistakes(grid, prices, tables, shares)):
        raise ConfigError(tuple(Mistake(f"{path}, {place}", problem) for place, problem in mistakes))
    arrays = {label: {name: np.array(of[name], dtype=float) for name in prices} for label, of in tables.items()}
    histograms = {name: np.array(share, dtype=float) for name, share in shares.items()}
    return ProfileSet(grid, prices, arrays, slos, histograms, rates, factor)


def _slo(label: str) -> Slo:
    """SLO of `40ms`. Raises ConfigError."""
    number = label.removesuffix("ms")
    if number == label or not number.replace(".", "", 1).isdigit() or float(number) <= 0:
        raise ConfigError(Mistake(f"profiles.{label}", f"{label!r} is not a time per token", "name it like 40ms"))
    return Slo(round(float(number) * 1e-3, 9))


def _mistakes(
    grid: LengthGrid,
    prices: Mapping[str, float],
    tables: Mapping[str, Mapping[str, _Table]],
    shares: Mapping[str, _Table],
) -> Iterator[tuple[str, str]]:
    """Place and problem of what the form alone does not rule out."""
    for key, edges in (("input_buckets", grid.input_tokens), ("output_buckets", grid.output_tokens)):
        if not edges or edges[0] <= 0 or tuple(sorted(set(edges))) != edges:
            yield key, f"is {list(edges)}; give upper edges in tokens, above 0 and strictly rising"
    named = {f"distributions.{name}": share for name, share in shares.items()}
    for label, of in tables.items():
        yield from ((f"profiles.{label}.{name}", "is missing") for name in prices.keys() - of.keys())
        yield from ((f"profiles.{label}.{name}", "is a GPU type without a price") for name in of.keys() - prices.keys())
        named |= {f"profiles.{label}.{name}": table for name, table in of.items()}
        if not any(value for table in of.values() for row in table for value in row):
            yield f"profiles.{label}", "every throughput is 0: no type can serve anything, measure again"
    for place, table in named.items():
        if len(table) != grid.shape[0] or {len(row) for row in table} != {grid.shape[1]}:
            yield place, f"the buckets are {grid.shape[0]} × {grid.shape[1]}: give every one, and no other"
    for name, share in shares.items():
        if abs(sum(map(sum, share)) - 1) > HISTOGRAM_TOLERANCE:
            yield f"distributions.{name}", f"adds up to {sum(map(sum, share)):g}, shares add up to 1"
