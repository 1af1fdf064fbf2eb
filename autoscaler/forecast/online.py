"""Online forecaster of one series: takes samples, and gives out the forecast of the model that is trusted."""

from typing import Protocol

import numpy as np

from autoscaler.forecast import calibration
from autoscaler.forecast.fits import Fit
from autoscaler.forecast.grid import FRESH_STEPS, GROWTH, LEVELS, LeadRing, aged, due, from_root, lead_steps
from autoscaler.forecast.linear import ERROR_WEIGHTS, WEIGHTS, LinearFit, course, design, smoothed, weights_after
from autoscaler.series import CAPACITY, Series, SeriesBuffer, informative
from cluster.arrays import FloatArray, IntArray
from cluster.demand import Forecast

_SETTLING = 1500
"""Samples before the window of errors from which a state is restored: the slowest level forgets within 1,000."""


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


class Linear:
    """The numpy core (linear.py)."""

    __slots__ = ("_at_s", "_errors", "_fit", "_leads_s", "_levels", "_step_s")

    def __init__(self, fit: LinearFit, step_s: float) -> None:
        self._fit, self._leads_s = fit, fit.leads.astype(np.float64) * step_s
        self._at_s, self._step_s = -np.inf, step_s
        self._levels: FloatArray | None = None
        """Shape (2, weights): of the series, of its season."""
        self._errors = np.zeros((len(fit.leads), len(ERROR_WEIGHTS)))

    def learn(self, at_s: float, value: float, errors: FloatArray) -> FloatArray:
        fit = self._fit
        instants = np.concatenate([[at_s], at_s + self._leads_s])
        season = fit.season.at(instants)
        now = np.array([[np.sqrt(value) / fit.root], [season[0]]])
        steps = max(1, np.rint((at_s - self._at_s) / self._step_s))
        self._levels = np.repeat(now, len(WEIGHTS), 1) if self._levels is None else self._smooth(now, steps)
        self._at_s = at_s
        size = np.abs(errors)[:, None] / fit.root
        self._errors += np.where(np.isnan(size), 0.0, ERROR_WEIGHTS * (size - self._errors))
        centre = fit.centre(design(self._levels[0], self._levels[1], season[1:]), self._levels[0, 0])
        scale = fit.scale(centre, self._errors)
        return self._statement(centre, scale)

    def restore(self, series: Series) -> FloatArray:
        past = course(self._fit, series)
        self._levels = np.stack([past.levels[-1], past.season_levels[-1]])
        self._errors = past.errors[-1].copy()
        known = np.flatnonzero(~np.isnan(past.roots))
        self._at_s = float(series.at_s[known[-1]]) if len(known) else -np.inf
        stated = self._statement(past.centre, past.scale)
        stated[np.isnan(past.roots)] = np.nan
        return stated

    def _smooth(self, now: FloatArray, steps: float) -> FloatArray:
        assert self._levels is not None  # noqa: S101 (the caller has looked)
        return np.asarray(self._levels + weights_after(np.array(steps)) * (now - self._levels))

    def _statement(self, centre: FloatArray, scale: FloatArray) -> FloatArray:
        return np.asarray(np.stack([centre, scale, scale], -1) * self._fit.root)


def states_of(fit: Fit | None, leads: IntArray, step_s: float) -> dict[str, State]:
    """Models of a series by name, the simplest first; without a fit, those that need none."""
    states: dict[str, State] = {"naive": Smoothed(1.0, len(leads)), "ewma": Smoothed(EWMA_WEIGHT, len(leads))}
    if fit is not None:
        states["core"] = Linear(fit.linear, step_s)
    return states


MOST_COURSES = 2.0
"""Most that the season raises a quantile to, in its own root: what is unusual in a lull is not multiplied by the rise
after it. Chosen: four times the usual load."""


class OnlineForecaster:
    """Rival models side by side, each calibrated by its own errors; at each lead the one with the least loss is
    trusted.

    Without a fit, the rivals are the naive forecast and an EWMA. Adopting a fit adds its models.
    """

    __slots__ = (
        "_calibration",
        "_fit",
        "_given",
        "_last_root",
        "_last_statement",
        "_leads",
        "_made_at_s",
        "_now",
        "_scores",
        "_stated",
        "_states",
        "history",
    )

    def __init__(self, step_s: float, capacity: int = CAPACITY) -> None:
        self.history = SeriesBuffer(step_s, capacity)
        """Samples that were taken; fits read them."""
        self._leads = lead_steps(step_s)
        self._states: dict[str, State] = {}
        self._fit: Fit | None = None
        self._last_root = self._made_at_s = 0.0
        self._now: FloatArray | None = None
        """Quantiles in root scale after the last sample, shape (leads, levels)."""
        self._last_statement: FloatArray | None = None
        """What the models stated after it, shape (leads, models, 3)."""
        self._begin(states_of(None, self._leads, step_s))

    @classmethod
    def of(cls, series: Series, fit: Fit | None = None, capacity: int = CAPACITY) -> "OnlineForecaster":
        """Forecaster as it is after a history."""
        made = cls(series.step_s, capacity)
        made.history = SeriesBuffer.of(series, capacity)
        made.adopt(fit)
        return made

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._states)

    @property
    def skill(self) -> calibration.Skill:
        return self._scores.skill(self.models)

    def adopt(self, fit: Fit | None) -> None:
        """Takes a fit in place of the one before. About 10 ms.

        Models that were there keep their calibration and score, which are of real forecasts; new ones begin with the
        errors of the fit's trial.
        """
        before, trusted = self.models, self._scores.trusted
        self._fit = fit
        states = states_of(fit, self._leads, self.history.step_s)
        if tuple(states) == before and fit is not None:
            self._states = states
            self._restore_states()
            return
        self._begin(states)
        places = [self.models.index(name) if name in self._states else 0 for name in before]
        self._restore(np.array(places)[trusted], fit)

    def observe(self, at_s: float, value: float, *, is_censored: bool = False) -> bool:
        """Takes a sample; False where it is no news: missing, duplicate, out of order, or an uninformative bound."""
        slot = self.history.add(at_s, value, is_censored=is_censored)
        root = float(np.sqrt(value)) if slot is not None else 0.0
        if slot is None or (is_censored and root < self._last_root):
            return False
        self._last_root, self._made_at_s = root, at_s
        stated, given = self._stated.advance(slot), self._given.advance(slot)
        errors = root - stated[..., calibration.CENTRE]
        self._scores.add(root, calibration.spread(stated, self._calibration.quantiles[..., calibration.SCORED]), given)
        known = np.where(errors < 0, np.nan, errors) if is_censored else errors
        self._calibration.learn(calibration.standardised(known, stated))
        instant_s = self.history.instant_of(slot)
        statement = np.stack(
            [state.learn(instant_s, value, errors[:, n]) for n, state in enumerate(self._states.values())], axis=1
        )
        self._stated.state(statement)
        self._last_statement, self._now = statement, self._trusted_spread(statement)
        self._given.state(self._now[:, calibration.INTERVALS])
        return True

    def forecast(self, now_s: float | None = None) -> Forecast | None:
        """Predictive distribution for the instants that lie a lead after now; None while there is too little history.

        Its leads count from the last sample, so they begin at its age: the distribution at an instant is at lead
        `instant - made_at_s`, whatever the age. The older the last sample, the wider the distribution.
        """
        return None if self._now is None else self._made(self._now, self._scores.most_trusted(self.models), now_s)

    def rivals(self, now_s: float | None = None) -> dict[str, Forecast]:
        """Forecasts of all models, trusted or not, by name."""
        if self._last_statement is None:
            return {}
        spreads = calibration.spread(self._last_statement, self._calibration.quantiles)
        made = {name: self._made(spreads[:, n], name, now_s) for n, name in enumerate(self.models)}
        return {name: forecast for name, forecast in made.items() if forecast is not None}

    def _made(self, roots: FloatArray, model: str, now_s: float | None) -> Forecast | None:
        usable = ~np.isnan(roots).any(-1)
        if not usable.any():
            return None
        leads_s = self._leads[usable].astype(np.float64) * self.history.step_s
        age_s = 0.0 if now_s is None else max(now_s - self._made_at_s, 0.0)
        roots = roots[usable]
        if age_s >= FRESH_STEPS * self.history.step_s:
            fit = None if self._fit is None else self._fit.linear
            growth = np.full(len(self._leads), GROWTH) if fit is None else fit.growth
            roots = aged(roots, leads_s, age_s, growth[usable])
            if fit is not None:  # whoever is trusted for minutes: beyond the last lead, it goes on as the season does
                courses = fit.course(self._made_at_s + np.maximum(np.append(leads_s + age_s, 0.0), leads_s[-1]))
                ahead, grown = courses[:-1, None], roots * (courses[:-1] / courses[-1])[:, None]
                roots = np.minimum(grown, np.maximum(roots, MOST_COURSES * fit.root * ahead))
        return Forecast(self._made_at_s, leads_s + age_s, LEVELS, from_root(roots), model)

    def _begin(self, states: dict[str, State]) -> None:
        leads = len(self._leads)
        self._states = states
        self._calibration = calibration.Calibration(leads, len(self._states))
        self._scores = calibration.Scores(len(self._states), leads)
        self._stated = LeadRing(self._leads, (len(self._states), 3))
        self._given = LeadRing(self._leads, (len(calibration.INTERVALS),))

    def _trusted_spread(self, statement: FloatArray) -> FloatArray:
        leads, trusted = np.arange(len(self._leads)), self._scores.trusted
        return calibration.spread(statement[leads, trusted], self._calibration.quantiles[leads, trusted])

    def _restore(self, trusted: IntArray, fit: Fit | None) -> None:
        """State from the history: statements at all its points, the errors that they had, the losses of those.

        trusted: shape (leads,), places of the models that were trusted before.
        """
        restored = self._restore_states()
        if restored is None:
            return
        series, values, known, statements = restored
        roots, stated = np.sqrt(values), due(statements, self._leads)
        errors = roots[:, None, None] - stated[..., calibration.CENTRE]
        errors[series.is_censored[:, None, None] & (errors < 0)] = np.nan
        errors = calibration.standardised(errors, stated)[known]
        if fit is not None:
            # The trial's errors stand in place of those on samples that the fit has seen.
            fitted = int((series.at_s[known] <= fit.fitted_at_s).sum())
            count = min(fitted, len(fit.trial))
            errors[:fitted, :, -1] = np.nan
            errors[fitted - count : fitted, :, -1] = fit.trial[len(fit.trial) - count :]
        self._calibration.restore(errors)
        recent = known[-calibration.MEMORY :]
        quantiles = calibration.spread(stated[recent], self._calibration.quantiles[..., calibration.SCORED])
        losses = calibration.mean_losses(roots[recent, None, None, None], quantiles)
        self._scores.restore(losses, len(recent), trusted)
        self._stated.restore(statements, self.history.newest_slot)
        self._given.advance(self.history.newest_slot)
        self._last_root, self._made_at_s = float(roots[known[-1]]), float(series.at_s[known[-1]])
        self._last_statement = statements[known[-1]]
        self._now = self._trusted_spread(self._last_statement)

    def _restore_states(self) -> tuple[Series, FloatArray, IntArray, FloatArray] | None:
        """Models' states from the history; None where that is empty.

        Returns the end of the history, its informative values, their places, and what is stated at each point.
        """
        series = self.history.last(calibration.WINDOW + _SETTLING)
        values = informative(series)
        known = np.flatnonzero(~np.isnan(values))
        if not len(known):
            return None
        statements = np.stack([state.restore(series) for state in self._states.values()], axis=2)
        return series, values, known, statements
