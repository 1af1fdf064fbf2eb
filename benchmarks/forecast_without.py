"""Ablations of the forecast: each mechanism in turn replaced by the simplest thing that could stand in its place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import NormalDist
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast import boosted, calibration, fits, linear, online, states
from autoscaler.forecast.grid import LEVELS
from autoscaler.forecast.linear import DAY_S, Season, seasons
from cluster.arrays import FloatArray

_NORMAL: FloatArray = np.array([NormalDist().inv_cdf(level) for level in LEVELS.tolist()])
"""Quantiles of the standard normal distribution."""


def _flat_seasons(roots: FloatArray, at_s: FloatArray, step_s: float) -> tuple[Season, Season]:
    one, other = seasons(roots, at_s, step_s)
    return _flat(one), _flat(other)


def _flat(found: Season) -> Season:
    return Season(found.slot_s, np.full_like(found.table, found.table.mean()))


def _gaussian_quantiles(errors: NDArray[np.float32]) -> FloatArray:
    """Mean and deviation of the errors in place of their quantiles."""
    count = (~np.isnan(errors)).sum(-1)
    known = np.where(count[..., None] >= calibration.MIN_ERRORS, errors, np.nan)
    with np.errstate(all="ignore"):
        mean, deviation = np.nanmean(known, -1), np.nanstd(known, -1)
    return np.asarray(mean[..., None] + deviation[..., None] * _NORMAL, dtype=np.float64)


def _columns_without_clock(*arguments: Any) -> NDArray[np.float32]:
    found = boosted_columns(*arguments)
    found[..., -3:-1] = 0.0
    return found


boosted_columns: Callable[..., NDArray[np.float32]] = boosted.columns

MECHANISMS: dict[str, tuple[tuple[ModuleType, str, Any], ...]] = {
    "season": ((linear, "seasons", _flat_seasons),),
    "week": ((linear, "DAY_S", 7 * DAY_S),),
    "conformal": ((calibration, "conformal_quantiles", _gaussian_quantiles),),
    "widths": ((calibration, "_RATES", np.zeros(2)),),
    "error-scale": ((linear, "_DAMPING", (0.0,)),),
    "damping": ((linear, "_DAMPING", (1.0,)),),
    "trial": ((online, "_with_trial", lambda errors, tried, fitted: errors),),  # noqa: ARG005
    "clock": tuple((room, "columns", _columns_without_clock) for room in (boosted, states, fits)),
}
"""What replaces what. season: no season. week: a season of the week instead of the day. conformal: a normal
distribution. widths: the window of a day alone. error-scale: one scale at all times. damping: a scale without damping.
trial: the fit's errors on its own history. clock: trees that do not know the minute."""


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
