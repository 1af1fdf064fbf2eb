"""The largest rise of a draw within one control delay, measured all the time: what must be held in reserve."""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """Memory of the largest rises. A series is a limit's draw; several are measured at once."""

    window: tuple[tuple[float, FloatArray], ...]
    """(instant, watts) of the last control delay, oldest first; watts of shape (series,)."""
    spike_w: FloatArray
    """Shape (series,): the largest rise within a control delay, older ones forgotten bit by bit."""


def no_spikes(series: int) -> Spikes:
    return Spikes((), np.zeros(series))


def with_draw(spikes: Spikes, draw_w: FloatArray, at_s: float, within_s: float, memory_s: float) -> Spikes:
    """The memory after one more measurement.

    within_s: the time that a decision takes to act, from the draw that it answers. memory_s: time constant of
    forgetting. The first measurement is no rise: nothing came before it.
    """
    window = tuple([each for each in spikes.window if at_s - each[0] <= within_s])
    if not window:
        return Spikes(((at_s, draw_w),), spikes.spike_w)
    kept = exp(-max(at_s - window[-1][0], 0.0) / memory_s)
    if len(draw_w) == 1:  # a row alone: plain numbers are a third of the time
        rise_w = draw_w.item() - min([watts.item() for _, watts in window])
        return Spikes((*window, (at_s, draw_w)), np.array([max(spikes.spike_w.item() * kept, rise_w)]))
    faded = spikes.spike_w * kept
    for _, watts in window:
        faded = np.maximum(faded, draw_w - watts)
    return Spikes((*window, (at_s, draw_w)), faded)
