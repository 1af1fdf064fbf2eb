"""Generated loads of two weeks at a minute: the shapes that public traces lack, each with Poisson arrivals."""

from collections.abc import Callable, Mapping

import numpy as np

from cluster.arrays import FloatArray, column
from simulator.scaling.traces import DAY_S, MINUTE_S, LoadTrace, generated_trace

DAYS = 14
_MEAN_PER_MINUTE = 1200.0
_CLUSTERING = 0.05
_HOUR_S = 3600.0


def _day(at_s: FloatArray) -> FloatArray:
    """Daily rhythm: the peak in the afternoon, 45 % of it before dawn."""
    return np.asarray(0.725 + 0.275 * np.sin((at_s / _HOUR_S - 9.0) * np.pi / 12.0))


def _week(at_s: FloatArray) -> FloatArray:
    return np.asarray(np.where(at_s // DAY_S % 7 >= 5, 0.5, 1.0) * _day(at_s))


def _batch(at_s: FloatArray) -> FloatArray:
    """A job of 90 minutes at 02:00 triples the load at once."""
    hour = at_s / _HOUR_S % 24.0
    return np.asarray(_day(at_s) + np.where((hour >= 2.0) & (hour < 3.5), 1.5, 0.0))


def _launch(at_s: FloatArray) -> FloatArray:
    """On the tenth day the load doubles within half an hour; half of that is gone after two days."""
    since_s = at_s - 9.4 * DAY_S
    more = np.clip(since_s / 1800.0, 0.0, 1.0) * np.exp(-np.maximum(since_s, 0.0) / (2.9 * DAY_S))
    return np.asarray(_day(at_s) * (1.0 + more))


def _ramp(at_s: FloatArray) -> FloatArray:
    """The load triples over the second week."""
    return np.asarray(_day(at_s) * (1.0 + 2.0 * np.clip(at_s / DAY_S / 7.0 - 1.0, 0.0, 1.0)))


def _cron(at_s: FloatArray) -> FloatArray:
    """Jobs at each full hour more than double the load for ten minutes."""
    return np.asarray(_day(at_s) + np.where(at_s % _HOUR_S < 600.0, 1.2, 0.0))


def _holiday(at_s: FloatArray) -> FloatArray:
    """Working days and weekends; the Wednesday of the second week is as a Sunday."""
    return np.asarray(np.where(at_s // DAY_S == 9, 0.5, _week(at_s) / _day(at_s)) * _day(at_s))


def _clock_change(at_s: FloatArray) -> FloatArray:
    """From the tenth day on everything comes an hour earlier."""
    return _week(np.asarray(at_s + np.where(at_s >= 9 * DAY_S, _HOUR_S, 0.0)))


def _flat(at_s: FloatArray) -> FloatArray:
    return np.ones(len(at_s))


SHAPES: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "batch": _batch,
    "launch": _launch,
    "ramp": _ramp,
    "cron": _cron,
    "holiday": _holiday,
    "clock-change": _clock_change,
    "flat": _flat,
}
BURSTS = "bursts"
"""The generated trace of replays: daily and weekly rhythm, drift and bursts."""
NAMES = (*SHAPES, BURSTS)


def shape(name: str, seed: int = 1) -> LoadTrace:
    """The load of a shape; the same for the same seed."""
    if name == BURSTS:
        return generated_trace(seed, DAYS)
    chance = np.random.default_rng((seed, *name.encode()))
    at_s: FloatArray = np.arange(round(DAYS * DAY_S / MINUTE_S), dtype=np.float64) * MINUTE_S
    clustering = chance.gamma(1 / _CLUSTERING**2, _CLUSTERING**2, len(at_s))
    counts = chance.poisson(_MEAN_PER_MINUTE * SHAPES[name](at_s) * clustering).astype(np.float64)
    return LoadTrace(name, MINUTE_S, 0.0, column(counts, np.float64))
