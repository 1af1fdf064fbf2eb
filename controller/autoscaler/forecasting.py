"""Forecasts of all policies' loads, kept up to date from the samples of their sources."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoscaler.forecast.fits import fit
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.forecast.skill import Skill as Scored
from autoscaler.series.buffer import SeriesBuffer
from cluster.autoscaling import ForecastSkill
from cluster.clock import Clock
from controller.autoscaler.measured import LOAD_ROLES, Measured, Role, Sample

STEP_S = 60.0
"""Step of the series that are forecast. Lead times are minutes; a finer step has more noise and no more to tell."""
REFIT_S = 6 * 3600.0
"""Seconds between two fits of one series. A fit learns seasons of days; the level is followed online."""
RETRY_S = 900.0
"""Seconds until a series that was too short is tried again."""
FITS_PER_TURN = 2
"""Fits in one turn, of two weeks 0.2 s each, and 2 s with trees: the loop shares its process with them."""
NAIVE = "naive"


@dataclass(frozen=True, slots=True)
class LoadSeries:
    """What is forecast of a policy."""

    role: Role
    history_s: float
    """Oldest load that is learned from, seconds."""
    boosted: bool = True
    """Whether gradient-boosted quantiles rival the other models."""


@dataclass(slots=True)
class _Kept:
    series: LoadSeries
    forecaster: OnlineForecaster
    fit_due_at_s: float = 0.0


class Forecasts:
    """Forecasters of all policies. All calls come from one thread at a time."""

    def __init__(self, measured: Measured, clock: Clock) -> None:
        """clock: seconds since the epoch."""
        self._measured, self._clock = measured, clock
        self._kept: dict[str, _Kept] = {}

    def turn(self, wanted: Mapping[str, LoadSeries]) -> None:
        """Takes the new samples of these policies, and puts their forecasts."""
        self._kept = {name: kept for name, kept in self._kept.items() if name in wanted}
        for name, series in wanted.items():
            self._learn(name, series)
        self._fit_oldest()
        at_s = self._clock()
        for name, kept in self._kept.items():
            self._measured.put_forecast(name, kept.forecaster.forecast(at_s), skill_of(kept.forecaster.skill))

    def _learn(self, name: str, series: LoadSeries) -> None:
        taken = {role: self._measured.take_samples(name, role) for role in LOAD_ROLES}
        samples = sorted(taken[series.role], key=lambda each: each.at_s)
        kept = self._kept.get(name)
        if kept is None or kept.series != series:
            kept = self._kept[name] = _Kept(series, OnlineForecaster(STEP_S, _capacity(series)))
        newest_s = kept.forecaster.history.observed_at_s
        if len(samples) > 1 and newest_s is not None and samples[0].at_s < newest_s - STEP_S:
            samples = _older_first(kept, samples)
            kept = self._kept[name] = _Kept(series, OnlineForecaster(STEP_S, _capacity(series)))
        if len(samples) > kept.forecaster.history.newest_slot + 1:
            _restore(kept, samples, _capacity(series))
            return
        for each in samples:
            kept.forecaster.observe(each.at_s, each.value, is_censored=each.is_censored)

    def _fit_oldest(self) -> None:
        """Fits the series that have waited longest."""
        at_s = self._clock()
        due = sorted((kept.fit_due_at_s, name) for name, kept in self._kept.items() if kept.fit_due_at_s <= at_s)
        for _, name in due[:FITS_PER_TURN]:
            kept = self._kept[name]
            made = fit(kept.forecaster.history.whole(), boosted=kept.series.boosted)
            kept.fit_due_at_s = at_s + (RETRY_S if made is None else REFIT_S)
            if made is not None:
                kept.forecaster.adopt(made)


def _capacity(series: LoadSeries) -> int:
    return max(2, int(series.history_s / STEP_S))


def _older_first(kept: _Kept, samples: list[Sample]) -> list[Sample]:
    """All samples in order, where older ones came after newer ones: a history is read after the first value."""
    series = kept.forecaster.history.whole()
    known = np.flatnonzero(~np.isnan(series.values))
    mine = [Sample(float(series.at_s[n]), float(series.values[n]), bool(series.is_censored[n])) for n in known]
    return sorted([*mine, *samples], key=lambda each: each.at_s)


def _restore(kept: _Kept, samples: list[Sample], capacity: int) -> None:
    """A history is taken at once: sample by sample, two weeks would take a minute."""
    buffer = SeriesBuffer(STEP_S, capacity)
    series = kept.forecaster.history.whole()
    for n in np.flatnonzero(~np.isnan(series.values)):
        buffer.add(float(series.at_s[n]), float(series.values[n]), is_censored=bool(series.is_censored[n]))
    for each in samples:
        buffer.add(each.at_s, each.value, is_censored=each.is_censored)
    kept.forecaster = OnlineForecaster.of(buffer.whole(), None, capacity)


def skill_of(scored: Scored) -> ForecastSkill:
    """Figures of a forecaster as a policy reports them."""
    loss = scored.relative_loss.get(scored.trusted)
    return ForecastSkill(
        model=scored.trusted,
        is_trusted=scored.trusted != NAIVE,
        skill=None if loss is None or not np.isfinite(loss) else 1 - float(loss),
        coverage_90=_known(scored.coverage_90),
        coverage_99=_known(scored.coverage_99),
    )


def _known(figure: float) -> float | None:
    return None if np.isnan(figure) else float(figure)
