"""Daily season: the mean course of a day in UTC, as a table that is looked up at any instant."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray

DAY_S = 86_400.0
_FINEST_S = 600.0
"""Finest slot of the table: what repeats within minutes of the day is noise in two weeks of days."""
MIN_DAYS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Season:
    """Mean of a day's slots. Slot k is centred on k × `slot_s` after midnight, UTC."""

    slot_s: float
    table: FloatArray
    """Shape (slots,) or (days, slots)."""

    def at(self, at_s: FloatArray, day: IntArray | None = None) -> FloatArray:
        """Season at these instants, linear between slots; of a table per day, with the table of each `day`."""
        position = at_s % DAY_S / self.slot_s
        before = np.floor(position).astype(np.int64)
        weight = position - before
        first, second = before % self.table.shape[-1], (before + 1) % self.table.shape[-1]
        if day is None:
            return np.asarray((1 - weight) * self.table[first] + weight * self.table[second])
        return np.asarray((1 - weight) * self.table[day, first] + weight * self.table[day, second])


def seasons(roots: FloatArray, at_s: FloatArray, step_s: float) -> tuple[Season, Season]:
    """Season of a series, and for each of its days the season of its other days.

    The second one is what a fit must see: a season that knows the day itself looks better than it is. Below two days
    of samples both are flat at the mean.
    roots: shape (points,), with NaN where nothing was measured.
    """
    slot_s = max(_FINEST_S, step_s)
    slots = round(DAY_S / slot_s)
    day = (np.arange(len(at_s)) * step_s // DAY_S).astype(np.int64)
    slot = np.rint(at_s % DAY_S / slot_s).astype(np.int64) % slots
    known = ~np.isnan(roots)
    days = int(day[-1]) + 1
    sums, counts = np.zeros((days, slots)), np.zeros((days, slots))
    np.add.at(sums, (day[known], slot[known]), roots[known])
    np.add.at(counts, (day[known], slot[known]), 1.0)
    mean = float(roots[known].mean()) if known.any() else 0.0
    if known.sum() * step_s < MIN_DAYS * DAY_S:
        return Season(slot_s, np.full(slots, mean)), Season(slot_s, np.full((days, slots), mean))
    whole = _table(sums.sum(0), counts.sum(0), step_s, slot_s)
    others = np.stack([_table(sums.sum(0) - sums[n], counts.sum(0) - counts[n], step_s, slot_s) for n in range(days)])
    return Season(slot_s, whole), Season(slot_s, others)


def _table(sums: FloatArray, counts: FloatArray, step_s: float, slot_s: float) -> FloatArray:
    """Means of the slots, empty ones interpolated; smoothed over half an hour where samples are finer than slots."""
    slots = np.arange(len(sums))
    filled = counts > 0
    means = np.interp(slots, slots[filled], sums[filled] / counts[filled], period=len(sums))
    if step_s >= slot_s:
        return np.asarray(means)
    return np.asarray(0.5 * means + 0.25 * (np.roll(means, 1) + np.roll(means, -1)))
