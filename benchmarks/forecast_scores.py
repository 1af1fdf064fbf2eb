"""Scores of predictive distributions against what came: CRPS, pinball loss and coverage."""

from collections.abc import Mapping

import numpy as np

from cluster.arrays import FloatArray

_GRID: FloatArray = (np.arange(1, 100) - 0.5) / 99
"""Levels over which the CRPS is integrated, 0.005 to 0.995."""


def scores(levels: FloatArray, quantiles: FloatArray, came: FloatArray, unit: float, day: int) -> Mapping[str, float]:
    """Mean scores. quantiles: shape (samples, levels); came: shape (samples,); losses are divided by `unit`.

    day: samples of a day, over which rolling coverage is taken.

    CRPS = 2 × the mean pinball loss over all levels, here over 99, with quantiles linear between those of the forecast.
    """
    inside = {name: _inside(levels, quantiles, came, share) for name, share in (("90", 0.90), ("99", 0.99))}
    return {
        "crps": crps(levels, quantiles, came) / unit,
        **{f"pinball_{name}": _pinball_at(levels, quantiles, came, level) / unit for name, level in _PINBALL.items()},
        **{f"coverage_{name}": float(found.mean()) for name, found in inside.items()},
        **_rolling(inside, day),
        "n": len(came),
    }


def _rolling(inside: Mapping[str, FloatArray], day: int) -> dict[str, float]:
    """Lowest and highest coverage of a day's samples in a row; of all where there is no whole day."""
    found: dict[str, float] = {}
    for name, hits in inside.items():
        width = min(day, len(hits))
        means = np.convolve(hits, np.full(width, 1 / width), "valid")
        found |= {f"coverage_{name}_day_low": float(means.min()), f"coverage_{name}_day_high": float(means.max())}
    return found


_PINBALL = {"50": 0.5, "90": 0.9, "99": 0.99}


def crps(levels: FloatArray, quantiles: FloatArray, came: FloatArray) -> float:
    place = np.clip(np.searchsorted(levels, _GRID) - 1, 0, len(levels) - 2)
    weight = np.clip((_GRID - levels[place]) / (levels[place + 1] - levels[place]), 0.0, 1.0)
    dense = (1 - weight) * quantiles[:, place] + weight * quantiles[:, place + 1]
    return float(2 * _loss(_GRID, dense, came).mean())


def _pinball_at(levels: FloatArray, quantiles: FloatArray, came: FloatArray, level: float) -> float:
    place = int(np.searchsorted(levels, level))
    return float(_loss(levels[place : place + 1], quantiles[:, place : place + 1], came).mean())


def _loss(levels: FloatArray, quantiles: FloatArray, came: FloatArray) -> FloatArray:
    above = came[:, None] - quantiles
    return np.asarray(np.maximum(levels * above, (levels - 1) * above))


def _inside(levels: FloatArray, quantiles: FloatArray, came: FloatArray, share: float) -> FloatArray:
    low, high = np.searchsorted(levels, ((1 - share) / 2 - 1e-9, (1 + share) / 2 - 1e-9))
    return np.asarray((quantiles[:, low] <= came) & (came <= quantiles[:, high]), dtype=np.float64)
