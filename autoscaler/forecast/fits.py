"""Fits: what is learned of series in the background, as plain values that cross between processes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast.calibration import CENTRE, standardised
from autoscaler.forecast.grid import lead_steps
from autoscaler.forecast.linear import COLUMNS, SCALE_COLUMNS, LinearFit, course, fit_linear
from autoscaler.series import Series
from cluster.arrays import Array, FloatArray, IntArray

_SETTLING = 360
"""First points of a history, whose levels are not settled."""
KEPT = 720
"""Errors of each lead and model that are kept: half a day at a minute, 12 kB."""


def trial_of(series: Series, fit: LinearFit) -> NDArray[np.float16]:
    """Standardised errors of a fit on the last points that can be used, shape (points, leads); NaN where the value that
    was forecast is not known.

    It is tried with the season of the other days: its own day makes a season look better than it is.
    """
    past = course(fit, series, of_other_days=True)
    usable = ~np.isnan(past.roots)
    usable[: min(_SETTLING, len(usable) // 4)] = False
    rows = np.flatnonzero(usable)[-KEPT:]
    stated = np.stack([past.centre[rows], past.scale[rows], past.scale[rows]], -1)
    came = _came(past.roots, rows, fit.leads)
    return standardised(came - stated[..., CENTRE], stated).astype(np.float16)


def _came(roots: FloatArray, rows: NDArray[np.int64], leads: IntArray) -> FloatArray:
    """Values that came after these points, shape (rows, leads); NaN where they are not known."""
    later = rows[:, None] + leads
    return np.where(later < len(roots), roots[np.minimum(later, len(roots) - 1)], np.nan)


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Everything that the online part needs of a history."""

    linear: LinearFit
    fitted_at_s: float
    """Instant of the last sample that it knows."""
    trial: NDArray[np.float16]
    """As of `trial_of`."""


def fit(series: Series) -> Fit | None:
    """Fit of one series; None where its history is too short. Two weeks at a minute take 0.2 s of one core."""
    found = fit_linear(series)
    if found is None:
        return None
    end_s = float(series.start_s + series.step_s * (len(series.values) - 1))
    return Fit(found, end_s, trial_of(series, found))


_MOST_SLOTS = 86_400


def is_sound(fit: Fit, step_s: float) -> bool:
    """Whether a fit can be used with a series of this step.

    Whether it is any good is another question: a poor one loses trust by its errors (`Skill`).
    """
    leads, trial = len(lead_steps(step_s)), fit.trial
    return (
        bool(np.isfinite(fit.fitted_at_s))
        and np.array_equal(fit.linear.leads, lead_steps(step_s))
        and _is_sound_linear(fit.linear, leads)
        and (trial.dtype == np.float16 and trial.ndim == 2 and len(trial) <= KEPT and trial.shape[1] == leads)
    )


def _is_sound_linear(fit: LinearFit, leads: int) -> bool:
    season = fit.season
    return (
        0 < fit.root < float("inf")
        and 0 < season.slot_s < float("inf")
        and _holds_numbers(season.table, (len(season.table),))
        and 0 < len(season.table) <= _MOST_SLOTS
        and _holds_numbers(season.hour, (len(season.hour),))
        and 0 < len(season.hour) <= _MOST_SLOTS
        and _holds_numbers(fit.weights, (leads, COLUMNS))
        and _holds_numbers(fit.scale_weights, (leads, SCALE_COLUMNS))
        and _holds_numbers(fit.floor, (leads,))
        and _holds_numbers(fit.cap, (leads,))
        and _holds_numbers(fit.growth, (leads,))
        and bool((fit.floor > 0).all() and (fit.cap >= fit.floor).all())
    )


def _holds_numbers(array: Array, shape: tuple[int, ...]) -> bool:
    return array.dtype == np.float64 and array.shape == shape and bool(np.isfinite(array).all())
