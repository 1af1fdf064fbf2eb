"""Features of the linear forecast: smoothed levels, the season, and the size of recent errors.

Every function takes arrays with any leading axes, so that a fit computes a whole history with the code that computes
one minute online.
"""

import numpy as np

from cluster.arrays import FloatArray

WEIGHTS: FloatArray = np.array([1.0, 0.5, 0.2, 0.07, 0.02, 0.005])
"""Weights of the newest sample in the smoothed levels; the first level is the sample itself."""
ERROR_WEIGHTS: FloatArray = np.array([0.3, 0.05, 0.01])
"""Weights of the newest error in the smoothed sizes of errors."""
_SEASON_LEVELS = 4
COLUMNS = len(WEIGHTS) + _SEASON_LEVELS + 1
SCALE_COLUMNS = 2 + len(ERROR_WEIGHTS)
_TINY = 1e-3


def design(levels: FloatArray, season_levels: FloatArray, season_ahead: FloatArray) -> FloatArray:
    """Columns that explain the change from the last sample to each lead, shape (..., leads, COLUMNS).

    levels: shape (..., weights), smoothed levels of the series.
    season_levels: likewise of the season, so that "level above its season" is a sum of columns.
    season_ahead: shape (..., leads), season at the instants that are forecast.
    """
    last, season = levels[..., :1], season_levels[..., :1]
    common = np.concatenate(
        [np.ones_like(last), levels[..., 1:] - last, season - last, season_levels[..., 1:_SEASON_LEVELS] - season], -1
    )
    ahead = (season_ahead - season)[..., None]
    return np.concatenate([np.broadcast_to(common[..., None, :], (*ahead.shape[:-1], common.shape[-1])), ahead], -1)


def scale_design(centre: FloatArray, errors: FloatArray, floor: FloatArray) -> FloatArray:
    """Columns that explain the logarithm of an error's size, shape (..., leads, SCALE_COLUMNS).

    centre: shape (..., leads), what is forecast. errors: shape (..., leads, error weights), smoothed sizes of errors.
    floor: shape (leads,), size below which errors are not told apart.
    """
    columns = [np.ones_like(centre)[..., None], np.log(np.maximum(centre, _TINY))[..., None]]
    return np.concatenate([*columns, np.log(errors + floor[:, None])], -1)
