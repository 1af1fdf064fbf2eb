"""Requests of a row: class, length and arrival; drawn once, so that every policy serves the same ones."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster.arrays import FloatArray, IntArray, column
from cluster.errors import ConfigError, Mistake
from simulator.power.demand import RateCurve, text_of
from simulator.power.machine import Machine

LOW, HIGH = 0, 1
CLASSES = ("low", "high")
"""Classes of service by number: low is limited first."""


@dataclass(frozen=True, slots=True)
class Kind:
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
    Kind(0.25, 0.0, (2048, 8192), (256, 512)),
    Kind(0.25, 1.0, (512, 2048), (1024, 2048)),
    Kind(0.50, 0.5, (2048, 4096), (128, 2048)),
)
"""Summarize (low), Search (high), Chat (half and half): the mix of POLCA's evaluation (arXiv 2308.12908)."""

_CODE_QUANTILES = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100)
_CODE_PROMPT = (3, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5188, 7303, 7436, 7437)
_CODE_OUTPUT = (6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 251, 1899)
"""Quantiles (percent) of the Azure 2023 code trace (AzurePublicDataset b469a11, CC-BY-4.0): long prompts, short
outputs."""


def code_mix(lengths: Path | None = None) -> tuple[Kind, ...]:
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
    return (Kind(1.0, 0.5, (0, 0), (0, 0), column(pairs, np.int64)),)


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


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a row, relative to its size: more servers get more requests."""

    mix: tuple[Kind, ...] = CHAT_MIX
    peak_busy_share: float = 0.8
    """Fraction of the capacity of a class's servers at full clock that is requested at the curve's highest rate."""
    burstiness: float = 1.0
    """Standard deviation over mean of the times between arrivals: 1 is Poisson, below is smoother, above is
    burstier."""
    low_share: float = 0.5
    """Fraction of the servers for the low class; each class has its own servers and the same load."""
    batch: int = 1
    """Largest number of requests that one server processes together."""


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Every request of a run in order of arrival; each column has shape (requests,)."""

    at_s: FloatArray
    of_class: IntArray
    prompt_s: FloatArray
    """Time to compute the prompt at full clock."""
    swing_w: FloatArray
    """Power above idle while the prompt is computed, at full clock."""
    tokens: IntArray

    def __len__(self) -> int:
        return len(self.at_s)

    def each(self, at_a_time: int = 20_000) -> Iterator[tuple[int, float, int, float, float, int]]:
        """(number, arrival, class, prompt seconds, prompt watts, tokens) of each request, as plain numbers.

        They are converted to objects in parts, so that millions of requests fit into memory.
        """
        for start in range(0, len(self), at_a_time):
            part = slice(start, start + at_a_time)
            columns = (self.at_s, self.of_class, self.prompt_s, self.swing_w, self.tokens)
            yield from zip(
                range(start, start + at_a_time), *(values[part].tolist() for values in columns), strict=False
            )


def servers_of(servers: int, low_share: float) -> tuple[int, int]:
    """Number of servers of each class; an odd one goes to the low class."""
    low = min(max(int(np.ceil(servers * low_share - 1e-9)), 1), servers - 1)
    return low, servers - low


def draw_requests(machine: Machine, curve: RateCurve, load: Load, servers: int, seed: int) -> Requests:
    """Requests for a row with this number of servers; the same arguments give the same requests."""
    chance = np.random.default_rng([seed, servers])
    return in_order(
        [
            requests_of(machine, curve, load, own, number, _weight(load.mix, number), chance)
            for number, own in enumerate(servers_of(servers, load.low_share))
        ]
    )


def in_order(parts: Sequence[Requests]) -> Requests:
    """All requests in order of arrival."""
    order = np.argsort(np.concatenate([part.at_s for part in parts]), kind="stable")
    joined: Mapping[str, FloatArray] = {
        name: np.concatenate([getattr(part, name) for part in parts])[order]
        for name in ("at_s", "of_class", "prompt_s", "swing_w", "tokens")
    }
    return Requests(**joined)  # type: ignore[arg-type]


def _weight(mix: Sequence[Kind], number: int) -> FloatArray:
    """Frequency of each kind in this class."""
    return np.array([kind.share * (kind.high_share if number == HIGH else 1 - kind.high_share) for kind in mix])


def requests_of(
    machine: Machine,
    curve: RateCurve,
    load: Load,
    servers: int,
    number: int,
    weight: FloatArray,
    chance: np.random.Generator,
) -> Requests:
    """Requests to these servers of one class.

    number: of the class. weight: shape (kinds,), frequency of each kind of the mix.
    """
    peak_per_s = load.peak_busy_share * servers * _capacity_per_s(machine, load, weight)
    at_s = _arrivals(curve, peak_per_s, load.burstiness, chance)
    prompt, output = _lengths(load.mix, weight, len(at_s), chance)
    return Requests(
        at_s=at_s,
        of_class=np.full(len(at_s), number, dtype=np.int8),
        prompt_s=machine.prompt_seconds(prompt).astype(np.float32),
        swing_w=machine.prompt_swing_w(prompt).astype(np.float32),
        tokens=output.astype(np.int32),
    )


def _capacity_per_s(machine: Machine, load: Load, weight: FloatArray) -> float:
    """Requests per second that one server sustains at full clock with a full batch."""
    prompt, output = _lengths(load.mix, weight, 100_000, np.random.default_rng(0))
    busy_s = machine.prompt_seconds(prompt).mean() + output.mean() * machine.token_seconds(load.batch) / load.batch
    return float(1.0 / busy_s)


def _arrivals(curve: RateCurve, peak_per_s: float, burstiness: float, chance: np.random.Generator) -> FloatArray:
    """Arrivals by a renewal process that follows the curve: gamma gaps of mean 1 in expected arrivals, mapped to
    instants.

    With burstiness 1 the gaps are exponential and the arrivals Poisson.
    """
    instants, integral = curve.expected()
    total = peak_per_s * integral[-1]
    if burstiness <= 0:
        places = np.arange(chance.random(), total)
    else:
        shape = burstiness**-2
        room = int(total + 8 * burstiness * np.sqrt(total) + 100)
        places = np.cumsum(chance.gamma(shape, 1 / shape, room))
        places = places[places < total]
    return np.interp(places, peak_per_s * integral, instants)


def _lengths(
    mix: tuple[Kind, ...], weight: FloatArray, count: int, chance: np.random.Generator
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
