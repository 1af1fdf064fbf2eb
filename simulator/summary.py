"""Summaries: what a policy did on a trace, over all the seeds that it was replayed with."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over seeds; the deviation is NaN where there is one seed alone."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: FloatArray) -> "Spread":
        if not len(values):
            return cls(float("nan"), float("nan"))
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan"))


@dataclass(frozen=True, slots=True, eq=False)
class PolicySummary:
    """One policy on one trace. Arrays that a replay fills have one row per seed, in the order of `seeds`."""

    trace: str
    policy: str
    seeds: tuple[int, ...]
    arrived_pct: FloatArray
    """Shape (points,): GPU asked for so far, percent of the fleet's GPUs; rising."""
    allocation_pct: FloatArray
    """Shape (seeds, points): GPU handed out, percent of the fleet's GPUs."""
    fragmentation_pct: FloatArray
    """Shape (seeds, points): part of the idle GPU that the expected next pod cannot use, percent of the idle GPU."""
    allocated_per_hour: FloatArray
    """Shape (seeds, points): dollars per hour of the GPU handed out; NaN where GPUs have no prices."""
    stranded_per_hour: FloatArray
    """Shape (seeds, points): dollars per hour of the idle GPU that the expected next pod cannot use."""
    decision_ms: FloatArray
    """Shape (seeds, len(QUANTILES)): decision time by quantile."""
    decision_mean_ms: FloatArray
    """Shape (seeds,)."""
    unplaced: Mapping[str, FloatArray]
    """Why pods found no place → how many, shape (seeds,)."""
    moved: IntArray
    """Shape (seeds,): pods that were moved to make room."""

    def at(self, rows: FloatArray, arrived_pct: float) -> FloatArray:
        """The values of the last point at which at most that much had arrived; NaN before the first point. (seeds,)"""
        point = int(np.searchsorted(self.arrived_pct, arrived_pct + 1e-6, side="right")) - 1
        return rows[:, point] if point >= 0 else np.full(len(rows), np.nan)

    def quantile_ms(self, quantile: float) -> FloatArray:
        """The decision time at one of QUANTILES. Shape (seeds,)."""
        return self.decision_ms[:, int(np.argmin(np.abs(QUANTILES - quantile)))]

    @property
    def unplaced_pods(self) -> FloatArray:
        """All pods that found no place. Shape (seeds,)."""
        return np.sum(list(self.unplaced.values()), axis=0) if self.unplaced else np.zeros(len(self.seeds))


QUANTILES: FloatArray = np.array([0.001, 0.01, *np.arange(0.05, 0.951, 0.05), 0.99, 0.999, 1.0])
"""The quantiles at which decision times are kept: enough to draw their distribution, whatever the number of pods."""
