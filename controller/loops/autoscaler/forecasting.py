"""Forecasts of all policies' loads, kept up to date from the samples of their sources."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np
import structlog

from autoscaler.demand.presets import Role
from autoscaler.forecast.calibration import Skill as Scored
from autoscaler.forecast.fits import Fit, fit, is_sound
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import SeriesBuffer
from cluster.autoscaling import ForecastSkill, LoadHistory
from cluster.clock import Clock
from controller.api.scaling_policy import ROLES
from controller.deciders.load_fits import BATCH, slot_of
from controller.loops.autoscaler.measured import Measured, Sample

log = structlog.get_logger(__name__)

STEP_S = 60.0
"""Step of the series that are forecast. Lead times are minutes; a finer step has more noise and no more to tell."""
REFIT_S = 6 * 3600.0
"""Seconds between two fits of one series. A fit learns seasons of days; the level is followed online."""
RETRY_S = 900.0
"""Seconds until a series that was too short is tried again."""
FITS_PER_TURN = 2
"""Fits in one turn of this process, of two weeks 0.2 s each, and 1 s with trees: the loop shares its process with them.
"""
LONG = 1000
"""Samples from which a policy's new ones are a history, not news."""
HISTORIES_PER_TURN = 50
"""Histories taken in one turn, of two weeks 0.1 s each; those of other policies wait, so that no turn takes minutes."""
OFFER_S = 180.0
"""Seconds after which histories that were offered to a slot, without an answer, are fitted here and offered again: the
brain is away. Chosen: three times as long as a slot may take."""
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


@dataclass(frozen=True, slots=True)
class _Offer:
    """Histories that one slot of the brain is asked to fit."""

    at_s: float
    histories: tuple[LoadHistory, ...]


class Forecasts:
    """Forecasters of all policies. `turn` and `take_fits` run in one thread at a time; the rest may run in any."""

    def __init__(self, measured: Measured, clock: Clock, slots: int = 0) -> None:
        """clock: seconds since the epoch. slots: background slots of the brain that fit histories; 0: all fits are made
        here."""
        self._measured, self._clock, self._slots = measured, clock, slots
        self._kept: dict[str, _Kept] = {}
        self._offers: dict[int, _Offer] = {}
        self._lock = Lock()
        self._came: dict[str, Fit | None] = {}

    @property
    def offered(self) -> tuple[LoadHistory, ...]:
        """Histories that the brain should fit now."""
        return tuple(each for offer in tuple(self._offers.values()) for each in offer.histories)

    @property
    def has_fits(self) -> bool:
        """Whether fits have come that were not taken yet."""
        return bool(self._came)

    @property
    def waiting(self) -> int:
        """Number of policies whose forecast should be fitted now."""
        return len(self._due(self._clock()))

    def put_fits(self, fits: Mapping[str, Fit | None]) -> None:
        """Receives fits that the brain made, to be taken by `take_fits`; None: the history was too short."""
        with self._lock:
            self._came.update(fits)

    def turn(self, wanted: Mapping[str, LoadSeries]) -> None:
        """Takes the new samples of these policies, and puts their forecasts."""
        self._kept = {name: kept for name, kept in self._kept.items() if name in wanted}
        histories = [name for name, series in wanted.items() if self._measured.waiting(name, series.role) > LONG]
        later = set(histories[HISTORIES_PER_TURN:])
        for name, series in wanted.items():
            if name not in later:
                self._guarded(name, partial(self._learn, name, series))
        self.take_fits()
        at_s = self._clock()
        for name in tuple(self._kept):
            self._guarded(name, partial(self._put_forecast, name, at_s))

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """Does work of one policy. If it fails, that policy alone starts again without a fit."""
        try:
            work()
        except Exception:
            log.exception("the forecast of a policy failed; it starts again", policy=name)
            self._measured.put_forecast(name, None, None)
            self._kept.pop(name, None)

    def _put_forecast(self, name: str, at_s: float) -> None:
        forecaster = self._kept[name].forecaster
        self._measured.put_forecast(name, forecaster.forecast(at_s), skill_of(forecaster.skill))

    def _learn(self, name: str, series: LoadSeries) -> None:
        taken = {role: self._measured.take_samples(name, role) for role in ROLES}
        samples = sorted(taken[series.role], key=lambda each: each.at_s)
        kept, capacity = self._kept.get(name), max(2, int(series.history_s / STEP_S))
        if kept is None and not samples:
            return  # a forecaster takes 200 kB, and anybody may make thousands of policies that measure nothing
        if kept is None or kept.series != series:
            kept = self._kept[name] = _Kept(series, OnlineForecaster(STEP_S, capacity))
        history = kept.forecaster.history
        newest_s, latest_s = history.observed_at_s, self._clock() + STEP_S
        is_late = len(samples) > 1 and newest_s is not None and samples[0].at_s < newest_s - STEP_S
        if is_late or (newest_s is not None and newest_s > latest_s):  # beyond: before the clock was set back
            # Older ones came after newer ones: a history is read after the first value.
            known = history.whole()
            there = np.flatnonzero(~np.isnan(known.values))
            mine = [Sample(float(known.at_s[n]), float(known.values[n]), bool(known.is_censored[n])) for n in there]
            ordered = sorted([*mine, *samples], key=lambda each: each.at_s)
            samples = [each for each in ordered if each.at_s <= latest_s]
            kept = self._kept[name] = _Kept(series, OnlineForecaster(STEP_S, capacity))
        if len(samples) > kept.forecaster.history.newest_slot + 1:
            # A history is taken at once: sample by sample, two weeks would take a minute.
            buffer, known = SeriesBuffer(STEP_S, capacity), kept.forecaster.history.whole()
            for n in np.flatnonzero(~np.isnan(known.values)):
                buffer.add(float(known.at_s[n]), float(known.values[n]), is_censored=bool(known.is_censored[n]))
            for each in samples:
                buffer.add(each.at_s, each.value, is_censored=each.is_censored)
            kept.forecaster = OnlineForecaster.of(buffer.whole(), None, capacity)
            # The last fit, if any, knew less: a turn before the history came may have found it too short.
            kept.fit_due_at_s = 0.0
            return
        for each in samples:
            kept.forecaster.observe(each.at_s, each.value, is_censored=each.is_censored)

    def take_fits(self) -> None:
        """Adopts the fits that came, offers what is due next, and fits here what nobody else fits."""
        with self._lock:
            came, self._came = self._came, {}
        at_s = self._clock()
        offered = {each.scaler: len(each.values) for each in self.offered}
        for name, made in came.items():
            if name in offered and name in self._kept:
                grew = self._kept[name].forecaster.history.newest_slot + 1 > 2 * offered[name]
                self._adopt(name, made, at_s)
                if grew:  # what was fitted, or found too short, was only a part of what is known now
                    self._kept[name].fit_due_at_s = 0.0
        answered = {slot for slot, each in self._offers.items() if any(one.scaler in came for one in each.histories)}
        unheard = [slot for slot, each in self._offers.items() if slot not in answered and at_s > each.at_s + OFFER_S]
        if not self._slots or unheard:
            for name in self._due(at_s)[:FITS_PER_TURN]:
                kept = self._kept[name]
                self._adopt(name, fit(kept.forecaster.history.whole(), boosted=kept.series.boosted), at_s)
        open_offers = {slot: each for slot, each in self._offers.items() if slot not in {*answered, *unheard}}
        due = self._due(at_s)
        for slot in range(self._slots):
            if slot not in open_offers:
                mine = [name for name in due if slot_of(name, self._slots) == slot]
                open_offers[slot] = _Offer(at_s, tuple(self._history(name) for name in mine[:BATCH]))
        self._offers = {slot: each for slot, each in sorted(open_offers.items()) if each.histories}

    def _history(self, name: str) -> LoadHistory:
        kept = self._kept[name]
        series = kept.forecaster.history.whole()
        return LoadHistory(
            name, series.start_s, series.step_s, series.values, series.is_censored, boosted=kept.series.boosted
        )

    def _due(self, at_s: float) -> list[str]:
        """Policies whose fit is due, those first that have waited longest."""
        due = sorted((each.fit_due_at_s, name) for name, each in self._kept.items() if each.fit_due_at_s <= at_s)
        return [name for _, name in due]

    def _adopt(self, name: str, made: Fit | None, at_s: float) -> None:
        """Adopts a fit. One that does not suit the series, as a faulty brain could send it, is as none."""
        kept = self._kept[name]
        if made is not None and not is_sound(made, STEP_S):
            log.warning("a fit does not suit its series; it is fitted again later", policy=name)
            made = None
        if made is not None:
            kept.forecaster.adopt(made)
        kept.fit_due_at_s = at_s + (RETRY_S if made is None else REFIT_S)


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
