"""Series of measured load on a regular grid: buffers, gaps after outages, and steps at which a server was full."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.arrays import BoolArray, FloatArray

Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Values at equal steps; read-only. Plain arrays, so that it crosses to another process as it is."""

    start_s: float
    """Instant of the first value, seconds since the epoch."""
    step_s: float
    values: Values
    """Shape (points,), in the quantity's unit, never negative; NaN where nothing was measured."""
    is_censored: BoolArray
    """Shape (points,): the value is a lower bound, because what was measured was saturated."""

    @property
    def at_s(self) -> FloatArray:
        """Instant of each value, shape (points,)."""
        return np.asarray(self.start_s + self.step_s * np.arange(len(self.values)), dtype=np.float64)


def regular(start_s: float, step_s: float, values: FloatArray) -> Series:
    """Series of values that are regular already, none of them censored; negative and infinite ones become gaps."""
    clean = np.array(values, dtype=np.float32)
    clean[~(clean >= 0) | np.isinf(clean)] = np.nan
    is_censored = np.zeros(len(clean), dtype=np.bool_)
    clean.setflags(write=False)
    is_censored.setflags(write=False)
    return Series(start_s, step_s, clean, is_censored)


BUSY_SAMPLES = 60
"""Accepted samples before a zero that show whether the series was busy; half of them must exist."""
BUSY_FRACTION = 0.2
"""A series is busy where 19 of 20 of these samples are at least this fraction of their median. A load that is ever
close to zero by itself fails this, and its zeros count."""
LONGEST_S = 7200.0
"""Length from which a run of zeros is a load of zero. The collector outages of ServeGen's production traces last up
to 110 minutes."""


def is_busy(recent: Values) -> bool:
    """Whether a zero right after these samples cannot be a load: whole-window zeros of a collector that failed.

    recent: shape (samples,), the last accepted samples, without gaps.
    """
    if len(recent) < BUSY_SAMPLES // 2:
        return False
    low, median = np.quantile(recent[-BUSY_SAMPLES:], (0.05, 0.5))
    return bool(median > 0 and low >= BUSY_FRACTION * median)


def informative(series: Series) -> FloatArray:
    """Values of a series without the lower bounds that say nothing: those below the last informative value."""
    values = series.values.astype(np.float64)
    if not series.is_censored.any():
        return values
    last = 0.0
    for row, (value, is_censored) in enumerate(zip(values.tolist(), series.is_censored.tolist(), strict=True)):
        if is_censored and value < last:
            values[row] = np.nan
        elif value == value:  # a number
            last = value
    return values


CAPACITY = 20_160
"""14 days at a minute, 100 kB."""
_JITTER = 0.5
"""Part of a step by which a sample may be early or late and still fall into its slot."""


class SeriesBuffer:
    """Ring of the last samples. Slots are counted from the first sample, so that its phase does not matter.

    Of two samples in one slot the first that is a number counts. A sample that is out of order fills its slot if that
    is still empty.
    """

    __slots__ = ("_censored", "_newest", "_oldest", "_origin_s", "_values", "_zeros_since", "observed_at_s", "step_s")

    def __init__(self, step_s: float, capacity: int = CAPACITY) -> None:
        self.step_s = step_s
        self.observed_at_s: float | None = None
        """Instant of the newest accepted sample; its age says whether the series is stale."""
        self._origin_s: float | None = None
        self._values: Values = np.full(capacity, np.nan, dtype=np.float32)
        self._censored = np.zeros(capacity, dtype=np.bool_)
        self._newest, self._oldest = -1, 0
        self._zeros_since: int | None = None

    @classmethod
    def of(cls, series: Series, capacity: int = CAPACITY) -> "SeriesBuffer":
        """Buffer that holds the end of a series as it is: its outages were found when it was taken."""
        made = cls(series.step_s, capacity)
        values, censored = series.values[-capacity:], series.is_censored[-capacity:]
        made._values[: len(values)], made._censored[: len(values)] = values, censored
        made._newest = len(values) - 1
        made._origin_s = series.start_s + (len(series.values) - len(values)) * series.step_s
        known = np.flatnonzero(~np.isnan(values))
        made.observed_at_s = made.instant_of(int(known[-1])) if len(known) else None
        return made

    @property
    def newest_slot(self) -> int:
        """Slot of the newest sample, accepted or not; -1: none yet."""
        return self._newest

    def instant_of(self, slot: int) -> float:
        return (self._origin_s or 0.0) + slot * self.step_s

    def add(self, at_s: float, value: float, *, is_censored: bool = False) -> int | None:
        """Takes a sample; its slot if it is accepted as the newest of the series, else None.

        Not accepted: NaN, infinite and negative values; duplicates; zeros of a collector outage (`is_busy`). What is
        out of order is kept for later fits, and is not the newest.
        """
        if not np.isfinite(at_s):
            return None
        if self._origin_s is None:
            self._origin_s = at_s
        slot = int(np.floor((at_s - self._origin_s) / self.step_s + _JITTER))
        if slot < self._newest or (slot == self._newest and not np.isnan(self._values[slot % len(self._values)])):
            is_empty = slot >= self._oldest and np.isnan(self._values[slot % len(self._values)])
            if is_empty and 0 < value < float("inf"):
                self._put(slot, value, is_censored=is_censored)
            return None
        size = len(self._values)
        if slot - self._newest >= size:
            self._values[:] = np.nan
        else:
            self._values[np.arange(self._newest + 1, slot + 1) % size] = np.nan
        self._newest, self._oldest = slot, max(self._oldest, slot + 1 - size)
        if not self._is_load(slot, value):
            return None
        self._put(slot, value, is_censored=is_censored)
        self.observed_at_s = at_s
        return slot

    def last(self, count: int) -> Series:
        """The newest slots as a series, at most `count` of them, up to the newest accepted or refused sample."""
        first = max(self._oldest, self._newest + 1 - count)
        rows = np.arange(first, self._newest + 1) % len(self._values)
        values, censored = self._values[rows], self._censored[rows]
        values.setflags(write=False)
        censored.setflags(write=False)
        return Series(self.instant_of(first), self.step_s, values, censored)

    def whole(self) -> Series:
        return self.last(len(self._values))

    def _is_load(self, slot: int, value: float) -> bool:
        if not 0 <= value < float("inf"):
            return False
        if value > 0:
            self._zeros_since = None
            return True
        if self._zeros_since is None:
            # Accepted samples before the newest slot, as far back as twice the number that is asked for.
            values = self.last(2 * BUSY_SAMPLES + 1).values[:-1]
            self._zeros_since = slot if is_busy(np.asarray(values[~np.isnan(values)][-BUSY_SAMPLES:])) else None
        return self._zeros_since is None or (slot - self._zeros_since) * self.step_s >= LONGEST_S

    def _put(self, slot: int, value: float, *, is_censored: bool) -> None:
        row = slot % len(self._values)
        self._values[row], self._censored[row] = value, is_censored
