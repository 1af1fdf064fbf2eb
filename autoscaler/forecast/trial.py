"""Trial of a booster on points that it has not seen: where its calibration and its score begin."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast.boosted import BoostedFit, columns, is_held_out, settling
from autoscaler.forecast.calibration import CENTRE, WINDOW, conformal_quantiles, spread, standardised
from autoscaler.forecast.linear import LinearFit, course
from autoscaler.forecast.skill import SCORED, mean_losses
from autoscaler.series.regular import Series
from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Result on the held-out points of one series: about 20 kB."""

    errors: NDArray[np.float16]
    """Standardised errors, shape (points, leads); NaN where the value that was forecast is not known."""
    relative_loss: FloatArray
    """Mean pinball losses over those of the linear forecast at the same points, shape (leads, scored levels)."""


def trial_of(series: Series, fit: LinearFit, boosted: BoostedFit) -> Trial:
    """Trial on the last held-out points, as many as fill the window of errors."""
    past = course(fit, series)
    tried = ~np.isnan(past.roots) & is_held_out(len(past.roots), series.step_s)
    tried[: settling(len(tried))] = False
    rows = np.flatnonzero(tried)[-WINDOW:]
    leads_s = fit.leads.astype(np.float64) * series.step_s
    inputs = columns(
        past.levels[rows], past.centre[rows], past.scale[rows], past.errors[rows], series.at_s[rows], leads_s
    )
    core = np.stack([past.centre[rows], past.scale[rows], past.scale[rows]], -1)
    trees = boosted.statement(inputs.reshape(-1, inputs.shape[-1]), core[..., :2].reshape(-1, 2)).reshape(core.shape)
    stated = np.stack([core, trees], axis=2)
    came = _came(past.roots, rows, fit)
    errors = standardised(came[..., None] - stated[..., CENTRE], stated).astype(np.float32)
    quantiles = conformal_quantiles(np.moveaxis(errors, 0, -1))[..., SCORED]
    losses = mean_losses(came[..., None, None], spread(stated, quantiles))
    relative = losses[:, 1] / np.maximum(losses[:, 0], 1e-12)
    return Trial(errors[..., 1].astype(np.float16), np.where(losses[:, 0] > 0, relative, 1.0))


def _came(roots: FloatArray, rows: NDArray[np.int64], fit: LinearFit) -> FloatArray:
    """Values that came after these points, shape (rows, leads); NaN where they are not known."""
    later = rows[:, None] + fit.leads
    return np.where(later < len(roots), roots[np.minimum(later, len(roots) - 1)], np.nan)
