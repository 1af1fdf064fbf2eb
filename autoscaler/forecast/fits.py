"""Fits: what is learned of series in the background, as plain values that cross between processes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast.boosted import (
    COLUMNS as TREE_COLUMNS,
    BoostedFit,
    Trees,
    columns,
    fit_boosted,
    is_held_out,
    settling,
)
from autoscaler.forecast.calibration import CENTRE, SCORED, conformal_quantiles, mean_losses, spread, standardised
from autoscaler.forecast.grid import lead_steps
from autoscaler.forecast.linear import COLUMNS, SCALE_COLUMNS, Course, LinearFit, course, fit_linear
from autoscaler.series import Series
from cluster.arrays import Array, FloatArray, IntArray

KEPT = 720
"""Errors of each lead and model that are kept: half a day at a minute, 12 kB."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Errors of one series' fitted models, and the loss of the trees."""

    core: NDArray[np.float16]
    """Standardised errors of the core, shape (points, leads); NaN where the value that was forecast is not known."""
    boosted: NDArray[np.float16] | None
    """Likewise of the trees."""
    relative_loss: FloatArray | None
    """Mean pinball losses of the trees over those of the core, shape (leads, scored levels)."""


def trial_of(series: Series, fit: LinearFit, boosted: BoostedFit | None) -> Trial:
    """Trial on the last points that can be used: for trees, those that are held out of their fit.

    The core is tried with the season of the other days: its own day makes a season look better than it is.
    """
    past = course(fit, series, of_other_days=True)
    usable = ~np.isnan(past.roots)
    usable[: settling(len(usable))] = False
    rows = np.flatnonzero(usable)[-KEPT:]
    core = _errors(_came(past.roots, rows, fit.leads), _core(past, rows)[:, :, None])[..., 0].astype(np.float16)
    if boosted is None:
        return Trial(core, None, None)
    rows = np.flatnonzero(usable & is_held_out(len(usable), series.step_s))[-KEPT:]
    came = _came(past.roots, rows, fit.leads)
    stated = np.stack([_core(past, rows), _trees(past, rows, series, fit, boosted)], axis=2)
    errors = _errors(came, stated)
    return Trial(core, errors[..., 1].astype(np.float16), _relative_loss(came, stated, errors))


def _core(past: Course, rows: IntArray) -> FloatArray:
    return np.stack([past.centre[rows], past.scale[rows], past.scale[rows]], -1)


def _trees(past: Course, rows: IntArray, series: Series, fit: LinearFit, boosted: BoostedFit) -> FloatArray:
    leads_s = fit.leads.astype(np.float64) * series.step_s
    inputs = columns(
        past.levels[rows], past.centre[rows], past.scale[rows], past.errors[rows], series.at_s[rows], leads_s
    )
    linear = np.stack([past.centre[rows], past.scale[rows]], -1).reshape(-1, 2)
    return boosted.statement(inputs.reshape(len(linear), -1), linear).reshape(len(rows), len(leads_s), 3)


def _errors(came: FloatArray, stated: FloatArray) -> FloatArray:
    return standardised(came[..., None] - stated[..., CENTRE], stated)


def _relative_loss(came: FloatArray, stated: FloatArray, errors: FloatArray) -> FloatArray:
    quantiles = conformal_quantiles(np.moveaxis(errors, 0, -1).astype(np.float32))[..., SCORED]
    losses = mean_losses(came[..., None, None], spread(stated, quantiles))
    return np.where(losses[:, 0] > 0, losses[:, 1] / np.maximum(losses[:, 0], 1e-12), 1.0)


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
    trial: Trial
    boosted: BoostedFit | None = None
    """None: only the numpy core."""


def fit(series: Series, *, boosted: bool = True) -> Fit | None:
    """Fit of one series; None where its history is too short.

    Two weeks at a minute take 0.2 s of one core for the numpy core and 2 s more for the trees.
    """
    return fit_shard((series,), boosted=boosted)[0]


def fit_shard(shard: Sequence[Series], *, boosted: bool = True) -> tuple[Fit | None, ...]:
    """Fits of a shard of series, in its order: linear ones each for itself, and one booster that all of them share.

    Its rows are limited, so that the booster costs the same for 5 series and for 500.
    """
    linear = [fit_linear(series) for series in shard]
    members = [(series, found) for series, found in zip(shard, linear, strict=True) if found is not None]
    trees = fit_boosted(members) if boosted and members else None
    made: list[Fit | None] = []
    for series, found in zip(shard, linear, strict=True):
        end_s = float(series.start_s + series.step_s * (len(series.values) - 1))
        made.append(None if found is None else Fit(found, end_s, trial_of(series, found, trees), trees))
    return tuple(made)


_DEEPEST = 16
_MOST_SLOTS = 86_400


def is_sound(fit: Fit, step_s: float) -> bool:
    """Whether a fit can be used with a series of this step.

    Whether it is any good is another question: a poor one loses trust by its errors (`Skill`).
    """
    leads = len(lead_steps(step_s))
    return (
        bool(np.isfinite(fit.fitted_at_s))
        and np.array_equal(fit.linear.leads, lead_steps(step_s))
        and _is_sound_linear(fit.linear, leads)
        and _is_sound_trial(fit.trial, leads, boosted=fit.boosted is not None)
        and (fit.boosted is None or _is_sound_forest(fit.boosted.trees))
    )


def _is_sound_linear(fit: LinearFit, leads: int) -> bool:
    season = fit.season
    return (
        0 < fit.root < float("inf")
        and 0 < season.slot_s < float("inf")
        and _holds_numbers(season.table, (len(season.table),))
        and 0 < len(season.table) <= _MOST_SLOTS
        and _holds_numbers(fit.weights, (leads, COLUMNS))
        and _holds_numbers(fit.scale_weights, (leads, SCALE_COLUMNS))
        and _holds_numbers(fit.floor, (leads,))
        and _holds_numbers(fit.cap, (leads,))
        and bool((fit.floor > 0).all() and (fit.cap >= fit.floor).all())
    )


def _is_sound_trial(trial: Trial, leads: int, *, boosted: bool) -> bool:
    losses = trial.relative_loss
    return (
        _are_errors(trial.core, leads)
        and (trial.boosted is not None) == (losses is not None) == boosted
        and (trial.boosted is None or _are_errors(trial.boosted, leads))
        and (losses is None or (_holds_numbers(losses, (leads, len(SCORED))) and bool((losses >= 0).all())))
    )


def _are_errors(errors: Array, leads: int) -> bool:
    return errors.dtype == np.float16 and errors.ndim == 2 and len(errors) <= KEPT and errors.shape[1] == leads


def _is_sound_forest(trees: Trees) -> bool:
    """Whether every step of every walk ends at a node of the arrays."""
    nodes = len(trees.feature)
    arrays: tuple[Array, ...] = (trees.roots, trees.feature, trees.threshold, trees.children)
    kinds = (np.int32, np.uint8, np.float32, np.int16)
    if any(array.dtype != kind or array.ndim != 1 for array, kind in zip(arrays, kinds, strict=True)):
        return False
    if not len(trees.roots):
        return False
    if not 0 <= trees.depth <= _DEEPEST or trees.ensembles != 3 or len(trees.roots) % trees.ensembles:
        return False
    if len(trees.threshold) != nodes or len(trees.children) != 2 * nodes or not np.isfinite(trees.threshold).all():
        return False
    starts, ends = trees.roots, np.append(trees.roots[1:], nodes)
    if trees.roots[0] != 0 or (ends <= starts).any() or (trees.feature >= TREE_COLUMNS).any():
        return False
    size = np.repeat(ends - starts, 2 * (ends - starts))
    return bool(((trees.children >= 0) & (trees.children < size)).all())


def _holds_numbers(array: Array, shape: tuple[int, ...]) -> bool:
    return array.dtype == np.float64 and array.shape == shape and bool(np.isfinite(array).all())
