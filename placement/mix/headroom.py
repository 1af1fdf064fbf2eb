"""Headroom of a pool of instances: the part that must stay free so that bursts do not violate the latency SLO."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cluster.arrays import FloatArray

ATTAINMENT_Z = 3.290
"""Standard normal quantile of 0.9995: by this model one request in two thousand may be late.

The SLO is 99.5 %. Late requests come in clusters, as long as the longest request takes. With the quantile of 0.999 the
mean over many half hours met it easily, but one half hour in 48 was at 99.3 %. Chosen; the replay of `benchmarks.mix`
shows both the attained SLO and its cost.
"""

IDLE_SHARE = 0.5
"""Time per token of a lone request over that of the SLO, as assumed for sizing.

One decode step reads the weights once (fixed) and each request's cache (grows with the batch), so a lone request is
faster than the SLO. The fraction is below 0.4 for a 7B model on L4, A10G, A100 and H100 at the SLOs of the public
profiles (weights of 14 GB over the sheet's memory bandwidth); one half is the conservative side. Chosen.
"""


class Tangent(NamedTuple):
    """Line that is nowhere below the headroom curve: slope · variance + room."""

    slope: float
    room: float


def _tangents() -> tuple[Tangent, ...]:
    """Lines that touch z · √(φ · V) at V = 4^-5 … 4^4: at most 6 % above the curve between their points of contact."""
    height = ATTAINMENT_Z * math.sqrt(IDLE_SHARE)
    return tuple(Tangent(height / (2 * 2.0**n), height * 2.0**n / 2) for n in range(-5, 5))


TANGENTS = _tangents()
_CROSSINGS = tuple((b.room - a.room) / (a.slope - b.slope) for a, b in pairwise(TANGENTS))
RANGES = tuple(zip((0.0, *_CROSSINGS), (*_CROSSINGS, math.inf), strict=True))
"""Range of variances where each tangent is the lowest."""


def burst_room(variance: float) -> float:
    """Instances that a pool keeps free for its bursts, given the variance of its busy instances.

    Square-root staffing. Requests in flight at Poisson arrivals have the variance of their mean. With load L_b
    instances from requests of kind b, of which an instance holds K_b at the SLO, the busy instances vary by V = Σ L_b /
    K_b. Instances speed up when they are emptier (`IDLE_SHARE` φ), so a burst drains faster than at constant speed, and
    only φ · V of it counts: linearising the number in flight around its mean gives L + z·√(φ·V) ≤ instances. The curve
    is replaced by the lowest of `TANGENTS`, which are never below it, so that a linear model and this function agree.
    """
    return min(tangent.slope * variance + tangent.room for tangent in TANGENTS) if variance > 0 else 0.0


def room_needed(load: float, variance: float, headroom_share: float | None) -> float:
    """Instances (not yet rounded up) for that load: with a fixed fraction kept free, or with headroom for bursts.

    load: busy instances on average. variance: see `burst_room`.
    """
    if headroom_share is None:
        return load + burst_room(variance)
    return load / (1 - headroom_share)


def in_flight_at_slo(requests_per_s: FloatArray, tpot_s: float, output_tokens: FloatArray) -> FloatArray:
    """Requests that one instance holds at its profiled throughput; at least 1 where it serves at all.

    Little's law: throughput × time in the instance, and a request stays output tokens × time per token.
    """
    held = requests_per_s * tpot_s * output_tokens
    return np.where(requests_per_s > 0, np.maximum(held, 1.0), 0.0)
