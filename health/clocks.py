"""Clock alignment: offsets between ranks' clocks from causality, with a stated error bound.

A collective's exit on one rank is not before any member's enter, and a receive's exit is not before the send's enter.
Each such pair bounds the difference of two clocks; the shortest paths over all bounds give each clock an interval. The
middle of it is taken, half its width is the bound. Network time is needed only to start.
"""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray

DRIFT = 50e-6
"""Difference of two clocks' rates that the bound allows for: crystals are within 20 ppm of nominal."""
_GAIN = 0.5
"""Part of an observed drift that a fit corrects; less than 1 keeps noise of the fit out of the rate."""
_ROUNDS = 512
"""Most rounds of a shortest-path search; groups of neighbours reach 10,000 ranks in under 100."""


@dataclass(frozen=True, slots=True, eq=False)
class Clocks:
    """Corrections of all ranks' clocks: aligned = local + offset + rate * (local - fitted)."""

    offset_s: FloatArray
    rate: FloatArray
    fitted_s: FloatArray
    """Local instant of each rank's last fit."""
    bound_s: FloatArray
    """Largest error of an aligned instant against rank 0's, when it was fitted; infinite before the first fit."""
    fits: int = 0
    resets: int = 0
    """Windows that contradicted themselves, as a stepped clock makes them."""

    def aligned(self, rank: IntArray, local_s: FloatArray) -> FloatArray:
        """Instants of one clock for all."""
        return np.asarray(local_s + self.offset_s[rank] + self.rate[rank] * (local_s - self.fitted_s[rank]))

    def error_s(self, age_s: float) -> FloatArray:
        """Bound of the error, shape (ranks,), so long after the last fit."""
        return np.asarray(self.bound_s + DRIFT * age_s)


def started(offset_s: FloatArray) -> Clocks:
    """Clocks by the ranks' own wall clocks."""
    ranks = len(offset_s)
    return Clocks(offset_s.copy(), np.zeros(ranks), np.zeros(ranks), np.full(ranks, np.inf))


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Tightest bounds of a window: earlier[i] entered what later[i] left, `slack_s[i]` after it by aligned clocks."""

    earlier: IntArray
    later: IntArray
    slack_s: FloatArray
    """Shape (edges,); infinite where no operation was seen."""


def refitted(clocks: Clocks, bounds: Bounds, now_s: FloatArray, window_s: float) -> Clocks:
    """Clocks that satisfy all bounds, or the same clocks where the bounds contradict each other.

    now_s: shape (ranks,), local instants of the fit. window_s: length of the window; its middle is what was measured.
    """
    known = np.isfinite(bounds.slack_s)
    earlier, later, slack_s = bounds.earlier[known], bounds.later[known], bounds.slack_s[known]
    ranks = len(clocks.offset_s)
    # correction[earlier] - correction[later] <= slack; the correction of rank 0 is 0
    upper, settled = _shortest(ranks, later, earlier, slack_s)
    below, settled_too = _shortest(ranks, earlier, later, slack_s)
    if not (settled and settled_too) or np.any(upper + below < -1e-9):
        return replace(clocks, resets=clocks.resets + 1)
    reached = np.isfinite(upper) & np.isfinite(below)
    upper, below = np.where(reached, upper, 0.0), np.where(reached, below, 0.0)
    half = np.where(reached, (upper + below) / 2, np.inf)
    middle = (upper - below) / 2
    steady = reached & (clocks.fits > 1) & (np.abs(middle) < DRIFT * window_s * 4)
    drift = np.where(steady, np.clip(_GAIN * middle / max(window_s, 1e-9), -DRIFT, DRIFT), 0.0)
    offset_s = clocks.offset_s + clocks.rate * (now_s - clocks.fitted_s) + middle
    return Clocks(
        offset_s,
        np.clip(clocks.rate + drift, -4 * DRIFT, 4 * DRIFT),
        now_s.copy(),
        half,
        clocks.fits + 1,
        clocks.resets,
    )


def _shortest(ranks: int, source: IntArray, target: IntArray, length_s: FloatArray) -> tuple[FloatArray, bool]:
    """Lengths of shortest paths from rank 0, and whether they settled: a circle of negative length never does."""
    distance = np.full(ranks, np.inf)
    distance[0] = 0.0
    for _ in range(min(ranks + 1, _ROUNDS)):
        step = np.full(ranks, np.inf)
        np.minimum.at(step, target, distance[source] + length_s)
        nearer = step < distance - 1e-12
        if not nearer.any():
            return distance, True
        if nearer[0]:
            return distance, False
        distance = np.where(nearer, step, distance)
    return distance, False
