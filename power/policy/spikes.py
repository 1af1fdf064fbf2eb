"""Spikes: how far draws may rise before a decision takes effect; measured continuously and kept in reserve.

Two measures, each valid on its own: the largest rise within a control delay, smaller where draws climb, and the largest
excess over the smoothed draw of one control delay before, smaller where draws fluctuate, as with short requests.
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """Memory of the largest rises of the draws through all limits, shape (limits,) each."""

    window: tuple[tuple[float, FloatArray, FloatArray], ...]
    """(instant, watts, smoothed watts) of the last control delay, oldest first."""
    spike_w: FloatArray
    """Largest rise within a control delay; older ones are forgotten gradually."""
    excess_w: FloatArray
    """Largest excess over the smoothed draw of one control delay before; smaller where draws fluctuate."""


def with_draw(
    spikes: Spikes, draw_w: FloatArray, at_s: float, within_s: float, memory_s: float, mean_s: float
) -> Spikes:
    """The memory after one more measurement.

    within_s: time from the draw that a decision answers until the decision takes effect. memory_s: time constant of
    forgetting. mean_s: time constant of smoothing. The first measurement is no rise, since nothing precedes it.
    """
    window = tuple([each for each in spikes.window if at_s - each[0] <= within_s])
    if not window:
        return Spikes(((at_s, draw_w, draw_w),), spikes.spike_w, spikes.excess_w)
    last_s, _, smooth_w = window[-1]
    for_s = max(at_s - last_s, 0.0)
    kept, part = exp(-for_s / memory_s), 1 - exp(-for_s / mean_s)
    spike_w = spikes.spike_w * kept
    for _, watts, _ in window:
        spike_w = np.maximum(spike_w, draw_w - watts)
    excess_w = np.maximum(spikes.excess_w * kept, draw_w - window[0][2])
    return Spikes((*window, (at_s, draw_w, smooth_w + part * (draw_w - smooth_w))), spike_w, excess_w)
