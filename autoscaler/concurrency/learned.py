"""Knowledge of one context: means per limit that fade with time, the scatter around them, and a ceiling."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.concurrency.surrogate import Samples
from cluster.arrays import FloatArray
from cluster.autoscaling import Arm, Learned

MOST_ARMS = 16
"""Number of limits that are remembered, those with the most weight (chosen: a search tries 5 to 15)."""
FADE = 0.98
"""Fading of older observations with each new one: half of the weight is gone after 34."""
_FADE_AT_SHIFT = 0.02
"""Fading at a shift of the workload: old means remain only as a hint."""
_SURPRISE = 4.0
"""Number of standard errors by which no mean is missed by chance: one normal observation in 16,000 lies further off."""
_KNOWN_WEIGHT = 3.0
"""Weight from which a mean is known well enough for a surprise."""

_LATENCY_SPREAD = 0.35
"""Standard deviation of log latency among requests that is assumed until the scatter is known (chosen)."""
_SPEED_ERROR = 0.03
"""Relative standard deviation of a replica's speed from interval to interval that is assumed likewise (chosen)."""
_ASSUMED_WEIGHT = 5.0
"""Number of observations that these assumptions count for."""
_FAR_ERROR = 0.3
"""Standard deviation that is added to an arm at a ratio of e to the present limit, growing with the square of the
logarithm: a limit far beyond a full KV cache must not bend the curve here. Without it, a search that began far too
high settled at 0.58 of the best static limit's goodput; with it, at 0.82 (worst of 10 seeds)."""
_UNSHARED = 2.0
"""Requests that are added to a limit before its logarithm is taken. The first few requests hardly share a replica, so
from 2 to 3 at once latency grows by much less than half. In log(limit) that step never looked safe: 0.47 of the best
static limit's goodput in the worst of 240 runs, 0.75 so."""
_QUANTILE_ERROR = 2.11
"""Standard error of the 95th percentile of n standard normal values, times √n: √(0.95 × 0.05) / density(1.645)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Logarithms of what one observation measured."""

    limit: int
    throughput: float
    p95: float
    requests: int
    """Number of requests behind it."""


def learn(known: Learned, seen: Seen, *, breach: bool) -> Learned:
    """Knowledge after one more observation.

    A surprise is kept apart until a second one follows: one may be an outlier, two are a shift of the workload, after
    which old means hardly count. With a breach, one is enough.
    """
    arm = _arm(known, seen.limit)
    if arm is None:
        return _mixed(replace(known, surprised=False), Arm(seen.limit, 0.0, seen.throughput, seen.p95), seen, FADE)
    if not _is_surprise(known, arm, seen):
        return _mixed(_scattered(replace(known, surprised=False), arm, seen), arm, seen, FADE)
    if not (known.surprised or breach):
        return replace(known, surprised=True)
    return _mixed(replace(known, surprised=False), arm, seen, _FADE_AT_SHIFT)


def noise(known: Learned, requests: int) -> tuple[float, float]:
    """Variances of one observation of log throughput and of log p95 with so many requests: first the assumed ones, then
    more and more the observed scatter."""
    assumed = (_SPEED_ERROR**2 + 1 / requests, _SPEED_ERROR**2 + (_LATENCY_SPREAD * _QUANTILE_ERROR) ** 2 / requests)
    share = known.scatter_weight / (known.scatter_weight + _ASSUMED_WEIGHT)
    return (
        share * known.throughput_scatter + (1 - share) * assumed[0],
        share * known.p95_scatter + (1 - share) * assumed[1],
    )


def distance(limits: Sequence[int], limit: int) -> FloatArray:
    """Distance u of each limit from one, as a difference of log(limit + _UNSHARED); shape (limits,)."""
    return np.log((np.array(limits) + _UNSHARED) / (limit + _UNSHARED))


def samples(known: Learned, limit: int, requests: int) -> tuple[Samples, Samples]:
    """Log throughput and log p95 of the remembered limits, by their distance from `limit`."""
    u = distance([arm.limit for arm in known.arms], limit)
    weight = np.array([arm.weight for arm in known.arms])
    far = (_FAR_ERROR * u**2) ** 2
    throughput, p95 = noise(known, requests)
    return (
        Samples(u, np.array([arm.throughput for arm in known.arms]), throughput / weight + far),
        Samples(u, np.array([arm.p95 for arm in known.arms]), p95 / weight + far),
    )


def _arm(known: Learned, limit: int) -> Arm | None:
    return next((arm for arm in known.arms if arm.limit == limit), None)


def _is_surprise(known: Learned, arm: Arm, seen: Seen) -> bool:
    throughput, p95 = (math.sqrt(each * (1 + 1 / arm.weight)) for each in noise(known, seen.requests))
    far = abs(seen.throughput - arm.throughput) > _SURPRISE * throughput or abs(seen.p95 - arm.p95) > _SURPRISE * p95
    return far and arm.weight >= _KNOWN_WEIGHT


def _mixed(known: Learned, arm: Arm, seen: Seen, fade: float) -> Learned:
    """Knowledge with one observation mixed into an arm, after all arms have faded."""
    weight = arm.weight * fade + 1
    mixed = Arm(
        arm.limit,
        weight,
        arm.throughput + (seen.throughput - arm.throughput) / weight,
        arm.p95 + (seen.p95 - arm.p95) / weight,
    )
    others = (replace(other, weight=other.weight * fade) for other in known.arms if other.limit != arm.limit)
    kept = sorted((mixed, *others), key=lambda each: -each.weight)[:MOST_ARMS]
    return replace(known, arms=tuple(sorted(kept, key=lambda each: each.limit)))


def _scattered(known: Learned, arm: Arm, seen: Seen) -> Learned:
    """Knowledge with the scatter that one observation adds.

    The gap between a value and the mean of n others varies by (n + 1) / n times their variance.
    """
    unbiased = arm.weight / (arm.weight + 1)
    weight = known.scatter_weight * FADE + 1
    return replace(
        known,
        throughput_scatter=_moved(known.throughput_scatter, unbiased * (seen.throughput - arm.throughput) ** 2, weight),
        p95_scatter=_moved(known.p95_scatter, unbiased * (seen.p95 - arm.p95) ** 2, weight),
        scatter_weight=weight,
    )


def _moved(mean: float, value: float, weight: float) -> float:
    return mean + (value - mean) / weight
