"""Gradient-boosted quantiles (LightGBM): what the linear forecast misses, learned by trees.

The target is the linear forecast's error in units of its own scale, so that trees start from the numpy core and one
model serves all leads and, where it is fitted on a shard, all series. Its columns have no unit: distances of levels
from the last sample over that scale, ratios of recent errors, minutes of the clock (loads that start on schedules),
the lead. Three quantiles give a centre and two scales; the calibration makes the distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast.features import ERROR_WEIGHTS, WEIGHTS
from autoscaler.forecast.linear import Course, LinearFit, course
from autoscaler.forecast.trees import Trees, trees_from
from autoscaler.series.regular import Series
from cluster.arrays import BoolArray, FloatArray, IntArray

_LEVELS = (0.1, 0.5, 0.9)
COLUMNS = len(WEIGHTS) + len(ERROR_WEIGHTS) + 3
"""Columns of a row of the trees."""
_TREES = 80
_NARROWEST = 0.1
"""Smallest scale, in units of the linear forecast's."""
_APART_S = 180.0
"""Seconds between the points that are rows: closer ones say nearly the same."""
_SETTLING = 360
_BLOCK_S, _BLOCKS = 7200.0, 10
_MOST_ROWS = 300_000
"""Rows of a fit, so that a shard of 50 series takes 10 s for its trees. On the public traces 26,000 rows a trace do as
well as 77,000."""
_FEWEST_ROWS = 5_000
"""Rows below which trees learn noise: a week at ten minutes, 3,000, makes them worse than the core. In a shard such
series have trees all the same."""
_TINY = 1e-6
_PARAMETERS: dict[str, Any] = {
    "objective": "quantile",
    "num_leaves": 15,
    "max_depth": 6,
    "learning_rate": 0.08,
    "lambda_l2": 1.0,
    "bagging_fraction": 0.5,
    "bagging_freq": 1,
    "max_bin": 63,
    "use_missing": False,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}


@dataclass(frozen=True, slots=True, eq=False)
class BoostedFit:
    """Trees of the three quantiles of standardised errors, of one series or of a shard: about 60 kB."""

    trees: Trees

    def statement(self, rows: NDArray[np.float32], linear: FloatArray) -> FloatArray:
        """Centre and two scales, shape (rows, 3), root scale in units of the fit.

        rows: of `columns`, shape (rows, columns); linear: shape (rows, 2), centre and scale of the linear forecast.
        """
        low, median, high = np.sort(self.trees.values(rows), axis=-1).T
        centre, scale = linear.T
        below, above = np.maximum(median - low, _NARROWEST), np.maximum(high - median, _NARROWEST)
        return np.stack([centre + scale * median, scale * below, scale * above], -1)


def columns(
    levels: FloatArray, centre: FloatArray, scale: FloatArray, errors: FloatArray, at_s: FloatArray, leads_s: FloatArray
) -> NDArray[np.float32]:
    """Columns of the trees, shape (..., leads, columns).

    levels: shape (..., weights); centre, scale: (..., leads); errors: (..., leads, error weights), all as of the linear
    forecast; at_s: shape (...), instant of the last sample; leads_s: shape (leads,).
    """
    last = levels[..., :1]
    found = [(levels[..., n, None] - last) / scale for n in range(1, levels.shape[-1])]
    found += [(centre - last) / scale, np.log(scale / np.maximum(centre, 1e-3))]
    sizes = np.log(errors + _TINY)
    found += [sizes[..., n] - sizes[..., n + 1] for n in range(errors.shape[-1] - 1)]
    found += [at_s[..., None] % 3600.0 / 60.0, at_s[..., None] % 600.0 / 60.0, leads_s / 60.0]
    rows = np.empty((*centre.shape, len(found)), dtype=np.float32)
    for n, column in enumerate(found):
        rows[..., n] = column
    return rows


def fit_boosted(members: Sequence[tuple[Series, LinearFit]]) -> BoostedFit | None:
    """Fit of a shard of series, pooled; None without LightGBM, or where there are too few rows.

    Held-out points (trial.py) are left out.
    """
    try:
        import lightgbm
    except ImportError:
        return None
    parts = [_rows(series, fit, len(members)) for series, fit in members]
    rows, target = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    if len(rows) < _FEWEST_ROWS:
        return None
    parameters = {**_PARAMETERS, "min_data_in_leaf": max(20, min(533, len(rows) // 40))}
    data = lightgbm.Dataset(rows, target, params=parameters, free_raw_data=False)
    dumps = [lightgbm.train({**parameters, "alpha": level}, data, _TREES).dump_model() for level in _LEVELS]
    return BoostedFit(trees_from([[tree["tree_structure"] for tree in dump["tree_info"]] for dump in dumps]))


def _rows(series: Series, fit: LinearFit, members: int) -> tuple[NDArray[np.float32], FloatArray]:
    """Columns and targets of one of the members of a shard."""
    past = course(fit, series)
    every = max(round(_APART_S / series.step_s), -(-len(series.values) * len(fit.leads) * members // _MOST_ROWS), 1)
    target = _standardised_errors(past, fit.leads)
    chosen = ~np.isnan(past.roots) & ~is_held_out(len(past.roots), series.step_s)
    chosen[: settling(len(chosen))] = False
    chosen[np.arange(len(chosen)) % every != 0] = False
    usable = chosen[:, None] & ~np.isnan(target)
    leads_s = fit.leads.astype(np.float64) * series.step_s
    found = columns(past.levels, past.centre, past.scale, past.errors, series.at_s, leads_s)
    return found[usable], target[usable]


def is_held_out(points: int, step_s: float) -> BoolArray:
    """Points of a history that trees must not see, shape (points,): every tenth block of two hours.

    Their errors are those of a forecast, not of a fit. They are spread over the history, so that the trees know its
    end.
    """
    block = np.arange(points) // max(1, round(_BLOCK_S / step_s))
    return np.asarray(block % _BLOCKS == _BLOCKS - 1)


def settling(points: int) -> int:
    """First points of a history, whose levels are not settled."""
    return min(_SETTLING, points // 4)


def _standardised_errors(past: Course, leads: IntArray) -> FloatArray:
    """Error that each forecast turned out to have, shape (points, leads); NaN where that is not known."""
    found = np.full_like(past.centre, np.nan)
    for n, lead in enumerate(leads.tolist()):
        found[:-lead, n] = (past.roots[lead:] - past.centre[:-lead, n]) / past.scale[:-lead, n]
    return found
