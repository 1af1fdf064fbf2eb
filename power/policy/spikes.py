"""Spikes: the largest rise of the draw within a control delay, measured continuously and kept in reserve."""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """Memory of the largest rises of the draws through all limits, shape (limits,) each."""

    window: tuple[tuple[float, FloatArray], ...]
    """(instant, watts) of the last control delay, oldest first."""
    spike_w: FloatArray
    """Largest rise within a control delay; older ones are forgotten gradually."""


def with_draw(spikes: Spikes, draw_w: FloatArray, at_s: float, within_s: float, memory_s: float) -> Spikes:
    """The memory after one more measurement.

    within_s: time from the draw that a decision answers until the decision takes effect. memory_s: time constant of
    forgetting. The first measurement is no rise, since nothing precedes it.
    """
    window = tuple([each for each in spikes.window if at_s - each[0] <= within_s])
    if not window:
        return Spikes(((at_s, draw_w),), spikes.spike_w)
    spike_w = spikes.spike_w * exp(-max(at_s - window[-1][0], 0.0) / memory_s)
    for _, watts in window:
        spike_w = np.maximum(spike_w, draw_w - watts)
    return Spikes((*window, (at_s, draw_w)), spike_w)
