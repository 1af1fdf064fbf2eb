"""Soundness of a fit that comes from another process: shapes, numbers and trees as the online part relies on them."""

import numpy as np

from autoscaler.forecast.boosted import COLUMNS as TREE_COLUMNS
from autoscaler.forecast.features import COLUMNS, SCALE_COLUMNS
from autoscaler.forecast.fits import Fit
from autoscaler.forecast.grid import lead_steps
from autoscaler.forecast.linear import LinearFit
from autoscaler.forecast.skill import SCORED
from autoscaler.forecast.trees import Trees
from autoscaler.forecast.trial import KEPT, Trial
from cluster.arrays import Array

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
