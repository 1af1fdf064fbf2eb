"""Builders for results of a sweep, without any replay."""

import numpy as np

from simulator.packing.policy_comparison import QUANTILES, PolicySummary


def summary(
    policy: str, lost_pct: float = 5.0, *, trace: str = "default", seeds: int = 3, priced: bool = True
) -> PolicySummary:
    """A policy that in the end loses this percentage of the GPUs, from 70 % arrived on; seeds differ by 0.1 points."""
    arrived = np.arange(1.0, 131.0)
    jitter = 0.1 * np.arange(seeds)[:, None]
    full = 100 - lost_pct - jitter
    allocation = np.minimum(arrived, 70 + (full - 70) * (1 - np.exp(-(np.maximum(arrived, 70) - 70) / (full - 70))))
    fragmentation = np.minimum(100, 15 + 85 * (allocation / full) ** (40 / lost_pct))
    dollars = 1.5 * 6212 / 100 * allocation
    stranded = 1.5 * 6212 / 100 * (100 - allocation) * fragmentation / 100
    if not priced:
        dollars, stranded = np.full_like(dollars, np.nan), np.full_like(stranded, np.nan)
    decision = 0.02 * lost_pct * np.exp(3 * QUANTILES**4)[None, :] * (1 + jitter)
    return PolicySummary(
        trace=trace,
        policy=policy,
        seeds=tuple(range(42, 42 + seeds)),
        arrived_pct=arrived,
        allocation_pct=allocation,
        fragmentation_pct=fragmentation,
        stranded_pct=(100 - allocation) * fragmentation / 100,
        allocated_per_hour=dollars,
        stranded_per_hour=stranded,
        decision_ms=decision,
        decision_mean_ms=decision.mean(axis=1),
        upkeep_s=np.full(seeds, lost_pct),
        unplaced={"GPU": np.full(seeds, 200 * lost_pct), "CPU": np.full(seeds, 10.0)},
    )
