"""Concurrency of replicas: what was measured under a limit, what was learned from it, and the limit that follows."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Context:
    """Workload context: what determines how many requests a replica can serve at once."""

    gpu_type: str
    input_bucket: int
    """Bucket of the mean number of input tokens of a request (autoscaler.concurrency.tuner.length_bucket)."""
    output_bucket: int
    """Bucket of the mean number of output tokens of a request."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One interval of a workload, as means over its ready replicas. NaN: not measured."""

    limit: int
    """Limit that was in force: requests served at once by one replica."""
    context: Context
    throughput: float
    """Output tokens (or requests; always the same unit) per second and replica."""
    requests: int
    """Requests that all replicas completed: the sample behind `p95_s`."""
    p95_s: float
    """95th percentile of the latency inside a replica, seconds, without the wait in a queue before it. That wait grows
    when the limit falls, so it would mislead the guard."""
    in_flight: float
    """Mean number of requests served at once by one replica."""
    compute_share: float = math.nan
    """Utilisation of the processor, 0..1."""
    memory_share: float = math.nan
    """Utilisation of the memory that requests occupy (KV cache), 0..1."""
    scaling: bool = False
    """Whether replicas were being added or removed: means over a changing set compare with nothing."""

    @property
    def complete(self) -> bool:
        """Whether everything that learning needs was measured."""
        needed = (self.throughput, self.p95_s, self.in_flight)
        return self.requests > 0 and all(math.isfinite(value) and value > 0 for value in needed)


@dataclass(frozen=True, slots=True)
class Arm:
    """Means of what was observed under one limit."""

    limit: int
    weight: float
    """Number of observations, faded."""
    throughput: float
    """Mean log throughput."""
    p95: float
    """Mean log p95."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Knowledge of one context."""

    context: Context
    used_at: int
    """Number of the last decision in this context."""
    limit: int
    """Limit that was decided last."""
    ceiling: float
    """Highest limit that may be tried."""
    arms: tuple[Arm, ...] = ()
    """A bounded number, rising in their limits."""
    throughput_scatter: float = 0.0
    """Variance of log throughput around the means."""
    p95_scatter: float = 0.0
    """Variance of log p95 around the means."""
    scatter_weight: float = 0.0
    """Number of observations behind the scatter, faded."""
    surprised: bool = False
    """Whether the last observation lay too far off to be believed alone."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Successive intervals under one limit that had too few requests each."""

    limit: int = 0
    intervals: int = 0
    requests: int = 0
    throughput: float = 0.0
    """Mean over the intervals."""
    log_p95: float = 0.0
    """Mean over the requests."""


@dataclass(frozen=True, slots=True)
class BanditState:
    """All that the safe bandit remembers."""

    decisions: int = 0
    context: Context | None = None
    """Context of the last decision."""
    learned: tuple[Learned, ...] = ()
    """A bounded number, the last used first."""
    pool: Pool = Pool()


@dataclass(frozen=True, slots=True)
class ConcurrencyTuning:
    """What is known of a policy's concurrency at the instant of a snapshot."""

    guard_s: float
    """Highest p95 latency, seconds."""
    lowest: int
    highest: int
    start: int
    """Limit that the replicas are configured with."""
    wanted: int
    """Limit that was decided last; `start` before the first decision."""
    follows: bool = False
    """Whether the replicas follow the decisions; else `start` stays in force, and they are recommendations."""
    config_map: str = ""
    """ConfigMap, `namespace/name`, to which the limit in force is written; empty: none."""
    state: BanditState = BanditState()
    decided_at_s: float = -math.inf
    """Instant of the observation that was decided on last, seconds since the epoch."""
    seen: Observation | None = None
    """Last observation; None: there is none yet."""
    seen_at_s: float = -math.inf
    """End of its interval, seconds since the epoch."""
    problem: str = ""
    """Why the last interval was not observed, as `Code: words`; empty: it was."""

    @property
    def in_force(self) -> int:
        """Limit that the replicas work with now."""
        return self.in_force_after(self.wanted)

    def in_force_after(self, decided: int) -> int:
        """Limit that the replicas should work with once this one is decided."""
        return decided if self.follows else self.start

    @property
    def is_due(self) -> bool:
        """Whether there is an observation that was not decided on. Since the last one is part of the status, a repeated
        cycle and a new leader decide on each just once."""
        return self.seen is not None and self.seen_at_s > self.decided_at_s


@dataclass(frozen=True, slots=True)
class ConcurrencyLimit:
    """Limit that was decided for a policy's replicas, and what the next decision needs."""

    scaler: str
    """`namespace/name` of the ScalingPolicy."""
    at_s: float
    """Instant of the observation, seconds since the epoch."""
    limit: int
    code: str
    """Cause, as in a condition's reason: `Raised`, `Breach`."""
    words: str
    state: BanditState
