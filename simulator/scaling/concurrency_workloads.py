"""Workload families for the concurrency tuner, each drawn from a seed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from cluster.autoscaling import Context
from simulator.scaling.concurrency import Interval, Replica, Workload

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


def _replica(chance: np.random.Generator) -> Replica:
    """One that only saturates: 0.3 to 8 s alone, twice that at 4 to 64 requests at once."""
    base_s, knee = _between(chance, 0.3, 8.0), _between(chance, 4, 64)
    return Replica(base_s, knee, peak=math.inf, seats=math.inf, spread=chance.uniform(0.15, 0.4))


def _guard_s(chance: np.random.Generator, own: Replica) -> float:
    """2 to 6 times p95 of a request that is served alone."""
    return own.p95_s(0) * _between(chance, 2, 6)


def best_at_once(replica: Replica, guard_s: float) -> float:
    """Number of requests at once with the highest throughput within the guard, without chance."""
    grid = np.geomspace(1, 2048, 800)
    kept = [k for k in grid if replica.p95_s(k) <= guard_s]
    return float(max(kept, key=replica.throughput, default=1.0))


def _workload(
    name: str,
    chance: np.random.Generator,
    seed: int,
    replica: Replica,
    guard_s: float,
    decisions: int,
    *,
    load: float = 1.5,
    requests: tuple[float, float] = (200, 2000),
) -> Workload:
    """Steady workload. load: offered rate over the best throughput. requests: range of the completions per interval."""
    best = replica.throughput(best_at_once(replica, guard_s))
    intervals = (Interval(replica, load * best, CHAT),) * decisions
    return Workload(name, intervals, guard_s, _between(chance, *requests) / best, seed)


def _saturating(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    own = _replica(chance)
    return _workload("saturating", chance, seed, own, _guard_s(chance, own), decisions)


def _peaked(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    own = _replica(chance)
    own = replace(own, peak=own.knee * _between(chance, 1.5, 4))
    return _workload("peaked", chance, seed, own, own.p95_s(2 * own.peak), decisions)


def _kv_cache(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    own = _replica(chance)
    own = replace(own, seats=own.knee * _between(chance, 1, 4))
    return _workload("kv-cache", chance, seed, own, own.p95_s(own.seats) * _between(chance, 1.1, 2), decisions)


def _kv_unseen(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    return replace(_kv_cache(chance, seed, decisions), name="kv-unseen", reports_memory=False)


def _few_requests(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    own = _replica(chance)
    return _workload("few-requests", chance, seed, own, _guard_s(chance, own), decisions, requests=(40, 100))


def _noisy(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    return replace(_saturating(chance, seed, decisions), name="noisy", speed_noise=0.06)


def _slack(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    own = _replica(chance)
    return _workload("slack", chance, seed, own, _guard_s(chance, own), decisions, load=chance.uniform(0.3, 0.7))


def _daily(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    steady = replace(_saturating(chance, seed, decisions), name="daily")
    phase = chance.uniform(0, _DAY)
    return replace(
        steady,
        intervals=tuple(
            replace(each, rate=each.rate * (0.65 + 0.45 * math.sin(2 * math.pi * (number + phase) / _DAY)))
            for number, each in enumerate(steady.intervals)
        ),
    )


def _drift(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    steady = replace(_saturating(chance, seed, decisions), name="drift")
    growth = _between(chance, 1.2, 1.6) ** chance.choice([-1, 1])
    return replace(
        steady,
        intervals=tuple(
            replace(each, replica=_slower(each.replica, growth ** (number / decisions)))
            for number, each in enumerate(steady.intervals)
        ),
    )


def _shift(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    steady = replace(_saturating(chance, seed, decisions), name="shift")
    at, growth = int(decisions * chance.uniform(0.4, 0.6)), _between(chance, 1.15, 1.4) ** chance.choice([-1, 1])
    return replace(
        steady,
        intervals=tuple(
            each if number < at else replace(each, replica=_slower(each.replica, growth))
            for number, each in enumerate(steady.intervals)
        ),
    )


def _slower(own: Replica, by: float) -> Replica:
    """Longer requests: each takes longer, and fewer fit."""
    return replace(own, base_s=own.base_s * by, knee=own.knee / by, seats=own.seats / by)


def _contexts(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    steady = replace(_saturating(chance, seed, decisions), name="contexts")
    other = replace(steady.intervals[0].replica, knee=steady.intervals[0].replica.knee * _between(chance, 0.3, 0.6))
    rate = 1.5 * other.throughput(best_at_once(other, steady.guard_s))
    code = Interval(other, rate, CODE)
    return replace(
        steady, intervals=tuple(code if number // _STAY % 2 else each for number, each in enumerate(steady.intervals))
    )


def _interrupted(chance: np.random.Generator, seed: int, decisions: int) -> Workload:
    """Replicas are added for a tenth of the time, which takes load away; metrics are lost for a twentieth."""
    steady = replace(_saturating(chance, seed, decisions), name="interrupted")
    usual = steady.intervals[0]
    kinds = (usual, replace(usual, scaling=True, rate=usual.rate / 3), replace(usual, lost=True))
    drawn = chance.choice(len(kinds), size=decisions // _PAUSE + 1, p=[0.85, 0.1, 0.05])
    return replace(steady, intervals=tuple(kinds[drawn[number // _PAUSE]] for number in range(decisions)))


FAMILIES: Mapping[str, Callable[[np.random.Generator, int, int], Workload]] = {
    "saturating": _saturating,
    "peaked": _peaked,
    "kv-cache": _kv_cache,
    "kv-unseen": _kv_unseen,
    "few-requests": _few_requests,
    "noisy": _noisy,
    "slack": _slack,
    "daily": _daily,
    "drift": _drift,
    "shift": _shift,
    "contexts": _contexts,
    "interrupted": _interrupted,
}
"""By name."""


def workload(family: str, seed: int, decisions: int) -> Workload:
    """Workload of a family; the same for the same seed."""
    return FAMILIES[family](np.random.default_rng((seed, *family.encode())), seed, decisions)
