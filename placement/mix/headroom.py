"""Headroom: how much of a pool of instances must stay free so that bursts do not break the latency promise."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cluster.arrays import FloatArray

ATTAINMENT_Z = 3.290
"""Standard normal quantile of 0.9995: one request in two thousand may be late by this reckoning.

The promise is 99.5 %. Late requests come in clusters, as long as the longest request takes: with the quantile of
0.999 the mean over many half hours was kept with ease, but one half hour in 48 was at 99.3 %. Chosen; the replay of
`benchmarks.mix` shows both what is kept and what it costs.
"""

IDLE_SHARE = 0.5
"""Time per token of a lone request over the promised one, as sizing assumes it.

One decode step reads the weights once (fixed) and each request's cache (grows with the batch), so a lone request
is faster than the promise. The share is below 0.4 for a 7B model on L4, A10G, A100 and H100 at the SLOs of the
public profiles (weights of 14 GB over the sheet's memory bandwidth); one half is the careful side. Chosen.
"""


class Tangent(NamedTuple):
    """One line that lies nowhere below the headroom curve: room = slope · variance + room."""

    slope: float
    room: float


def _tangents() -> tuple[Tangent, ...]:
    """Lines touching z · √(φ · V) at V = 4^-5 … 4^4: at most 6 % above the curve between their points of contact."""
    height = ATTAINMENT_Z * math.sqrt(IDLE_SHARE)
    return tuple(Tangent(height / (2 * 2.0**n), height * 2.0**n / 2) for n in range(-5, 5))


TANGENTS = _tangents()
_CROSSINGS = tuple((b.room - a.room) / (a.slope - b.slope) for a, b in pairwise(TANGENTS))
RANGES = tuple(zip((0.0, *_CROSSINGS), (*_CROSSINGS, math.inf), strict=True))
"""Between which variances each tangent is the lowest."""


def burst_room(variance: float) -> float:
    """Instances that a pool keeps free so that its bursts fit, given the variance of its busy instances.

    Square-root staffing. Requests in flight at Poisson arrivals have the variance of their mean, so with load L_b
    instances from requests of kind b, of which an instance holds K_b at the promise, the busy instances vary by
    V = Σ L_b / K_b. Because instances speed up when they are emptier (`IDLE_SHARE` φ), a burst drains faster than
    it would at constant speed and only φ · V of it counts: linearising the number in flight around its mean gives
    L + z·√(φ·V) ≤ instances. The curve is replaced by the lowest of `TANGENTS`, which are never below it, so that
    a linear model and this function say the same.
    """
    return min(tangent.slope * variance + tangent.room for tangent in TANGENTS) if variance > 0 else 0.0


def room_needed(load: float, variance: float, headroom_share: float | None) -> float:
    """Instances (not yet rounded up) for that load: with a fixed share kept free, or with room for bursts.

    load: busy instances on average. variance: see `burst_room`.
    """
    if headroom_share is None:
        return load + burst_room(variance)
    return load / (1 - headroom_share)


def in_flight_at_slo(requests_per_s: FloatArray, tpot_s: float, output_tokens: FloatArray) -> FloatArray:
    """Requests that one instance holds when it runs at its profiled throughput; at least 1 where it serves at all.

    Little's law: throughput × time in the instance, and a request stays output tokens × time per token.
    """
    held = requests_per_s * tpot_s * output_tokens
    return np.where(requests_per_s > 0, np.maximum(held, 1.0), 0.0)
