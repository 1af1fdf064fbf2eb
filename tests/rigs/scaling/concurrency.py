"""Simulated replica: throughput concave and latency convex in the number of requests served at once.

A request takes S(k) = base × (1 + k/knee + (k/peak)²) seconds where k are served at once, so throughput k/S(k) is
concave and highest at k = peak. Beyond the KV cache's seats a server preempts: throughput falls, and latency soars.
Load beyond a replica's throughput is shed at the end of an interval.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from autoscaler.concurrency.safe_bandit import S
from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.autoscaling import Context, Observation
from tests.rigs.scaling.concurrency_baselines import Static, Tuner

_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.95)
_PREEMPTED_THROUGHPUT = 1.0
"""Throughput lost per excess of sequences over seats, as a fraction of the throughput at full seats (chosen: a server
that is asked for half more sequences than fit recomputes half of its work)."""
_PREEMPTED_LATENCY = 4.0
"""Growth of p95 per excess of sequences over seats (chosen: a preempted request starts over, often several times)."""
_LOWEST_THROUGHPUT = 0.2
_PREFILL_SPREAD = 0.6
_EVIDENT = 1.645
_QUANTILE_ERROR = 2.11
"""Standard error of the 95th percentile of n standard normal values, times √n."""


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
    preempted_latency: float = _PREEMPTED_LATENCY
    preempted_throughput: float = _PREEMPTED_THROUGHPUT

    def latency_s(self, at_once: float) -> float:
        """Mean latency of a request."""
        return self._time_s(at_once) * (1 + self.preempted_latency * self._excess(at_once))

    def p95_s(self, at_once: float) -> float:
        """95th percentile of a lognormal latency."""
        return self.latency_s(at_once) * math.exp(_Z95 * self.spread - self.spread**2 / 2)

    def throughput(self, at_once: float) -> float:
        """Requests per second."""
        served = min(at_once, self.seats)
        kept = max(_LOWEST_THROUGHPUT, 1 - self.preempted_throughput * self._excess(at_once))
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
    prefill: float = 0.0
    """Median time that long prompts take of a replica, over that of its other work. From interval to interval it
    scatters by a lognormal factor (0.6), since long prompts come in bursts; whatever runs meanwhile waits for them."""


@dataclass(frozen=True, slots=True)
class ServedInterval:
    """What an interval gave."""

    seen: Observation
    goodput: float
    """Requests per second, 0 where the guard was broken."""
    breached: bool
    """Whether p95 was above the guard with 95 % confidence: that of few requests says little."""


def serve(workload: Workload, number: int, limit: int) -> ServedInterval:
    """Interval `number` of a workload under a limit.

    Its chance depends on the workload's seed and the number alone, so every policy meets the same.
    """
    interval, chance = workload.intervals[number], _chances(workload.seed, len(workload.intervals))[number]
    speed = math.exp(workload.speed_noise * chance[0]) / (1 + workload.prefill * math.exp(_PREFILL_SPREAD * chance[4]))
    rate = interval.rate * max(0.0, 1 + chance[1] / math.sqrt(max(interval.rate * workload.interval_s, 1)))
    replica = interval.replica
    at_once = replica.needed(rate / speed, limit)
    mean = min(rate, replica.throughput(at_once) * speed) * workload.interval_s
    # Of a renewal process the count varies by the spread of the times between completions, less than Poisson's.
    requests = max(0, round(mean + chance[2] * replica.spread * math.sqrt(mean)))
    count = max(requests, 1)
    share = 0.95 + chance[3] * math.sqrt(0.95 * 0.05 / count)
    p95_s = (
        replica.p95_s(at_once)
        / speed
        * math.exp(
            replica.spread * (_NORMAL.inv_cdf(min(max(share, 0.5), 1 - 0.5 / count)) - _Z95 if count > 1 else 0.0)
        )
    )
    sampling = _QUANTILE_ERROR * replica.spread / math.sqrt(count)
    breached = requests > 0 and p95_s * math.exp(-_EVIDENT * sampling) > workload.guard_s
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
    return ServedInterval(seen, goodput, breached)


@lru_cache(maxsize=64)
def _chances(seed: int, intervals: int) -> tuple[tuple[float, ...], ...]:
    """Standard normal values of each interval: speed, arrivals, completions, rank of p95, long prompts."""
    drawn = np.random.default_rng(seed).normal(size=(intervals, 4))
    prompts = np.random.default_rng((seed, 1)).normal(size=(intervals, 1))
    return tuple(map(tuple, np.hstack([drawn, prompts]).tolist()))


CHAT = Context("A100", 4, 3)
CODE = Context("A100", 6, 2)
_DAY = 120
"""Intervals from peak to peak of a load that swings."""
_STAY = 60
"""Intervals for which a context stays."""
_PAUSE = 5
"""Intervals that a scaling or a loss of metrics takes."""


def _between(chance: np.random.Generator, low: float, high: float) -> float:
    """Value drawn evenly on a logarithmic scale."""
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def best_at_once(replica: Replica, guard_s: float) -> float:
    """Number of requests at once with the highest throughput within the guard, without chance."""
    grid = np.geomspace(1, 2048, 800)
    kept = [k for k in grid if replica.p95_s(k) <= guard_s]
    return float(max(kept, key=replica.throughput, default=1.0))


FAMILIES = (
    *(
        "saturating",
        "peaked",
        "kv-cache",
        "kv-unseen",
        "kv-collapse",
        "few-requests",
        "noisy",
        "heavy-tails",
        "prefill",
    ),
    "slack",
    *("daily", "drift", "shift", "contexts", "interrupted"),
)
"""Names of the families of workloads; those of the last line change in time."""


def workload(family: str, seed: int, decisions: int) -> Workload:
    """Workload of a family; the same for the same seed."""
    chance = np.random.default_rng((seed, *family.encode()))
    # One that only saturates: 0.3 to 8 s alone, twice that at 4 to 64 requests at once.
    base_s, knee = _between(chance, 0.3, 8.0), _between(chance, 4, 64)
    own = Replica(base_s, knee, peak=math.inf, seats=math.inf, spread=chance.uniform(0.15, 0.4))
    if family == "peaked":
        own = replace(own, peak=own.knee * _between(chance, 1.5, 4))
        guard_s = own.p95_s(2 * own.peak)
    elif family in ("kv-cache", "kv-unseen", "kv-collapse"):
        own = replace(own, seats=own.knee * _between(chance, 1, 4))
        if family == "kv-collapse":  # a tenth too many sequences take half of the throughput, and triple latency
            own = replace(own, preempted_latency=20.0, preempted_throughput=5.0)
        guard_s = own.p95_s(own.seats) * _between(chance, 1.1, 2)
    else:  # 2 to 6 times p95 of a request that is served alone
        if family == "heavy-tails":
            own = replace(own, spread=chance.uniform(0.8, 1.2))
        if family == "unreachable":
            own = replace(own, knee=1000.0)
        guard_s = own.p95_s(0) * (0.9 if family == "unreachable" else _between(chance, 2, 6))
    prefill = _between(chance, 0.1, 0.4) if family == "prefill" else 0.0
    guard_s *= 1 + prefill * math.exp(2.5 * _PREFILL_SPREAD)  # or no limit would keep it
    load = chance.uniform(0.3, 0.7) if family == "slack" else 1.5
    best = own.throughput(best_at_once(own, guard_s))
    usual = Interval(own, load * best, CHAT)
    counts = {"few-requests": (40, 100), "heavy-tails": (60, 300)}
    interval_s = _between(chance, *counts.get(family, (200, 2000))) / best
    return Workload(
        family,
        tuple(_course(family, usual, guard_s, decisions, chance)),
        guard_s,
        interval_s,
        seed,
        speed_noise=0.06 if family == "noisy" else 0.02,
        reports_memory=family not in ("kv-unseen", "kv-collapse"),
        prefill=prefill,
    )


def _course(
    family: str, usual: Interval, guard_s: float, decisions: int, chance: np.random.Generator
) -> Iterator[Interval]:
    """Intervals of a workload, the usual one as the family changes it in time."""
    own, numbers = usual.replica, range(decisions)
    match family:
        case "daily":
            phase = chance.uniform(0, _DAY)
            for number in numbers:
                yield replace(usual, rate=usual.rate * (0.65 + 0.45 * math.sin(2 * math.pi * (number + phase) / _DAY)))
        case "drift":
            growth = _between(chance, 1.2, 1.6) ** chance.choice([-1, 1])
            for number in numbers:
                yield replace(usual, replica=_slower(own, growth ** (number / decisions)))
        case "shift":
            at, growth = (
                int(decisions * chance.uniform(0.4, 0.6)),
                _between(chance, 1.15, 1.4) ** chance.choice([-1, 1]),
            )
            after = replace(usual, replica=_slower(own, growth))
            yield from (usual if number < at else after for number in numbers)
        case "contexts":
            other = replace(own, knee=own.knee * _between(chance, 0.3, 0.6))
            code = Interval(other, 1.5 * other.throughput(best_at_once(other, guard_s)), CODE)
            yield from (code if number // _STAY % 2 else usual for number in numbers)
        case (
            "interrupted"
        ):  # replicas are added for a tenth of the time, which takes load away; a twentieth has no metrics
            kinds = (usual, replace(usual, scaling=True, rate=usual.rate / 3), replace(usual, lost=True))
            drawn = chance.choice(len(kinds), size=decisions // _PAUSE + 1, p=[0.85, 0.1, 0.05])
            yield from (kinds[drawn[number // _PAUSE]] for number in numbers)
        case _:
            yield from (usual for _ in numbers)


def _slower(own: Replica, by: float) -> Replica:
    """Longer requests: each takes longer, and fewer fit."""
    return replace(own, base_s=own.base_s * by, knee=own.knee / by, seats=own.seats / by)


NEAR = 0.95
"""Fraction of the best static limit's goodput that counts as reached."""
ALLOWED_BREACHES = 0.01
"""Share of intervals that may break the guard."""
WINDOW = 10
"""Number of intervals over which goodput is compared."""
LIMITS: tuple[int, ...] = tuple(int(limit) for limit in np.unique(np.geomspace(1, 1024, 160).round()))
"""Static limits that are tried: each up to 27, then in steps of 4.4 %."""


@dataclass(frozen=True, slots=True, eq=False)
class LimitCourse:
    """Intervals of one run, each of shape (intervals,)."""

    limit: IntArray
    goodput: FloatArray
    """Requests per second, 0 where the guard was broken."""
    breached: BoolArray


@dataclass(frozen=True, slots=True)
class LimitScore:
    """A run beside the best static limit."""

    goodput_ratio: float
    """Goodput of the whole run, learning included, over the best static limit's."""
    later_ratio: float
    """The same after the first decisions."""
    near_after: int | None
    """Number of decisions after which goodput was near, and on average stayed so to the end; None: never."""
    breach_share: float
    first_breach_share: float
    """Share of the first decisions with a breach."""
    changes_share: float
    """Share of the later decisions that changed the limit."""


def course(tuner: Tuner[S], workload: Workload, start: int) -> LimitCourse:
    """Run of a tuner over all intervals, from a limit."""
    limit, state = start, tuner.first()
    served, limits = [], []
    for number in range(len(workload.intervals)):
        limits.append(limit)
        served.append(serve(workload, number, limit))
        decision = tuner.decide(state, served[-1].seen)
        limit, state = decision.limit, decision.state
    return LimitCourse(
        np.array(limits), np.array([each.goodput for each in served]), np.array([each.breached for each in served])
    )


def best_static(workload: Workload, limits: Sequence[int] = LIMITS) -> LimitCourse:
    """Course of the static limit with the highest goodput among those that break the guard no more than allowed; of the
    one that breaks it least where all do."""
    courses = [course(Static(limit), workload, limit) for limit in limits]
    allowed = max(ALLOWED_BREACHES, min(float(each.breached.mean()) for each in courses))
    kept = [each for each in courses if each.breached.mean() <= allowed]
    return max(kept, key=lambda each: float(each.goodput.sum()))


def score(run: LimitCourse, best: LimitCourse, first: int) -> LimitScore:
    """Comparison of a run with the best static limit. first: number of decisions that count as the first ones."""
    window = np.ones(WINDOW)
    soon = np.convolve(run.goodput, window, "valid") >= NEAR * np.convolve(best.goodput, window, "valid")
    rest = np.cumsum(run.goodput[::-1])[::-1] >= NEAR * np.cumsum(best.goodput[::-1])[::-1]
    near = np.flatnonzero(soon & rest[: len(soon)])
    return LimitScore(
        goodput_ratio=float(run.goodput.sum() / best.goodput.sum()),
        later_ratio=float(run.goodput[first:].sum() / best.goodput[first:].sum()),
        near_after=int(near[0]) if len(near) else None,
        breach_share=float(run.breached.mean()),
        first_breach_share=float(run.breached[:first].mean()),
        changes_share=float(np.mean(np.diff(run.limit[first:]) != 0)),
    )
