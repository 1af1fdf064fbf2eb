"""Simulated replica: throughput concave and latency convex in the number of requests served at once.

A request takes S(k) = base × (1 + k/knee + (k/peak)²) seconds where k are served at once, so throughput k/S(k) is
concave and highest at k = peak. Beyond the KV cache's seats a server preempts: throughput falls, and latency soars.
Load beyond a replica's throughput is shed at the end of an interval.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from cluster.autoscaling import Context, Observation

_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.95)
_PREEMPTED_THROUGHPUT = 1.0
"""Throughput lost per excess of sequences over seats, as a fraction of the throughput at full seats (chosen: a server
that is asked for half more sequences than fit recomputes half of its work)."""
_PREEMPTED_LATENCY = 4.0
"""Growth of p95 per excess of sequences over seats (chosen: a preempted request starts over, often several times)."""
_LOWEST_THROUGHPUT = 0.2


@dataclass(frozen=True, slots=True)
class Replica:
    """Curves of one replica under one workload."""

    base_s: float
    """Time of a request that is served alone, seconds."""
    knee: float
    """Number of requests at once that doubles the time of a request."""
    peak: float
    """Number of requests at once with the highest throughput; infinite: it only saturates."""
    seats: float
    """Sequences that the KV cache holds; infinite: it never fills."""
    spread: float
    """Standard deviation of the logarithm of requests' latencies."""

    def latency_s(self, at_once: float) -> float:
        """Mean latency of a request."""
        return self._time_s(at_once) * (1 + _PREEMPTED_LATENCY * self._excess(at_once))

    def p95_s(self, at_once: float) -> float:
        """95th percentile of a lognormal latency."""
        return self.latency_s(at_once) * math.exp(_Z95 * self.spread - self.spread**2 / 2)

    def throughput(self, at_once: float) -> float:
        """Requests per second."""
        served = min(at_once, self.seats)
        kept = max(_LOWEST_THROUGHPUT, 1 - _PREEMPTED_THROUGHPUT * self._excess(at_once))
        return served / self._time_s(served) * kept

    def needed(self, rate: float, most: float) -> float:
        """Requests at once that serve a rate of requests per second, at most `most`: less cannot keep up with it."""
        high = min(most, self.peak, self.seats)
        if self.throughput(high) <= rate:
            return most
        # k / S(k) = rate, with S as above: the smaller root of a k² - b k + c.
        c = rate * self.base_s
        a, b = c / self.peak**2, 1 - c / self.knee
        return c / b if a == 0 else (b - math.sqrt(max(b * b - 4 * a * c, 0.0))) / (2 * a)

    def _time_s(self, at_once: float) -> float:
        return self.base_s * (1 + at_once / self.knee + (at_once / self.peak) ** 2)

    def _excess(self, at_once: float) -> float:
        return max(0.0, at_once / self.seats - 1)


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval of a workload, before its chance is drawn."""

    replica: Replica
    rate: float
    """Offered requests per second and replica."""
    context: Context
    scaling: bool = False
    lost: bool = False
    """Whether the metrics of this interval are missing."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Course of a workload on one replica."""

    name: str
    intervals: tuple[Interval, ...]
    guard_s: float
    """Highest p95 latency, seconds."""
    interval_s: float
    seed: int
    speed_noise: float = 0.02
    """Standard deviation of the logarithm of a replica's speed from interval to interval: neighbours, lengths."""
    reports_memory: bool = True


@dataclass(frozen=True, slots=True)
class Served:
    """What an interval gave."""

    seen: Observation
    goodput: float
    """Requests per second, 0 where the guard was broken."""
    breached: bool
    """Whether the observed p95 was above the guard."""


def serve(workload: Workload, number: int, limit: int) -> Served:
    """Interval `number` of a workload under a limit.

    Its chance depends on the workload's seed and the number alone, so every policy meets the same.
    """
    interval, chance = workload.intervals[number], _chances(workload.seed, len(workload.intervals))[number]
    speed = math.exp(workload.speed_noise * chance[0])
    rate = interval.rate * max(0.0, 1 + chance[1] / math.sqrt(max(interval.rate * workload.interval_s, 1)))
    replica = interval.replica
    at_once = replica.needed(rate / speed, limit)
    mean = min(rate, replica.throughput(at_once) * speed) * workload.interval_s
    # Of a renewal process the count varies by the spread of the times between completions, less than Poisson's.
    requests = max(0, round(mean + chance[2] * replica.spread * math.sqrt(mean)))
    p95_s = replica.p95_s(at_once) / speed * math.exp(replica.spread * _quantile_error(requests, chance[3]))
    breached = requests > 0 and p95_s > workload.guard_s
    goodput = 0.0 if breached else requests / workload.interval_s
    seen = Observation(
        limit=limit,
        context=interval.context,
        throughput=math.nan if interval.lost else requests / workload.interval_s,
        requests=0 if interval.lost else requests,
        p95_s=math.nan if interval.lost or not requests else p95_s,
        in_flight=math.nan if interval.lost else at_once,
        compute_share=replica.throughput(at_once) / replica.throughput(min(replica.peak, replica.seats, 1e9)),
        memory_share=min(1.0, at_once / replica.seats) if workload.reports_memory else math.nan,
        scaling=interval.scaling,
    )
    return Served(seen, goodput, breached)


@lru_cache(maxsize=64)
def _chances(seed: int, intervals: int) -> tuple[tuple[float, ...], ...]:
    """Standard normal values of each interval: speed, arrivals, completions, rank of p95."""
    return tuple(map(tuple, np.random.default_rng(seed).normal(size=(intervals, 4)).tolist()))


def _quantile_error(requests: int, rank: float) -> float:
    """Error of the 95th percentile of a sample of standard normal values: that of the quantile at a rank drawn from the
    rank's normal approximation, kept within the sample."""
    count = max(requests, 1)
    share = 0.95 + rank * math.sqrt(0.95 * 0.05 / count)
    return _NORMAL.inv_cdf(min(max(share, 0.5), 1 - 0.5 / count)) - _Z95 if count > 1 else 0.0
