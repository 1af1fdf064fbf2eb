"""Skill of rival models on one series: which is trusted, and whether its intervals hold."""

from dataclasses import dataclass

import numpy as np

from autoscaler.forecast.grid import LEVELS
from cluster.arrays import FloatArray, IntArray

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
