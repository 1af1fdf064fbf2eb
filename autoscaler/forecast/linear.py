"""Linear forecast, in numpy. Level, trend and season by ridge regression, and a scale that follows recent errors.

For each lead, the change from the last sample is linear in `features.design`, and the logarithm of the error's size
in `features.scale_design`. How far the season is trusted, how fast levels follow and how errors cluster is learned by
the coefficients, per series and lead. Everything is in root scale (grid.py), divided by the series' own root level.
"""

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.forecast.grid import GROWTH, LATER_S, lead_steps, to_root
from autoscaler.series import Series, informative
from cluster.arrays import BoolArray, FloatArray, IntArray

WEIGHTS: FloatArray = np.array([1.0, 0.5, 0.2, 0.07, 0.02, 0.005])
"""Weights of the newest sample in the smoothed levels; the first level is the sample itself."""
ERROR_WEIGHTS: FloatArray = np.array([0.3, 0.05, 0.01])
"""Weights of the newest error in the smoothed sizes of errors."""
_SEASON_LEVELS = 4
COLUMNS = len(WEIGHTS) + _SEASON_LEVELS + 1
SCALE_COLUMNS = 2 + len(ERROR_WEIGHTS)
_TINY = 1e-3
_MOST_GROWTH = 10.0
_IDLE = 0.1
"""Least course of a season, in its mean: from a lull of a job that runs each night nothing is multiplied by more."""


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


DAY_S, HOUR_S = 86_400.0, 3600.0
_FINEST_S = 600.0
"""Finest slot of the table: what repeats within minutes of the day is noise in two weeks of days."""
_CERTAIN = 4.0
"""Variance of what repeats within the hour, over the one that noise alone would give its means, from which it counts.
With noise alone the ratio is 1 ± 0.2; scheduled jobs have ten and more."""
MIN_DAYS, MIN_HOURS = 2, 24


@dataclass(frozen=True, slots=True, eq=False)
class Season:
    """Mean of a day's slots, and of the parts of an hour. Slot k is centred on k × `slot_s` after midnight, UTC."""

    slot_s: float
    table: FloatArray
    """Shape (slots,) or (days, slots)."""
    hour: FloatArray
    """Shape (parts,) or (days, parts): mean distance from the day's season in each part of an hour; one part: none."""

    def at(self, at_s: FloatArray, day: IntArray | None = None) -> FloatArray:
        """Season at these instants, linear between slots; of a table per day, with the table of each `day`."""
        position = at_s % DAY_S / self.slot_s
        before = np.floor(position).astype(np.int64)
        weight, slots = position - before, self.table.shape[-1]
        part = _part(at_s, self.hour.shape[-1])
        of = () if day is None else (day,)
        first, second = self.table[*of, before % slots], self.table[*of, (before + 1) % slots]
        return np.asarray((1 - weight) * first + weight * second + self.hour[*of, part])


def _part(at_s: FloatArray, parts: int) -> IntArray:
    """Part of its hour in which each instant lies; samples are early or late by less than half of a part."""
    return np.asarray(np.rint(at_s % HOUR_S * parts / HOUR_S).astype(np.int64) % parts)


def seasons(roots: FloatArray, at_s: FloatArray, step_s: float) -> tuple[Season, Season]:
    """Season of a series, and for each of its days the season of its other days.

    The second one is what a fit must see: a season that knows the day itself looks better than it is. Below two days
    of samples both are flat at the mean.
    roots: shape (points,), with NaN where nothing was measured.
    """
    slot_s = max(_FINEST_S, step_s)
    slots = round(DAY_S / slot_s)
    day = (np.arange(len(at_s)) * step_s // DAY_S).astype(np.int64)
    slot = np.rint(at_s % DAY_S / slot_s).astype(np.int64) % slots
    known = ~np.isnan(roots)
    days = int(day[-1]) + 1
    sums, counts = np.zeros((days, slots)), np.zeros((days, slots))
    np.add.at(sums, (day[known], slot[known]), roots[known])
    np.add.at(counts, (day[known], slot[known]), 1.0)
    mean = float(roots[known].mean()) if known.any() else 0.0
    if known.sum() * step_s < MIN_DAYS * DAY_S:
        flat = np.zeros(1), np.zeros((days, 1))
        return Season(slot_s, np.full(slots, mean), flat[0]), Season(slot_s, np.full((days, slots), mean), flat[1])
    whole = _table(sums.sum(0), counts.sum(0), step_s, slot_s)
    others = np.stack([_table(sums.sum(0) - sums[n], counts.sum(0) - counts[n], step_s, slot_s) for n in range(days)])
    apart = roots - Season(slot_s, whole, np.zeros(1)).at(at_s)
    of_days = [_hour(apart[day != n], at_s[day != n], step_s) for n in range(days)]
    return Season(slot_s, whole, _hour(apart, at_s, step_s)), Season(slot_s, others, np.stack(of_days))


def _hour(apart: FloatArray, at_s: FloatArray, step_s: float) -> FloatArray:
    """Mean distance from the day's season in each part of an hour, shape (parts,): of jobs that start by the clock.

    Zero where hours differ as much as their parts do.
    """
    parts = max(1, round(HOUR_S / step_s))
    hour, part = np.floor_divide(at_s + HOUR_S / parts / 2, HOUR_S).astype(np.int64), _part(at_s, parts)
    table = np.full((int(hour[-1] - hour[0]) + 1, parts), np.nan)
    table[hour - hour[0], part] = apart
    table = table[~np.isnan(table).any(1)]
    if len(table) < MIN_HOURS:
        return np.zeros(parts)
    table = table - table.mean(1, keepdims=True)
    means = table.mean(0)
    ratio = (means**2).mean() / max(float(table.var(0).mean()) / len(table), 1e-12)
    return np.asarray(means * (1 - 1 / ratio) if ratio > _CERTAIN else np.zeros(parts))


def _table(sums: FloatArray, counts: FloatArray, step_s: float, slot_s: float) -> FloatArray:
    """Means of the slots, empty ones interpolated; smoothed over half an hour where samples are finer than slots."""
    slots = np.arange(len(sums))
    filled = counts > 0
    means = np.interp(slots, slots[filled], sums[filled] / counts[filled], period=len(sums))
    if step_s >= slot_s:
        return np.asarray(means)
    return np.asarray(0.5 * means + 0.25 * (np.roll(means, 1) + np.roll(means, -1)))


def smoothed(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Exponentially weighted means along the first axis, for each weight; shape (points, ..., weights).

    values: shape (points, ...); NaN changes nothing. The mean starts at the first number; NaN before it.
    weight: shape (weights,), of the newest value, in (0, 1]; or (points, ..., weights), of each.
    Computed in log2(points) passes: two neighbouring steps of a linear recursion are one linear step.
    """
    known = ~np.isnan(values)
    is_first = known & (np.cumsum(known, axis=0) == 1)
    gain = np.where(known[..., None], np.where(is_first[..., None], 1.0, weight), 0.0)
    kept, added = 1.0 - gain, gain * np.nan_to_num(values)[..., None]
    span = 1
    while span < len(values):
        added[span:] += kept[span:] * added[:-span]
        kept[span:] = kept[span:] * kept[:-span]
        span *= 2
    added[np.cumsum(known, axis=0) == 0] = np.nan
    return np.asarray(added)


MIN_POINTS = 240
"""Samples below which nothing is fitted: four hours at a minute."""
_RIDGE = 1e-3
_FLOOR_FRACTION = 0.1
"""Smallest scale, as a fraction of the mean size of the errors that were fitted."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearFit:
    """What a fit learns of one series: about 3 kB."""

    root: float
    """Typical root of the series, its unit of scale."""
    season: Season
    """In units of `root`."""
    leads: IntArray
    weights: FloatArray
    """Shape (leads, COLUMNS)."""
    scale_weights: FloatArray
    """Shape (leads, SCALE_COLUMNS)."""
    floor: FloatArray
    """Shape (leads,), smallest scale."""
    cap: FloatArray
    """Shape (leads,), largest scale: the largest error that was fitted."""
    growth: FloatArray
    """Shape (leads,), size of the errors `LATER_S` ahead, where the last lead's forecast goes on as the season does, in
    that at each lead."""

    def course(self, at_s: FloatArray) -> FloatArray:
        """What a root without news is proportional to at these instants; never zero."""
        return np.asarray(np.maximum(self.season.at(at_s), _IDLE))

    def centre(self, columns: FloatArray, last: FloatArray) -> FloatArray:
        """Shape (..., leads). columns: of `design`; last: shape (...), the last sample."""
        return np.asarray(last[..., None] + np.einsum("...lc,lc->...l", columns, self.weights))

    def scale(self, centre: FloatArray, errors: FloatArray) -> FloatArray:
        """Typical size of the error, shape (..., leads)."""
        columns = scale_design(centre, errors, self.floor)
        size = np.einsum("...lc,lc->...l", columns, self.scale_weights)
        return np.asarray(np.exp(np.clip(size, np.log(self.floor), np.log(self.cap))))


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Linear forecasts of a whole history: row t holds what was forecast at point t. In units of the fit's root."""

    roots: FloatArray
    """Shape (points,); NaN where nothing was measured."""
    levels: FloatArray
    season_levels: FloatArray
    """Both (points, weights)."""
    centre: FloatArray
    scale: FloatArray
    """Both (points, leads)."""
    errors: FloatArray
    """Shape (points, leads, error weights)."""


def is_long_enough(series: Series) -> bool:
    """Whether a history can be fitted: it is neither too short nor all zero."""
    values = informative(series)
    known = ~np.isnan(values)
    return bool(known.sum() >= MIN_POINTS and values[known].max() > 0)


def fit_linear(series: Series) -> LinearFit | None:
    """Fit of a history; None where it is too short or all zero."""
    if not is_long_enough(series):
        return None
    values = informative(series)
    known = ~np.isnan(values)
    root = float(np.sqrt(values[known].mean()))
    roots, leads = to_root(values) / root, lead_steps(series.step_s)
    season, of_other_days = seasons(roots, series.at_s, series.step_s)
    parts = _parts(roots, series, leads, of_other_days, _day(series))
    columns = design(*parts)
    ahead = _ahead(roots, leads)
    usable = known & (np.arange(len(roots)) >= min(len(roots) // 4, 360))
    weights = np.stack([_ridge(columns[:, n], ahead[:, n] - roots, usable) for n in range(len(leads))])
    one = np.ones(len(leads))
    fit = LinearFit(root, season, leads, weights, np.zeros((len(leads), SCALE_COLUMNS)), one, one, one)
    centre = fit.centre(columns, parts[0][:, 0])
    growth = _growth(roots, ahead, centre, fit.course(series.at_s), leads[-1], round(LATER_S / series.step_s))
    return replace(_with_scale(fit, centre, roots, ahead, usable), growth=growth)


def _growth(
    roots: FloatArray, ahead: FloatArray, centre: FloatArray, course: FloatArray, last: int, later: int
) -> FloatArray:
    """`LinearFit.growth`, of the errors that three in four do not exceed. last, later: steps of the last lead and of
    `LATER_S`."""
    if later <= last or not (~np.isnan(roots[later:] - centre[:-later, -1])).any():
        return np.full(centre.shape[1], GROWTH)
    went_on = centre[:-later, -1] * course[later:] / course[last : last - later]
    size = np.nanquantile(np.abs(roots[later:] - went_on), 0.75)
    sizes = np.nanquantile(np.abs(ahead - centre), 0.75, axis=0)
    return np.asarray(np.clip(size / np.maximum(sizes, _TINY), 1.0, _MOST_GROWTH))


def course(fit: LinearFit, series: Series, *, of_other_days: bool = False) -> Course:
    """Linear forecasts at every point of a history.

    of_other_days: with the season of the history's other days in place of the fit's, as it is for days to come.
    """
    roots = to_root(informative(series)) / fit.root
    season, day = fit.season, None
    if of_other_days:
        season, day = seasons(roots, series.at_s, series.step_s)[1], _day(series)
    levels, season_levels, season_ahead = _parts(roots, series, fit.leads, season, day)
    centre = fit.centre(design(levels, season_levels, season_ahead), levels[:, 0])
    errors = smoothed_errors(roots, centre, fit.leads)
    return Course(roots, levels, season_levels, centre, fit.scale(centre, errors), errors)


def _day(series: Series) -> IntArray:
    return np.asarray(np.arange(len(series.values)) * series.step_s // DAY_S, dtype=np.int64)


def weights_after(steps: FloatArray) -> FloatArray:
    """Weights of a sample in the levels, so many steps after the one before: levels forget by time, or the first sample
    after hours would look like the end of a steep fall. shape (..., weights)."""
    return np.asarray(1 - (1 - WEIGHTS) ** steps[..., None])


def smoothed_errors(roots: FloatArray, centre: FloatArray, leads: IntArray) -> FloatArray:
    """Smoothed sizes of the errors that are known at each point, shape (points, leads, error weights)."""
    size = np.full_like(centre, np.nan)
    for n, lead in enumerate(leads.tolist()):
        size[lead:, n] = np.abs(roots[lead:] - np.where(np.isnan(roots[:-lead]), np.nan, centre[:-lead, n]))
    return np.nan_to_num(smoothed(size, ERROR_WEIGHTS))


def _parts(
    roots: FloatArray, series: Series, leads: IntArray, season: Season, day: IntArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    at_s = series.at_s
    now = np.where(np.isnan(roots), np.nan, season.at(at_s, day))
    at = np.arange(len(roots))
    before = np.maximum.accumulate(np.where(np.isnan(roots), 0, at))
    steps = at - np.concatenate([[-1], before[:-1]])
    levels = np.nan_to_num(smoothed(np.stack([roots, now], -1), weights_after(steps)[:, None]))
    later = at_s[:, None] + leads * series.step_s
    ahead = season.at(later, None if day is None else np.broadcast_to(day[:, None], later.shape))
    return levels[:, 0], levels[:, 1], ahead


def _ahead(roots: FloatArray, leads: IntArray) -> FloatArray:
    """Values that come `lead` points later, shape (points, leads); NaN where they are not known."""
    ahead = np.full((len(roots), len(leads)), np.nan)
    for n, lead in enumerate(leads.tolist()):
        ahead[:-lead, n] = roots[lead:]
    return ahead


def _ridge(columns: FloatArray, target: FloatArray, usable: BoolArray) -> FloatArray:
    """Ridge regression in units of each column's deviation; zero where too little is known."""
    rows = usable & ~np.isnan(target)
    if rows.sum() < 4 * columns.shape[1]:
        return np.zeros(columns.shape[1])
    used, wanted = columns[rows], target[rows]
    size = np.sqrt((used**2).mean(0))
    size[size < 1e-9] = 1.0
    used = used / size
    gram = used.T @ used + _RIDGE * len(used) * np.eye(used.shape[1])
    return np.asarray(np.linalg.solve(gram, used.T @ wanted) / size)


def _with_scale(
    fit: LinearFit, centre: FloatArray, roots: FloatArray, ahead: FloatArray, usable: BoolArray
) -> LinearFit:
    errors = smoothed_errors(roots, centre, fit.leads)
    error = np.where(usable[:, None], ahead - centre, np.nan)
    size, is_known = np.nan_to_num(np.abs(error)), ~np.isnan(error)
    mean = size.sum(0) / np.maximum(is_known.sum(0), 1)  # a lead that the samples never show has none
    floor = np.maximum(_FLOOR_FRACTION * mean, 1e-6)
    cap = np.maximum(size.max(0), 2 * floor)
    columns = scale_design(centre, errors, floor)
    target = np.where(is_known, np.log(np.maximum(size, floor)), np.nan)
    weights = np.stack([_ridge(columns[:, n], target[:, n], usable) for n in range(len(fit.leads))])
    return replace(fit, scale_weights=weights, floor=floor, cap=cap)
