"""Judging forecasts of load: scores against what came, the peers to beat, and mechanisms that are taken out."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import NormalDist
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast import calibration, linear
from autoscaler.forecast.grid import LEVELS
from autoscaler.forecast.linear import Season, seasons, smoothed
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


PEERS = {"naive + conformal": 1.0, "ewma + conformal": 0.3}
"""Weight of the newest value."""
_EVERY = 10
"""Points after which the quantiles of a window are taken again."""
_FEWEST = 30


def peer_quantiles(values: FloatArray, weight: float, lead: int, window: int, first: int) -> FloatArray:
    """Quantiles for each point from `first` on that were known `lead` points before it, shape (points, levels).

    The centre is the exponentially weighted mean; its distribution that of the last `window` errors at this lead, as
    they are, cut off at zero. NaN before `first`, and where the point before was a gap.
    """
    means = smoothed(values, np.array([weight]))[:, 0]
    means[np.isnan(values)] = np.nan
    stated = np.concatenate([np.full(lead, np.nan), means[:-lead]])
    errors = values - stated
    found = np.full((len(values), len(LEVELS)), np.nan)
    for start in range(first, len(values), _EVERY):
        known = errors[: start - lead + 1]
        last = known[~np.isnan(known)][-window:]
        if len(last) >= _FEWEST:
            rows = slice(start, start + _EVERY)
            found[rows] = np.maximum(stated[rows, None] + np.quantile(last, LEVELS), 0.0)
    return found


_NORMAL: FloatArray = np.array([NormalDist().inv_cdf(level) for level in LEVELS.tolist()])
"""Quantiles of the standard normal distribution."""


def _flat_seasons(roots: FloatArray, at_s: FloatArray, step_s: float) -> tuple[Season, Season]:
    one, other = seasons(roots, at_s, step_s)
    return _flat(one), _flat(other)


def _flat(found: Season) -> Season:
    return Season(found.slot_s, np.full_like(found.table, found.table.mean()), np.zeros_like(found.hour))


def _gaussian_quantiles(errors: NDArray[np.float32]) -> FloatArray:
    """Mean and deviation of the errors in place of their quantiles."""
    count = (~np.isnan(errors)).sum(-1)
    known = np.where(count[..., None] >= calibration.MIN_ERRORS, errors, np.nan)
    with np.errstate(all="ignore"):
        mean, deviation = np.nanmean(known, -1), np.nanstd(known, -1)
    return np.asarray(mean[..., None] + deviation[..., None] * _NORMAL, dtype=np.float64)


def _one_scale(centre: FloatArray, _errors: FloatArray, _floor: FloatArray) -> FloatArray:
    columns = np.zeros((*centre.shape, linear.SCALE_COLUMNS))
    columns[..., 0] = 1.0
    return columns


MECHANISMS: dict[str, tuple[tuple[ModuleType, str, Any], ...]] = {
    "season": ((linear, "seasons", _flat_seasons),),
    "hour": ((linear, "_CERTAIN", np.inf),),
    "conformal": ((calibration, "conformal_quantiles", _gaussian_quantiles),),
    "widths": ((calibration, "_RATES", np.zeros(2)),),
    "error-scale": ((linear, "scale_design", _one_scale),),
}
"""What replaces what. season: no season. hour: none within the hour. conformal: a normal distribution. widths: the
window of a day alone. error-scale: one scale at all times."""


@contextmanager
def taken_out(name: str | None) -> Iterator[None]:
    """Runs what is inside without this mechanism; None: with all."""
    replaced = MECHANISMS[name] if name else ()
    before = [(room, attribute, getattr(room, attribute)) for room, attribute, _ in replaced]
    try:
        for room, attribute, substitute in replaced:
            setattr(room, attribute, substitute)
        yield
    finally:
        for room, attribute, original in before:
            setattr(room, attribute, original)
