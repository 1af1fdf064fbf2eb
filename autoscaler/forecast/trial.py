"""Trial of fitted models on points that they have not seen: where their calibration and their score begin."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast.boosted import BoostedFit, columns, is_held_out, settling
from autoscaler.forecast.calibration import CENTRE, conformal_quantiles, spread, standardised
from autoscaler.forecast.linear import Course, LinearFit, course
from autoscaler.forecast.skill import SCORED, mean_losses
from autoscaler.series.regular import Series
from cluster.arrays import FloatArray, IntArray

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
