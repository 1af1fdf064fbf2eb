"""Work of a row: its pools of servers, their requests or steps over days; the same for every policy."""

import csv
import gzip
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cluster.arrays import FloatArray, IntArray, column
from cluster.errors import ConfigError, Mistake
from simulator.power.machine import Machine

DAY_S = 86_400.0
BUCKET_S = 600.0

SHAPES: Mapping[str, tuple[tuple[float, float], ...]] = {
    "plateau": ((1.0, 0.5), (1 / 6, 1.0), (6.0, 0.76)),
    "cold-start": ((0.5, 1.0), (2.0, 0.9)),
}
"""Synthetic courses by name, as (hours, fraction of the highest rate): a level load for hours after a short peak, which
no controller can wait out; and a fleet that starts idle after an outage, all its users at once, under a controller that
has measured nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class RateCurve:
    """Shape of a load over time: 1 at its highest bucket, linear between the middles of the buckets."""

    source: str
    bucket_s: float
    share: FloatArray
    """Rate over the highest rate of the curve, shape (buckets,)."""

    @property
    def for_s(self) -> float:
        return len(self.share) * self.bucket_s

    def expected(self) -> tuple[FloatArray, FloatArray]:
        """(instants, integral of the curve from the start to each of them), for mapping counts to instants."""
        middles_s = (np.arange(len(self.share)) + 0.5) * self.bucket_s
        at_s = np.concatenate([[0.0], middles_s, [self.for_s]])
        share = np.concatenate([self.share[:1], self.share, self.share[-1:]])
        fine_s = np.unique(np.concatenate([at_s, np.arange(0.0, self.for_s, 60.0)]))
        fine = np.interp(fine_s, at_s, share)
        steps = np.diff(fine_s) * (fine[1:] + fine[:-1]) / 2
        return fine_s, np.concatenate([[0.0], np.cumsum(steps)])

    def above(self, share: float) -> "RateCurve":
        """Only the stretches in which the rate is at least this fraction of the highest, each with a bucket on both
        sides.

        They are joined end to end, with linear transitions. Budgets are exceeded in these stretches.
        """
        high = self.share >= share
        kept = high | np.append(high[1:], False) | np.insert(high[:-1], 0, False)
        source = f"{self.source}, where it is at least {100 * share:g} % of its highest"
        return RateCurve(source, self.bucket_s, self.share[kept])

    def lasting(self, for_s: float) -> "RateCurve":
        """The curve for this time: its beginning, or repeated from its start."""
        return replace(self, share=np.resize(self.share, round(for_s / self.bucket_s)))

    def high_s(self) -> tuple[list[float], list[float]]:
        """(begins, ends) of the stretches with at least half of the highest rate."""
        change = np.diff(np.concatenate([[0], self.share >= 0.5 * self.share.max(), [0]]).astype(np.int64))
        begins, ends = (np.flatnonzero(change == sign) * self.bucket_s for sign in (1, -1))
        return begins.tolist(), ends.tolist()


def read_rates(path: Path, days: int | None = None) -> RateCurve:
    """Rates from a CSV file, plain or gzipped, with the columns `t_s` and `req_per_s` in equal steps.

    days: number of days to use; all of them when None. Raises ConfigError naming every invalid line.
    """
    try:
        at_s, rates = _rates(str(path), csv.DictReader(text_of(path)))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigError(Mistake(f"rates {path}", words, "name a CSV file with t_s and req_per_s")) from error
    steps = np.diff(at_s)
    if len(rates) < 2 or not np.allclose(steps, steps[0]) or steps[0] <= 0:
        raise ConfigError(Mistake(f"rates {path}", "t_s does not rise in equal steps", "give a rate for every step"))
    return _curve(str(path.name), float(steps[0]), rates, days, f"rates {path}")


def text_of(path: Path) -> io.StringIO:
    """Text of a file, plain or gzipped."""
    content = path.read_bytes()
    return io.StringIO((gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8"))


def _rates(place: str, rows: "csv.DictReader[str]") -> tuple[FloatArray, FloatArray]:
    missing = [name for name in ("t_s", "req_per_s") if name not in (rows.fieldnames or ())]
    if missing:
        raise ConfigError(
            Mistake(f"rates {place}", f"has no column {', '.join(missing)}", "see docs/power-simulation.md")
        )
    at_s, rates, mistakes = [], [], []
    for row in rows:
        try:
            at_s.append(float(row["t_s"]))
            rates.append(float(row["req_per_s"]))
            wrong = not (math.isfinite(at_s[-1]) and 0 <= rates[-1] < math.inf)
        except (TypeError, ValueError):
            wrong = True
        if wrong:
            where = f"rates {place}, line {rows.line_num}"
            mistakes.append(Mistake(where, f"{dict(row)} is not a rate", "remove empty buckets, which are gaps"))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return np.array(at_s), np.array(rates)


def made_up_rates(days: int | None = None) -> RateCurve:
    """Two weeks of synthetic rates: a daily and a weekly rhythm with surges, peak over mean about 3.

    They have the statistics of a large production model (ServeGen m-large: peak / mean 2.98, 99th percentile / mean
    2.08, 1st percentile / mean 0.32), not its course. Always the same.
    """
    chance = np.random.default_rng(14)
    count = round(14 * DAY_S / BUCKET_S)
    hours = np.arange(count) * BUCKET_S / 3600.0
    rhythm = 0.34 * np.sin(2 * np.pi * (hours - 9) / 24) + 0.12 * np.sin(2 * np.pi * (hours - 30) / 168)
    wander = np.convolve(chance.normal(0, 1, count + 71), np.exp(-np.arange(72) / 12.0), mode="valid") * 0.10
    rates = np.exp(rhythm + wander)
    for at_h, height in ((22.3, 1.2), (99.5, 0.5), (226.7, 1.1), (301.0, 0.35)):
        rates *= 1 + height * np.exp(-(((hours - at_h) / 0.7) ** 2))
    return _curve("made up", BUCKET_S, rates, days, "--days")


def shaped_rates(name: str) -> RateCurve:
    """The course of this name in SHAPES."""
    share = [share for hours, share in SHAPES[name] for _ in range(round(hours * 3600.0 / BUCKET_S))]
    return RateCurve(name, BUCKET_S, column(share, np.float64))


def _curve(source: str, bucket_s: float, rates: FloatArray, days: int | None, place: str) -> RateCurve:
    if rates.max() <= 0:
        raise ConfigError(Mistake(place, "has no requests at all", "give rates above 0"))
    whole = RateCurve(source, bucket_s, column(rates / rates.max(), np.float64))
    if days is None:
        return whole
    most = int(whole.for_s // DAY_S)
    if not 1 <= days <= most:
        raise ConfigError(Mistake("--days", f"is {days}", f"the rates last {most} days: give 1 to {most}"))
    kept = rates[: round(days * DAY_S / bucket_s)]
    return RateCurve(source, bucket_s, column(kept / kept.max(), np.float64))


LOW, HIGH = 0, 1
CLASSES = ("low", "high")
"""Classes of service by number: low is limited first."""


@dataclass(frozen=True, slots=True)
class RequestKind:
    """Requests of one kind: lengths drawn uniformly between bounds, or as one of the given pairs."""

    share: float
    """Fraction of all requests."""
    high_share: float
    """Fraction of these that is of the high class."""
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    pairs: IntArray | None = None
    """Prompt and output tokens that occurred together, shape (requests, 2); used instead of the bounds."""


CHAT_MIX = (
    RequestKind(0.25, 0.0, (2048, 8192), (256, 512)),
    RequestKind(0.25, 1.0, (512, 2048), (1024, 2048)),
    RequestKind(0.50, 0.5, (2048, 4096), (128, 2048)),
)
"""Summarize (low), Search (high), Chat (half and half): the mix of POLCA's evaluation (arXiv 2308.12908)."""

_CODE_QUANTILES = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100)
_CODE_PROMPT = (3, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5188, 7303, 7436, 7437)
_CODE_OUTPUT = (6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 251, 1899)
"""Quantiles (percent) of the Azure 2023 code trace (AzurePublicDataset b469a11, CC-BY-4.0): long prompts, short
outputs."""


def code_mix(lengths: Path | None = None) -> tuple[RequestKind, ...]:
    """Prompt-heavy requests of a coding assistant, half of them low.

    lengths: a CSV file, plain or gzipped, with ContextTokens and GeneratedTokens. Without one, quantiles of the Azure
    2023 code trace are used, with prompt and output drawn independently. Raises ConfigError.
    """
    if lengths is None:
        even = np.linspace(0.05, 99.95, 1000)
        chance = np.random.default_rng(2023)
        prompt = np.interp(even, _CODE_QUANTILES, _CODE_PROMPT)
        output = chance.permutation(np.interp(even, _CODE_QUANTILES, _CODE_OUTPUT))
        pairs = np.stack([prompt, output], axis=1).round().astype(np.int64)
    else:
        pairs = _read_lengths(lengths)
    return (RequestKind(1.0, 0.5, (0, 0), (0, 0), column(pairs, np.int64)),)


def _read_lengths(path: Path) -> IntArray:
    try:
        pairs = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(text_of(path))]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        remedy = "name a CSV file with whole numbers in ContextTokens and GeneratedTokens"
        raise ConfigError(Mistake(f"lengths {path}", f"cannot be read ({error})", remedy)) from error
    if not pairs or min(map(min, pairs)) < 1:
        raise ConfigError(
            Mistake(f"lengths {path}", "has no requests, or some without tokens", "remove requests without tokens")
        )
    return np.array(pairs, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ServerPool:
    """Servers of one machine with one kind of work: requests from a queue of their own, or steps of a job.

    The load is relative to the number of servers: more of them get more work.
    """

    name: str
    of_class: int
    """LOW or HIGH: low is limited first. Pools of one class are limited alike, whatever their machines are."""
    servers: int
    machine: Machine
    """Every server of the pool. For jobs its prompts and tokens stand for the two parts of a step."""
    curve: RateCurve
    """Course of the load. All pools of a row have courses of the same duration."""
    mix: tuple[RequestKind, ...] = CHAT_MIX
    peak_busy_share: float = 0.8
    """Fraction of the capacity of the servers at full clock that is requested at the curve's highest rate."""
    burstiness: float = 1.0
    """Standard deviation over mean of the times between arrivals: 1 is Poisson, below is smoother, above is
    burstier."""
    batch: int = 1
    """Largest number of requests that one server processes together."""
    step_s: float = 0.0
    """Time that a step of a job computes at full clock, with the draw of the machine's prompts; then it exchanges
    results or loads data, which is the machine's only token. Steps follow each other while the curve is at half of its
    highest or above. 0: the pool serves requests."""
    together: bool = False
    """Whether all servers begin each step together, as in synchronous training."""
    bursts: bool = True
    """Whether its class may exceed its leases for moments."""


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Every request of a run in order of arrival; each column has shape (requests,)."""

    at_s: FloatArray
    of_pool: IntArray
    prompt_s: FloatArray
    """Time to compute the prompt at full clock."""
    swing_w: FloatArray
    """Power above idle while the prompt is computed, at full clock."""
    tokens: IntArray

    def __len__(self) -> int:
        return len(self.at_s)

    def each(self, at_a_time: int = 20_000) -> Iterator[tuple[int, float, int, float, float, int]]:
        """(number, arrival, pool, prompt seconds, prompt watts, tokens) of each request, as plain numbers.

        They are converted to objects in parts, so that millions of requests fit into memory.
        """
        for start in range(0, len(self), at_a_time):
            part = slice(start, start + at_a_time)
            columns = (self.at_s, self.of_pool, self.prompt_s, self.swing_w, self.tokens)
            yield from zip(
                range(start, start + at_a_time), *(values[part].tolist() for values in columns), strict=False
            )


def draw_requests(pools: Sequence[ServerPool], seed: int) -> Requests:
    """All requests of a row in order of arrival; the same arguments give the same requests."""
    chance = np.random.default_rng([seed, sum(pool.servers for pool in pools)])
    parts = [(_first_steps if pool.step_s else _requests)(pool, number, chance) for number, pool in enumerate(pools)]
    order = np.argsort(np.concatenate([part.at_s for part in parts]), kind="stable")
    joined: Mapping[str, FloatArray] = {
        name: np.concatenate([getattr(part, name) for part in parts])[order]
        for name in ("at_s", "of_pool", "prompt_s", "swing_w", "tokens")
    }
    return Requests(**joined)  # type: ignore[arg-type]


def _first_steps(pool: ServerPool, number: int, chance: np.random.Generator) -> Requests:
    """The first step of each server after every pause; those that wait for no other begin at different times."""
    begins, _ = pool.curve.high_s()
    late_s = 0.0 if pool.together else pool.step_s
    at_s = np.repeat(begins, pool.servers) + chance.uniform(0.0, 1.0, len(begins) * pool.servers) * late_s
    return Requests(
        at_s=at_s,
        of_pool=np.full(len(at_s), number, dtype=np.int8),
        prompt_s=np.full(len(at_s), pool.step_s, dtype=np.float32),
        swing_w=np.full(len(at_s), pool.machine.swing_w(float(pool.machine.prompt_share[0])), dtype=np.float32),
        tokens=np.ones(len(at_s), dtype=np.int32),
    )


def _requests(pool: ServerPool, number: int, chance: np.random.Generator) -> Requests:
    """Requests of a pool over its course, with gaps of its burstiness and lengths of its mix, for its machine at full
    clock.
    """
    machine, weight = pool.machine, _weights(pool)
    peak_per_s = pool.peak_busy_share * pool.servers * _capacity_per_s(pool, weight)
    instants, integral = pool.curve.expected()
    total = peak_per_s * integral[-1]
    if pool.burstiness <= 0:
        places = np.arange(chance.random(), total)
    else:
        shape = pool.burstiness**-2
        room = int(total + 8 * pool.burstiness * np.sqrt(total) + 100)
        places = np.cumsum(chance.gamma(shape, 1 / shape, room))
        places = places[places < total]
    at_s = np.interp(places, peak_per_s * integral, instants)
    prompt, output = _lengths(pool.mix, weight, len(at_s), chance)
    prompt_s = machine.prompt_seconds(prompt)
    if machine.slices > 1:
        prompt_s, output = np.zeros(len(at_s)), output + np.ceil(prompt_s / machine.token_seconds(1))
    return Requests(
        at_s=at_s,
        of_pool=np.full(len(at_s), number, dtype=np.int8),
        prompt_s=prompt_s.astype(np.float32),
        swing_w=machine.prompt_swing_w(prompt).astype(np.float32),
        tokens=output.astype(np.int32),
    )


def _weights(pool: ServerPool) -> FloatArray:
    """Frequency of each kind of the mix in the pool's class, shape (kinds,)."""
    high = pool.of_class == HIGH
    return np.array([kind.share * (kind.high_share if high else 1 - kind.high_share) for kind in pool.mix])


def _capacity_per_s(pool: ServerPool, weight: FloatArray) -> float:
    """Requests per second that one server sustains at full clock with a full batch."""
    machine = pool.machine
    prompt, output = _lengths(pool.mix, weight, 100_000, np.random.default_rng(0))
    prompts_s = machine.prompt_seconds(prompt).mean() / machine.slices
    return float(1.0 / (prompts_s + output.mean() * machine.token_seconds(pool.batch) / pool.batch))


def _lengths(
    mix: tuple[RequestKind, ...], weight: FloatArray, count: int, chance: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Prompt and output tokens of `count` requests."""
    of_kind = chance.choice(len(mix), size=count, p=weight / weight.sum())
    prompt, output = np.empty(count), np.empty(count)
    for number, kind in enumerate(mix):
        mine = np.flatnonzero(of_kind == number)
        if kind.pairs is None:
            prompt[mine] = chance.integers(*kind.prompt_tokens, size=len(mine), endpoint=True)
            output[mine] = chance.integers(*kind.output_tokens, size=len(mine), endpoint=True)
        else:
            prompt[mine], output[mine] = kind.pairs[chance.integers(len(kind.pairs), size=len(mine))].T
    return prompt, output
