"""Forecasts of all policies' loads, kept up to date from the samples of their sources, and their fits in ConfigMaps."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import structlog

from autoscaler.demand.presets import Role
from autoscaler.forecast.calibration import Skill as Scored
from autoscaler.forecast.fits import Fit, is_sound
from autoscaler.forecast.linear import is_long_enough
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import SeriesBuffer
from cluster.autoscaling import ForecastSkill
from cluster.clock import Clock
from cluster.errors import ActionError
from cluster.frame import FrameError
from controller.api.labels import GROUP
from controller.api.scaling_policy import ROLES
from controller.background import load_fits
from controller.background.tasks import Background, BackgroundTask
from controller.kube.api_server import ApiServer
from controller.kube.crud import read_if_there
from controller.kube.request import APPLY_PATCH, KubeReadError
from controller.kube.sender import Applier, Write, WriteJob
from controller.loops.autoscaler.measured import Measured, Sample

log = structlog.get_logger(__name__)

STEP_S = 60.0
"""Step of the series that are forecast. Lead times are minutes; a finer step has more noise and no more to tell."""
REFIT_S = 6 * 3600.0
"""Seconds between two fits of one series. A fit learns seasons of days; the level is followed online."""
RETRY_S = 900.0
"""Seconds until a series that was too short is tried again."""
MOST_ASKED = 16
"""Batches that are fitted at once; each is sent with a megabyte of history."""
RETURNED_S = 120.0
"""Time after which a load is back that had been confirmed to be of another size. Chosen: one sample may be a gap."""
LONG = 1000
"""Samples from which a policy's new ones are a history, not news."""
HISTORIES_PER_TURN = 50
"""Histories taken in one turn, of two weeks 0.1 s each; those of other policies wait, so that no turn takes minutes."""
NAIVE = "naive"


@dataclass(frozen=True, slots=True)
class LoadSeries:
    """What is forecast of a policy."""

    role: Role
    history_s: float
    """Oldest load that is learned from, seconds."""
    about: str = ""
    """Digest of the target and the sources (`ScalingPolicy.about`)."""


@dataclass(slots=True)
class _Kept:
    series: LoadSeries
    forecaster: OnlineForecaster
    fit_due_at_s: float = 0.0
    before: OnlineForecaster | None = None
    """Forecaster of the load before it was confirmed to be of another size; each has samples of its own."""
    returned: tuple[Sample, ...] = ()
    """Samples in a row that the forecaster before holds for possible, oldest first."""

    def observe(self, sample: Sample, served: float) -> None:
        """Takes a sample. One beyond all that is possible and what is served was confirmed: a forecaster of its own
        begins with it, and the one before goes on when the load is back."""
        forecast = self.forecaster.forecast(sample.at_s)
        if forecast is not None and sample.value > max(forecast.most, served):
            self.before, self.forecaster = self.forecaster, OnlineForecaster(STEP_S, self.capacity)
            self.fit_due_at_s = 0.0
        known = self.before.forecast(sample.at_s) if self.before is not None else None
        self.returned = (*self.returned, sample) if known is not None and sample.value <= known.most else ()
        self._take(sample)
        if self.before is not None and self.returned and sample.at_s - self.returned[0].at_s >= RETURNED_S:
            self.forecaster, self.before = self.before, None
            for each in self.returned:
                self._take(each)

    def _take(self, sample: Sample) -> None:
        self.forecaster.observe(sample.at_s, sample.value, is_censored=sample.is_censored)

    @property
    def capacity(self) -> int:
        return max(2, int(self.series.history_s / STEP_S))


@dataclass(frozen=True, slots=True)
class _Asked:
    """Batch that is being fitted."""

    number: int
    task: BackgroundTask
    lengths: Mapping[str, int]
    """Points of each policy's history."""


class Forecasts:
    """Forecasters of all policies. `turn` and `take_fits` run in one thread at a time."""

    def __init__(self, measured: Measured, clock: Clock, background: Background) -> None:
        """clock: seconds since the epoch. background: where histories are fitted."""
        self._measured, self._clock, self._background = measured, clock, background
        self._kept: dict[str, _Kept] = {}
        self._asked: dict[str, _Asked] = {}
        """Batches that are being fitted, by their task's digest."""
        self._saved: dict[str, Fit] = {}
        """Fits that were read and not replaced since, by `_key`."""
        self._unsaved: dict[int, bytes] = {}

    def restore(self, saved: Iterable[bytes]) -> None:
        """Takes the fits of an earlier leader, of policies that have none yet."""
        for value in saved:
            try:
                fits = load_fits.fits_in(value)
            except FrameError as error:
                log.warning("fits cannot be read; they are made again later", why=str(error))
                continue
            for name, fit in fits.items():
                if fit is not None and (name not in self._saved or self._saved[name].fitted_at_s < fit.fitted_at_s):
                    self._saved[name] = fit

    def take_unsaved(self) -> dict[int, bytes]:
        """Fits since the last call, by the number of their batch, to be saved for the next leader."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved

    @property
    def waiting(self) -> int:
        """Number of policies whose forecast should be fitted now."""
        return sum(self._is_due(name, self._clock()) for name in self._kept)

    def turn(self, wanted: Mapping[str, LoadSeries]) -> None:
        """Takes the new samples of these policies, and puts their forecasts."""
        for name in self._kept.keys() - wanted.keys():
            self._saved.pop(self._key(name), None)
            del self._kept[name]
        histories = [name for name, series in wanted.items() if self._measured.waiting(name, series.role) > LONG]
        later = set(histories[HISTORIES_PER_TURN:])
        for name, series in wanted.items():
            if name not in later:
                self._guarded(name, partial(self._learn, name, series))
        for name in tuple(self._kept):
            saved = self._saved.get(self._key(name))
            if saved is not None and not self._kept[name].fit_due_at_s:  # no fit, or its history came after that
                self._guarded(name, partial(self._adopt, name, saved, saved.fitted_at_s))
        self.take_fits()
        self._ask_for_fits()
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
            if name in self._kept:
                self._saved.pop(self._key(name), None)
                del self._kept[name]

    def _put_forecast(self, name: str, at_s: float) -> None:
        forecaster, role = self._kept[name].forecaster, self._kept[name].series.role
        self._measured.put_forecast(name, forecaster.forecast(at_s), skill_of(forecaster.skill), role)

    def _key(self, name: str) -> str:
        """Name of a policy's fits: those of another query or target are another's."""
        return f"{name} {self._kept[name].series.about}".rstrip()

    def _learn(self, name: str, series: LoadSeries) -> None:
        taken = {role: self._measured.take_samples(name, role) for role in ROLES}
        samples = sorted(taken[series.role], key=lambda each: each.at_s)
        kept, capacity = self._kept.get(name), max(2, int(series.history_s / STEP_S))
        if kept is None and not samples:
            return  # a forecaster takes 200 kB, and anybody may make thousands of policies that measure nothing
        if kept is not None and kept.series != series:
            self._saved.pop(self._key(name), None)
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
            kept.observe(each, self._measured.served.get(name, 0.0))

    def take_fits(self) -> bool:
        """Adopts the fits that came, and asks for more of what is due; False where none came."""
        results, at_s = self._background.results(load_fits.KIND), self._clock()
        for result in results:
            asked = self._asked.pop(result.digest, None)
            if asked is None:
                continue
            try:
                made = load_fits.fits_in(result.value) if not result.error else {}
            except FrameError as error:
                log.warning("fits cannot be read; they are made again later", why=str(error))
                made = {}
            if made:
                self._unsaved[asked.number] = result.value
            for name, length in asked.lengths.items():
                if name not in self._kept or (made and self._key(name) not in made):
                    continue  # it is gone, or is about something else now
                found = made.get(self._key(name))
                if found is not None:
                    self._saved.pop(self._key(name), None)
                self._adopt(name, found, at_s)
                if self._kept[name].forecaster.history.newest_slot + 1 > 2 * length:
                    self._kept[name].fit_due_at_s = 0.0  # it was only a part of what is known now
        if results:
            self._ask_for_fits()
        return bool(results)

    def _ask_for_fits(self) -> None:
        """Asks for the fits of batches with a policy that is due. All of a batch are fitted, so that one saved value
        has them."""
        at_s, kept = self._clock(), self._kept.keys()
        self._asked = {digest: each for digest, each in self._asked.items() if kept & each.lengths.keys()}
        busy = {name for each in self._asked.values() for name in each.lengths}
        for number, batch in load_fits.batches_of(self._kept).items():
            if len(self._asked) >= MOST_ASKED:
                break
            if busy.isdisjoint(batch) and any(self._is_due(name, at_s) for name in batch):
                histories = [self._history(name) for name in batch]
                task = load_fits.task_of(histories)
                lengths = {name: len(each.series.values) for name, each in zip(batch, histories, strict=True)}
                self._asked[task.digest] = _Asked(number, task, lengths)
        # Also those that were asked for before: a replica that led again in between has forgotten them.
        self._background.submit(each.task for each in self._asked.values())

    def _history(self, name: str) -> load_fits.LoadHistory:
        kept = self._kept[name]
        return load_fits.LoadHistory(self._key(name), kept.forecaster.history.whole())

    def _is_due(self, name: str, at_s: float) -> bool:
        """Whether a policy's fit is due. A history that is too short is looked at again later, and delays no batch."""
        kept = self._kept[name]
        if kept.fit_due_at_s > at_s:
            return False
        if not is_long_enough(kept.forecaster.history.whole()):
            kept.fit_due_at_s = at_s + RETRY_S
            return False
        return True

    def _adopt(self, name: str, made: Fit | None, at_s: float) -> None:
        """Adopts a fit. One that does not suit the series, as a faulty worker could send it, is as none."""
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


KEY = f"v{load_fits.FORM}"
MANAGER = "tonnage-background"
MOST_SAVED = 256
"""Batches that are saved, of some 200 kB: the API server keeps 50 MB of them, the fits of 2,000 policies."""
MOST_BYTES = 1_000_000
"""Largest batch that is saved; a ConfigMap holds 1 MiB."""


@dataclass(frozen=True, slots=True)
class SavedFits:
    """Fits by the number of their batch."""

    connection: ApiServer
    applier: Applier
    lease: tuple[str, str]
    """Namespace and name of the Lease."""

    async def read(self, policies: Mapping[str, object]) -> AsyncIterator[bytes]:
        """The fits that were saved, if it was for at most twice as many policies. One at a time: together they are
        large."""
        for number in range(min(MOST_SAVED, 2 * (1 + max(load_fits.batches_of(policies.keys()), default=-1)))):
            try:
                found = await read_if_there(self.connection, self._path(number))
                if value := (found or {}).get("binaryData", {}).get(KEY):
                    yield b64decode(value, validate=True)
            except (KubeReadError, NotBase64) as error:
                log.warning("saved fits cannot be read; they are made again", why=str(error))
                return

    async def write(self, fits: Mapping[int, bytes]) -> None:
        jobs = [
            WriteJob(f"ConfigMap/{self._name(number)}", self._write(number, value))
            for number, value in fits.items()
            if number < MOST_SAVED and len(value) <= MOST_BYTES
        ]
        answers = await replace(self.applier, concurrency=1).send(jobs)
        if refused := [each for each in answers if isinstance(each, ActionError)]:
            log.warning("fits were not saved; a new leader makes them again", batches=len(refused), why=str(refused[0]))

    def _name(self, number: int) -> str:
        return f"{self.lease[1]}-load-fits-{number}"

    def _path(self, number: int) -> str:
        return f"/api/v1/namespaces/{self.lease[0]}/configmaps/{self._name(number)}"

    def _write(self, number: int, value: bytes) -> Write:
        labels = {f"{GROUP}/background": "load-fits"}
        metadata = {"name": self._name(number), "namespace": self.lease[0], "labels": labels}
        content = {KEY: b64encode(value).decode()}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": content}
        return Write("PATCH", self._path(number), body, APPLY_PATCH, {"fieldManager": MANAGER})
