"""What tuners of a concurrency limit have in common: the bounds that they work in, and their decisions."""

import math
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Reason = Literal[
    "Breach",
    "ContextChanged",
    "FewRequests",
    "Fixed",
    "Lowered",
    "NoData",
    "NotBinding",
    "Raised",
    "Scaling",
    "Settled",
    "Unsafe",
]
"""Cause of a limit.

Breach: p95 was above the guard, so the limit falls. ContextChanged: requests belong to another context than before.
FewRequests: too few to judge p95 by, so they are pooled with those of the next interval. Fixed: the policy does not
learn. NoData: a figure was missing. NotBinding: the load did not reach the limit, so throughput says nothing about it.
Raised, Lowered: a step. Scaling: replicas were being added or removed. Settled: no step promises more throughput.
Unsafe: not even the present limit is sure to keep the guard.
"""

_BUCKET_FACTOR = 4.0
"""Ratio of the lengths at a bucket's borders (chosen: within it, requests need KV cache and time of one order, and a
workload's mean seldom crosses a border)."""


def length_bucket(tokens: float) -> int:
    """Bucket of a mean length in tokens: 0 below 4 tokens, 1 below 16, 2 below 64 and so on."""
    return int(math.log(max(tokens, 1.0)) / math.log(_BUCKET_FACTOR) + 1e-9)


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits within which a tuner works."""

    guard_s: float
    """Highest p95 latency, seconds."""
    start: int = 8
    """Highest limit for a context that was never seen."""
    lowest: int = 1
    highest: int = 1024

    def clipped(self, limit: float) -> int:
        """Whole limit within the bounds."""
        return max(self.lowest, min(self.highest, int(limit)))


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Decision(Generic[S]):
    """Limit for the next interval."""

    limit: int
    reason: Reason
    state: S
    """State for the next decision."""
