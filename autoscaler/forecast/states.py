"""Online states of the models: what a model remembers between two samples, and what it states after each."""

from typing import NamedTuple, Protocol

import numpy as np

from autoscaler.forecast.boosted import BoostedFit, columns
from autoscaler.forecast.fits import Fit
from autoscaler.forecast.linear import ERROR_WEIGHTS, WEIGHTS, LinearFit, course, design, smoothed
from autoscaler.series import Series, informative
from cluster.arrays import FloatArray, IntArray

EWMA_WEIGHT = 0.3


class State(Protocol):
    """One model on one series, in root scale (grid.py)."""

    def learn(self, at_s: float, value: float, errors: FloatArray) -> FloatArray:
        """Takes a sample; returns the statement (calibration.py) after it, shape (leads, 3).

        errors: shape (leads,), root of the value less the model's own centre for it; NaN where there was none.
        """
        ...

    def restore(self, series: Series) -> FloatArray:
        """State after a history; the statements at its points, shape (points, leads, 3), NaN at gaps."""
        ...


class Smoothed:
    """Exponentially weighted mean; with weight 1 it is the naive forecast, the last value.

    Both are rivals that need no fit. Their scale is 1: in root scale the spread of arrivals is even.
    """

    __slots__ = ("_leads", "_mean", "_weight")

    def __init__(self, weight: float, leads: int) -> None:
        self._weight, self._leads = weight, leads
        self._mean: float | None = None

    def learn(self, at_s: float, value: float, errors: FloatArray) -> FloatArray:  # noqa: ARG002
        self._mean = value if self._mean is None else self._mean + self._weight * (value - self._mean)
        return self._statement(np.array(self._mean))

    def restore(self, series: Series) -> FloatArray:
        values = informative(series)
        means = smoothed(values, np.array([self._weight]))[:, 0]
        self._mean = None if np.isnan(means[-1]) else float(means[-1])
        means[np.isnan(values)] = np.nan
        return self._statement(means)

    def _statement(self, mean: FloatArray) -> FloatArray:
        stated = np.ones((*mean.shape, self._leads, 3))
        stated[..., 0] = np.sqrt(mean)[..., None]
        return stated


class Moment(NamedTuple):
    """Linear forecast of one moment, or of all points of a history; shapes as in linear.Course, in the fit's units."""

    levels: FloatArray
    centre: FloatArray
    scale: FloatArray
    errors: FloatArray
    at_s: FloatArray


class Linear:
    """The numpy core (linear.py)."""

    __slots__ = ("_errors", "_fit", "_leads_s", "_levels", "now")

    def __init__(self, fit: LinearFit, step_s: float) -> None:
        self._fit, self._leads_s = fit, fit.leads.astype(np.float64) * step_s
        self.now: Moment | None = None
        """What it has stated last, for the model that corrects it."""
        self._levels: FloatArray | None = None
        """Shape (2, weights): of the series, of its season."""
        self._errors = np.zeros((len(fit.leads), len(ERROR_WEIGHTS)))

    def learn(self, at_s: float, value: float, errors: FloatArray) -> FloatArray:
        fit = self._fit
        instants = np.concatenate([[at_s], at_s + self._leads_s])
        season = fit.season.at(instants)
        now = np.array([[np.sqrt(value) / fit.root], [season[0]]])
        self._levels = np.repeat(now, len(WEIGHTS), 1) if self._levels is None else self._smooth(now)
        size = np.abs(errors)[:, None] / fit.root
        self._errors += np.where(np.isnan(size), 0.0, ERROR_WEIGHTS * (size - self._errors))
        centre = fit.centre(design(self._levels[0], self._levels[1], season[1:]), self._levels[0, 0])
        scale = fit.scale(centre, self._errors)
        self.now = Moment(self._levels[0], centre, scale, self._errors, np.array(at_s))
        return self._statement(centre, scale)

    def restore(self, series: Series) -> FloatArray:
        past = course(self._fit, series)
        self.now = Moment(past.levels, past.centre, past.scale, past.errors, series.at_s)
        self._levels = np.stack([past.levels[-1], past.season_levels[-1]])
        self._errors = past.errors[-1].copy()
        stated = self._statement(past.centre, past.scale)
        stated[np.isnan(past.roots)] = np.nan
        return stated

    def _smooth(self, now: FloatArray) -> FloatArray:
        assert self._levels is not None  # noqa: S101 (the caller has looked)
        return np.asarray(self._levels + WEIGHTS * (now - self._levels))

    def _statement(self, centre: FloatArray, scale: FloatArray) -> FloatArray:
        return np.asarray(np.stack([centre, scale, scale], -1) * self._fit.root)


class Boosted:
    """Trees on top of the core (boosted.py). It reads what the core has stated for the same sample."""

    __slots__ = ("_core", "_fit", "_leads_s", "_root")

    def __init__(self, fit: BoostedFit, core: Linear, root: float, leads_s: FloatArray) -> None:
        self._fit, self._core, self._root, self._leads_s = fit, core, root, leads_s

    def learn(self, at_s: float, value: float, errors: FloatArray) -> FloatArray:  # noqa: ARG002
        assert self._core.now is not None  # noqa: S101 (the core comes first)
        return self._statement(self._core.now)

    def restore(self, series: Series) -> FloatArray:
        """Statement at the last sample only: its past is in the fit's trial, computed in the background."""
        now = self._core.now
        assert now is not None  # noqa: S101 (the core comes first)
        last = int(np.flatnonzero(~np.isnan(informative(series)))[-1])
        stated = np.full((*now.centre.shape, 3), np.nan)
        stated[last] = self._statement(Moment(*(part[last] for part in now)))
        return stated

    def _statement(self, now: Moment) -> FloatArray:
        rows = columns(now.levels, now.centre, now.scale, now.errors, now.at_s, self._leads_s)
        return self._fit.statement(rows, np.stack([now.centre, now.scale], -1)) * self._root


def states_of(fit: Fit | None, leads: IntArray, step_s: float) -> dict[str, State]:
    """Models of a series by name, the simplest first; without a fit, those that need none."""
    states: dict[str, State] = {"naive": Smoothed(1.0, len(leads)), "ewma": Smoothed(EWMA_WEIGHT, len(leads))}
    if fit is not None:
        core = Linear(fit.linear, step_s)
        states["core"] = core
        if fit.boosted is not None:
            leads_s = leads.astype(np.float64) * step_s
            states["boosted"] = Boosted(fit.boosted, core, fit.linear.root, leads_s)
    return states
