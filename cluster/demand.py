"""Demand: the rate and the lengths of requests, what an instance sustains of them, and forecasts of such quantities."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class LengthGrid:
    """Buckets of request lengths: bucket (i, j) has at most input_tokens[i] input and output_tokens[j] output tokens.

    Both edges increase strictly. A request longer than the last edge belongs to no bucket.
    """

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.input_tokens), len(self.output_tokens))

    def label(self, i: int, j: int) -> str:
        """Label of bucket (i, j) for people: `input ≤ 500, output ≤ 100 tokens`."""
        return f"input ≤ {self.input_tokens[i]}, output ≤ {self.output_tokens[j]} tokens"


@dataclass(frozen=True, slots=True)
class Slo:
    """Latency SLO of a service; a throughput profile is valid for one SLO."""

    tpot_s: float
    """Mean time per output token of a request, seconds."""
    ttft_s: float | None = None
    """Time to the first token, seconds; None: any."""
    share: float | None = None
    """Fraction of the requests that are to meet it; None: the usual one of 99.5 %."""

    @property
    def label(self) -> str:
        return f"{self.tpot_s * 1000:g}ms"


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Requests that arrive at a service."""

    rate_per_s: float
    grid: LengthGrid
    share: FloatArray
    """Fraction of the requests in each bucket, shape (inputs, outputs), adds up to 1."""


@dataclass(frozen=True, slots=True)
class DeferredWork:
    """Requests that are all to be answered by a deadline, and none at once."""

    requests: float
    """All of them; `done`: those that were answered."""
    deadline_s: float
    most_per_s: float
    begin_s: float = 0.0
    done: float = 0.0

    def rate_at(self, at_s: float, changes_s: Collection[float], costs_at: Callable[[FloatArray], FloatArray]) -> float:
        """Requests per second to answer now, so that all are by the deadline, where a request costs the least.

        Each step between two changes has one cost, and the cheapest are filled first, of equal ones the earliest; the
        step that takes the last of them has a lower rate. After the deadline, what is left is answered at once.
        changes_s: instants at which the cost changes. costs_at: the costs at instants.
        """
        left = self.requests - self.done
        if left <= 0 or at_s < self.begin_s:
            return 0.0
        if at_s >= self.deadline_s:
            return self.most_per_s
        edges = np.unique([at_s, self.deadline_s, *(each for each in changes_s if at_s < each < self.deadline_s)])
        begins_s, most = edges[:-1], self.most_per_s * np.diff(edges)
        costs = costs_at(begins_s)
        is_filled_before = (costs < costs[0]).nonzero()  # the present step is the earliest of all
        return float(np.clip(left - most[is_filled_before].sum(), 0.0, most[0]) / (edges[1] - edges[0]))


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedDemand:
    """Demand that a service is planned for instead of the one in its spec: a measured one, at a chosen quantile."""

    service: str
    """`namespace/name`."""
    demand: Demand
    start_share: float
    """As in `ModelService`."""


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputProfile:
    """Throughput that one instance of a model sustains on one GPU type within an SLO.

    Source of the form: Mélange (arXiv 2404.14527), section 4: requests per second per bucket; 0 = cannot.
    """

    model: str
    gpu_type: str
    slo: Slo
    grid: LengthGrid
    requests_per_s: FloatArray
    """Shape (inputs, outputs). Zero where the bucket cannot be served within the SLO."""
    gpus_per_instance: int = 1
    error_share: float | None = None
    """Median relative error of an estimate; None: it was measured."""
    prefill_s: tuple[float, ...] = ()
    """Of one prompt of each input edge; empty: not known."""
    decoded_per_s: FloatArray | None = None
    """As `requests_per_s` where prefill is done elsewhere; None: not known."""
    cache_bytes_per_token: float | None = None
    cache_tokens: float | None = None
    """Whose cache fits beside the weights; None: not known."""
    watts: float | None = None
    """Of all its GPUs together when busy; None: not known."""


TAIL_FACTOR = 3.0
"""Largest value that a forecast holds for possible, as a multiple of its highest quantile. One week of samples says
nothing about levels beyond 0.995, so the tail is that of an exponential distribution, cut off here."""
_BODY = 64
_TAIL = 16


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Quantiles of a quantity by lead; between levels the quantile function is linear.

    Below the first level it falls linearly to half of the first quantile; above the last one the tail is exponential,
    as steep as between the last two levels.
    """

    made_at_s: float
    """Instant of the last sample that it was made from, seconds since the epoch."""
    leads_s: FloatArray
    """Shape (leads,), seconds after `made_at_s`, rising."""
    levels: FloatArray
    """Shape (levels,), probabilities, strictly rising, inside (0, 1); at least two."""
    quantiles: FloatArray
    """Shape (leads, levels), in the quantity's unit, never negative, non-decreasing along the levels."""
    model: str = ""
    """Name of the model that made it."""

    @property
    def most(self) -> float:
        """Largest value that it holds for possible at any lead."""
        return TAIL_FACTOR * float(self.quantiles.max())

    def at(self, lead_s: float) -> FloatArray:
        """Quantiles at a lead, shape (levels,); linear between two leads, constant before the first and after the
        last."""
        return np.asarray(self.at_leads(np.array([lead_s]))[0])

    def at_leads(self, leads_s: FloatArray) -> FloatArray:
        """Quantiles at several leads, shape (leads asked for, levels); between and outside the known ones as `at`."""
        leads = self.leads_s
        if len(leads) == 1:
            return np.repeat(self.quantiles, len(leads_s), axis=0)
        later = np.clip(np.searchsorted(leads, leads_s), 1, len(leads) - 1)
        before, after = leads[later - 1], leads[later]
        weight = np.clip((leads_s - before) / (after - before), 0.0, 1.0)[:, None]
        return np.asarray((1 - weight) * self.quantiles[later - 1] + weight * self.quantiles[later])

    def quantile(self, level: float, lead_s: float) -> float:
        """Value that the quantity does not exceed at this lead with probability `level`."""
        return float(_inverse(np.array([level]), self.levels, self.at(lead_s)[None, :])[0, 0])

    def points(self, lead_s: float) -> tuple[FloatArray, FloatArray]:
        """The distribution at a lead as values and their probabilities, each of shape (points,), values rising.

        Expectations are sums over them; they are dense in the upper tail, where shortfalls are decided.
        """
        values, weights = self.points_at_leads(np.array([lead_s]))
        return np.asarray(values[0]), weights

    def points_at_leads(self, leads_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same at several leads: values of shape (leads asked for, points), and the points' probabilities."""
        return _inverse(_PROBABILITIES, self.levels, self.at_leads(leads_s)), _WEIGHTS


def _grid() -> tuple[FloatArray, FloatArray]:
    """Midpoints and weights of a partition of (0, 1): even up to 0.9, then in geometric steps towards 1."""
    edges = np.concatenate([np.linspace(0.0, 0.9, _BODY + 1), 1 - 0.1 * 0.7 ** np.arange(1, _TAIL + 1), [1.0]])
    return (edges[:-1] + edges[1:]) / 2, np.diff(edges)


_PROBABILITIES, _WEIGHTS = _grid()


def _inverse(wanted: FloatArray, levels: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Quantile functions at the wanted probabilities, from their values at the levels.

    quantiles: shape (leads, levels); the result has shape (leads, wanted).
    """
    places = _places(wanted.tobytes(), levels.tobytes())
    high = quantiles[:, -1:]
    values = np.concatenate([quantiles[:, :1] / 2, quantiles], axis=1)
    below = values[:, places.above - 1]
    # In this form a value between two equal ones is that value: a load that is known exactly is served by its replicas.
    inside = below + places.weight * (values[:, places.above] - below)
    beyond = high + (high - quantiles[:, -2:-1]) * places.tail
    return np.asarray(np.where(places.is_tail, np.minimum(beyond, TAIL_FACTOR * high), inside))


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where probabilities lie among levels, shape (wanted,) each."""

    above: IntArray
    """Place of the first known level that is not below, where 0 is known, too."""
    weight: FloatArray
    """Part of the way to it from the one before."""
    is_tail: BoolArray
    tail: FloatArray
    """Distance from the last quantile, in that between the last two: from level a to level b, an exponential tail grows
    by scale × ln((1 - a) / (1 - b))."""


@lru_cache(maxsize=64)
def _places(wanted_bytes: bytes, levels_bytes: bytes) -> _Places:
    """Places of these probabilities, the same for nearly all forecasts. Both: float64 arrays as bytes, to be keys."""
    wanted, levels = np.frombuffer(wanted_bytes), np.frombuffer(levels_bytes)
    known = np.concatenate([[0.0], levels])
    above = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
    weight = np.minimum((wanted - known[above - 1]) / (known[above] - known[above - 1]), 1.0)
    steepness = np.log((1 - levels[-2]) / (1 - levels[-1]))
    tail = np.log((1 - levels[-1]) / np.maximum(1 - wanted, 1e-9)) / steepness
    return _Places(above, weight, wanted > levels[-1], tail)
