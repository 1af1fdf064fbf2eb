"""Windows: which columns of a table of excesses stand out, for how long, by several windows at once."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Tier:
    """One window: short ones find strong faults soon, long ones weak faults without false alarms."""

    steps: int
    least_share: float
    """Least excess that counts, as a share of the step."""


TIERS = (Tier(5, 0.15), Tier(12, 0.07), Tier(28, 0.06))
"""Chosen on seeds 1-60 of benchmarks/health.py; the last one's share so that ranks whose speed drifts by 1.5 % either
way are not blamed: at 0.045, 9 were in 312,330 clean GPU-days (benchmarks/health_clean.py, seeds 3001-3030)."""
PERSISTENT = 0.8
"""Share of a window's steps that must show at least half of the excess: a stall shows in one step only."""
_Z = 7.0
"""Standard errors of a window's median that noise must not reach: 1e-11 one-sided, for a million windows a day."""
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean, for normal noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What one tier found; shape (columns,) each."""

    tier: Tier
    excess: FloatArray
    """Median excess within the window, as a share of the step."""
    out: BoolArray
    """Whether it stands out."""


def noise_of(excess: FloatArray) -> FloatArray:
    """Standard deviation of each column from its median absolute deviation, at least that of the median column."""
    spread = 1.4826 * np.median(np.abs(excess - np.median(excess, axis=0)), axis=0)
    return np.maximum(spread, np.median(spread))


def limits(noise: FloatArray, tier: Tier, baseline_steps: int, least: float = 1.0) -> FloatArray:
    """Shape (columns,): median excess from which a column stands out."""
    error = _MEDIAN * noise * np.sqrt(1 / tier.steps + 1 / max(baseline_steps, 1))
    return np.asarray(np.maximum(tier.least_share * least, _Z * error))


def standing(excess: FloatArray, noise: FloatArray, tier: Tier, baseline_steps: int, least: float = 1.0) -> Standing:
    """excess: shape (steps, columns), newest last, at least the tier's steps.

    noise: shape (columns,), standard deviation per step. baseline_steps: steps behind the expectation.
    least: factor of the tier's least share.
    """
    window = excess[-tier.steps :]
    middle = np.median(window, axis=0)
    limit = limits(noise, tier, baseline_steps, least)
    out = middle >= limit
    out[out] = (window[:, out] > limit[out] / 2).mean(axis=0) >= PERSISTENT
    return Standing(tier, middle, out)
