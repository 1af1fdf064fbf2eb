"""Online conformal calibration: each model's own errors, by lead, are the shape of its distribution.

A model states a centre and two scales (below, above) per lead. The quantiles of its last errors, each divided by the
scale that was stated with it, times the present scale, are the distribution: whatever a model assumes, the coverage of
the last day is the one that was asked for.
"""

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecast.grid import LEVELS
from cluster.arrays import FloatArray

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
