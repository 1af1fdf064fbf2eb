"""Gradient-boosted quantiles (LightGBM): what the linear forecast misses, learned by trees.

The target is the linear forecast's error in units of its own scale, so that trees start from the numpy core and one
model serves all leads and, where it is fitted on a shard, all series. Its columns have no unit: distances of levels
from the last sample over that scale, ratios of recent errors, minutes of the clock (loads that start on schedules),
the lead. Three quantiles give a centre and two scales; the calibration makes the distribution.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast.linear import ERROR_WEIGHTS, WEIGHTS, Course, LinearFit, course
from autoscaler.series import Series
from cluster.arrays import BoolArray, FloatArray, IntArray

_BLOCK = 128
"""Rows that are evaluated together, so that what is looked up stays in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Equally large ensembles of binary trees; the value of each is the sum of one leaf per tree.

    All nodes lie in one array, 9 bytes each. A leaf points to itself, so that after `depth` steps every row stands at
    its leaf, whichever way it compares.
    """

    ensembles: int
    depth: int
    roots: NDArray[np.int32]
    """Shape (trees,), node at which each tree starts; the trees of an ensemble lie together."""
    feature: NDArray[np.uint8]
    """Shape (nodes,), column that a node compares."""
    threshold: NDArray[np.float32]
    """Shape (nodes,): a row goes left where its value is at most this. For a leaf: what it adds."""
    children: NDArray[np.int16]
    """Shape (2 × nodes,), left and right next node of each, counted from the root of the tree."""

    def values(self, rows: NDArray[np.float32]) -> FloatArray:
        """Value of each ensemble for each row, shape (rows, ensembles). rows: shape (rows, columns), without NaN."""
        blocks = [self._block(rows[first : first + _BLOCK]) for first in range(0, len(rows), _BLOCK)]
        return np.concatenate(blocks) if blocks else np.empty((0, self.ensembles))

    def _block(self, rows: NDArray[np.float32]) -> FloatArray:
        flat, trees = rows.ravel(), len(self.roots)
        start = np.repeat(np.arange(len(rows), dtype=np.int32) * rows.shape[1], trees)
        roots = np.tile(self.roots, len(rows))
        at = roots
        for _ in range(self.depth):
            goes_right = flat.take(start + self.feature.take(at)) > self.threshold.take(at)
            at = roots + self.children.take(2 * at + goes_right)
        leaves = self.threshold.take(at).reshape(len(rows), self.ensembles, -1)
        return np.asarray(leaves.sum(-1, dtype=np.float64))

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in (self.roots, self.feature, self.threshold, self.children))


def trees_from(ensembles: Sequence[Sequence[Mapping[str, Any]]]) -> Trees:
    """Trees of the `tree_structure` documents that LightGBM dumps, those of each ensemble in their order."""
    nodes: list[tuple[int, float, int, int]] = []
    roots: list[int] = []
    depth = 0
    for ensemble in ensembles:
        for document in ensemble:
            roots.append(len(nodes))
            depth = max(depth, _add(document, nodes, len(nodes)))
    feature, threshold, left, right = zip(*nodes, strict=True)
    return Trees(
        len(ensembles),
        depth,
        np.array(roots, dtype=np.int32),
        np.array(feature, dtype=np.uint8),
        np.array(threshold, dtype=np.float32),
        np.stack([left, right], -1).astype(np.int16).ravel(),
    )


def _add(document: Mapping[str, Any], nodes: list[tuple[int, float, int, int]], root: int) -> int:
    """Adds a node and what is below it; returns the height of its tree."""
    place = len(nodes)
    if "leaf_value" in document:
        nodes.append((0, float(document["leaf_value"]), place - root, place - root))
        return 0
    nodes.append((0, 0.0, 0, 0))
    left = len(nodes)
    heights = [_add(document["left_child"], nodes, root)]
    right = len(nodes)
    heights.append(_add(document["right_child"], nodes, root))
    nodes[place] = (int(document["split_feature"]), float(document["threshold"]), left - root, right - root)
    return 1 + max(heights)


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
