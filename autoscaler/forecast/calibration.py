"""Online conformal calibration: each model's own errors, by lead, are the shape of its distribution.

A model states a centre and two scales (below, above) per lead. The quantiles of its last errors, each divided by the
scale that was stated with it, times the present scale, are the distribution: whatever a model assumes, the coverage of
the last day is the one that was asked for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast.grid import LEVELS
from cluster.arrays import FloatArray, IntArray

WINDOW = 1440
"""Errors per model and lead that make the distribution: a day at a minute."""
MIN_ERRORS = 30
"""Errors below which a lead has no distribution."""
_EVERY = 10
"""Samples after which the quantiles of a full window are computed again; those of a smaller window sooner."""
CENTRE, BELOW, ABOVE = 0, 1, 2
"""Places in the last axis of a statement: centre, scale below it, scale above it."""


_RATES: FloatArray = np.array([0.02, 0.01])
"""Steps by which the intervals at 90 and 99 percent widen where they miss: a day's window alone lags behind a change,
and few errors of a fit are smaller than those of a forecast. Chosen: the least at which every public trace keeps both
coverages; a faster one costs pinball loss at 99 percent."""
_MISSED: FloatArray = np.array([0.095, 0.008])
"""Misses at which a width stays. A little below 0.1 and 0.01, because a width lags behind the errors that it follows:
with those, mean coverage on the public traces is 89.8 and 98.8 percent."""
_BOUNDS = ((3, 13), (0, 16))
"""Places in LEVELS of the bounds of these intervals."""
_NARROWEST, _WIDEST = -0.5, 1.5
"""Range of the logarithm of a width."""
_REPLAYED = 200
"""Last errors from which widths are restored: four times their memory."""
_MEDIAN = 8
_OUTERNESS: FloatArray = np.clip((np.abs(LEVELS - 0.5) - 0.45) / 0.045, 0.0, 1.0)
"""Of each level: 0 up to the bounds of the interval at 90 percent, 1 at those of the one at 99."""


class Calibration:
    """Windows of standardised errors and their quantiles: the state of one series.

    Beside the windows, two widths per lead and model follow the recent coverage: each miss of an interval widens it,
    each hit narrows it, in the ratio that keeps its coverage (adaptive conformal inference, Gibbs and Candès 2021, on
    the logarithm of the width in place of the level).
    """

    __slots__ = ("_since", "_taken", "_widths", "_window_quantiles", "_windows", "quantiles")

    def __init__(self, leads: int, models: int) -> None:
        self._windows: NDArray[np.float32] = np.full((leads, models, WINDOW), np.nan, dtype=np.float32)
        self._taken = self._since = 0
        self._widths = np.zeros((leads, models, 2))
        """Logarithms."""
        self._window_quantiles: FloatArray = np.full((leads, models, len(LEVELS)), np.nan)
        self.quantiles: FloatArray = self._window_quantiles
        """Quantiles of the standardised errors, shape (leads, models, levels)."""

    def learn(self, errors: FloatArray) -> None:
        """Takes the standardised errors of one sample, shape (leads, models); NaN where there is none."""
        self._windows[..., self._taken % WINDOW] = errors
        self._taken += 1
        self._since += 1
        self._adapt(errors)
        if self._since >= min(_EVERY, 1 + self._taken // (4 * MIN_ERRORS)):
            self._take_quantiles()
        self.quantiles = self._widened()

    def restore(self, errors: FloatArray) -> None:
        """State after these errors, shape (samples, leads, models), oldest first."""
        kept = errors[-WINDOW:]
        self._windows[..., : len(kept)] = np.moveaxis(kept, 0, -1)
        self._taken = len(kept)
        self._take_quantiles()
        for row in kept[-_REPLAYED:]:
            self.quantiles = self._widened()
            self._adapt(row)
        self.quantiles = self._widened()

    def _take_quantiles(self) -> None:
        self._since = 0
        self._window_quantiles = conformal_quantiles(self._windows[..., : min(self._taken, WINDOW)])

    def _adapt(self, errors: FloatArray) -> None:
        """Widens or narrows by whether these errors lie inside the present intervals."""
        known = ~np.isnan(errors)
        for n, (low, high) in enumerate(_BOUNDS):
            missed = (errors < self.quantiles[..., low]) | (errors > self.quantiles[..., high])
            self._widths[..., n] += np.where(known, _RATES[n] * (missed - _MISSED[n]), 0.0)
        np.clip(self._widths, _NARROWEST, _WIDEST, out=self._widths)

    def _widened(self) -> FloatArray:
        """Quantiles of the window with their distance from the median times the widths, never crossing."""
        inner, outer = self._widths[..., :1], self._widths[..., 1:]
        median = self._window_quantiles[..., _MEDIAN : _MEDIAN + 1]
        found = median + (self._window_quantiles - median) * np.exp(inner + _OUTERNESS * (outer - inner))
        found[..., _MEDIAN:] = np.maximum.accumulate(found[..., _MEDIAN:], -1)
        found[..., _MEDIAN::-1] = np.minimum.accumulate(found[..., _MEDIAN::-1], -1)
        return np.asarray(found)


def conformal_quantiles(errors: NDArray[np.float32]) -> FloatArray:
    """Quantiles at LEVELS along the last axis, by the rank of a value that is yet to come: level × (count + 1).

    NaN entries do not count; below MIN_ERRORS entries all quantiles are NaN.
    """
    ordered = np.sort(errors, axis=-1)  # NaN last
    count = (~np.isnan(ordered)).sum(-1)[..., None]
    highest = np.maximum(count - 1, 0)
    rank = np.clip(LEVELS * (count + 1) - 1, 0, highest)
    low = rank.astype(np.int64)
    if not ordered.shape[-1]:
        return np.full(rank.shape, np.nan)
    below = np.take_along_axis(ordered, low, -1)
    above = np.take_along_axis(ordered, np.minimum(low + 1, highest), -1)
    return np.where(count >= MIN_ERRORS, below + (rank - low) * (above - below), np.nan)


def standardised(error: FloatArray, stated: FloatArray) -> FloatArray:
    """Errors in units of the scale on their side. stated: the errors' shape and 3."""
    return np.asarray(error / np.where(error < 0, stated[..., BELOW], stated[..., ABOVE]))


def spread(stated: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Distribution in root scale, shape (..., levels), of statements (..., 3) and quantiles (..., levels) of errors."""
    scale = np.where(quantiles < 0, stated[..., BELOW, None], stated[..., ABOVE, None])
    return np.asarray(stated[..., CENTRE, None] + quantiles * scale)


SCORED_LEVELS = (0.5, 0.9, 0.99)
SCORED: IntArray = np.searchsorted(LEVELS, SCORED_LEVELS)
"""Places of the scored levels in LEVELS."""
INTERVALS: IntArray = np.searchsorted(LEVELS, (0.05, 0.95, 0.005, 0.995))
"""Places in LEVELS of the bounds of the intervals at 90 and 99 percent."""
MEMORY = 720
"""Samples over which rolling figures are means: half a day at a minute."""
_MIN_SCORES = 30.0
_MARGIN = 0.99
"""A model takes over where its loss is below this fraction of the trusted one's: less is chance."""


@dataclass(frozen=True, slots=True)
class Skill:
    """Rolling figures of a series' forecasts."""

    trusted: str
    """Model whose forecasts are given out at most leads."""
    relative_loss: dict[str, float]
    """Mean pinball loss of each model over that of `naive`; below 1 is better. Empty until there are scores."""
    coverage_90: float
    coverage_99: float
    """Fraction of samples inside the intervals that were given out; NaN until there are any."""


class Scores:
    """Rolling pinball losses of the models, and coverage of what was given out."""

    __slots__ = ("_count", "_coverage", "_covered", "_loss", "trusted")

    def __init__(self, models: int, leads: int) -> None:
        self._loss = np.zeros((leads, models, len(SCORED)))
        self._count = 0.0
        self._coverage, self._covered = np.zeros(2), 0.0
        self.trusted: IntArray = np.zeros(leads, dtype=np.int64)
        """Place of the model whose forecasts are given out, for each lead."""

    def add(self, value: float, quantiles: FloatArray, given: FloatArray) -> None:
        """Scores one sample. value: in root scale; quantiles: of each model at SCORED, (leads, models, scored).

        given: bounds at INTERVALS that were given out for this sample, shape (leads, 4); NaN where nothing was.
        """
        loss = pinball(value**2, np.maximum(quantiles, 0.0) ** 2)
        whole = ~np.isnan(loss).any((1, 2))
        if whole.any():
            self._count += 1.0
            weight = max(1 / MEMORY, 1 / self._count)
            self._loss[whole] += weight * (loss[whole] - self._loss[whole])
            self._choose()
        self._cover(value, given)

    def restore(self, losses: FloatArray, count: int, trusted: IntArray) -> None:
        """State after a history. losses: `mean_losses` of its last `count` samples.

        trusted: shape (leads,), places of the models that were trusted before.
        """
        self._loss, self._count, self.trusted = losses, float(count), trusted.copy()
        self._choose()

    def skill(self, names: tuple[str, ...]) -> Skill:
        relative = self._relative().mean(0) if self._count >= _MIN_SCORES else np.empty(0)
        coverage = self._coverage if self._covered else np.full(2, np.nan)
        return Skill(
            self.most_trusted(names),
            dict(zip(names, relative.tolist(), strict=False)),
            float(coverage[0]),
            float(coverage[1]),
        )

    def most_trusted(self, names: tuple[str, ...]) -> str:
        """Model that is trusted at most leads."""
        return names[int(np.bincount(self.trusted).argmax())]

    def _relative(self) -> FloatArray:
        """Losses over those of the first model, mean over levels, shape (leads, models)."""
        return np.asarray((self._loss / np.maximum(self._loss[:, :1], 1e-12)).mean(-1))

    def _choose(self) -> None:
        if self._count < _MIN_SCORES:
            return
        relative = self._relative()
        leads, best = np.arange(len(relative)), relative.argmin(-1)
        takes_over = relative[leads, best] < _MARGIN * relative[leads, self.trusted]
        self.trusted[takes_over] = best[takes_over]

    def _cover(self, value: float, given: FloatArray) -> None:
        bounds = given[~np.isnan(given).any(-1)]
        if not len(bounds):
            return
        inside = ((bounds[:, ::2] <= value) & (value <= bounds[:, 1::2])).mean(0)
        self._covered += 1.0
        self._coverage += max(1 / MEMORY, 1 / self._covered) * (inside - self._coverage)


def mean_losses(values: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Mean pinball losses over the first axis, shape (leads, models, scored); 0 where no sample has a loss.

    values: in root scale, broadcast to quantiles: of each model at SCORED, (samples, leads, models, scored).
    """
    loss = pinball(values**2, np.maximum(quantiles, 0.0) ** 2)
    known = ~np.isnan(loss)
    return np.asarray(np.where(known, loss, 0.0).sum(0) / np.maximum(known.sum(0), 1))


def pinball(value: FloatArray | float, quantiles: FloatArray) -> FloatArray:
    """Pinball loss of quantiles at SCORED along the last axis."""
    above = value - quantiles
    levels = LEVELS[SCORED]
    return np.asarray(np.maximum(levels * above, (levels - 1) * above))
