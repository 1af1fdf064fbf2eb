"""Spikes: how far draws may rise before a decision takes effect; measured continuously and kept in reserve.

There are two measures, each valid on its own. One is the largest rise of the draw within one control delay; the other
the largest excess of the draw over its smoothed value of one control delay before. The first is smaller where draws
climb, as when requests arrive at idle servers. The second is smaller where draws fluctuate, as with continuous
batching, whose rises start from troughs.
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """Memory of the largest rises. A series is the draw of one limit; several are measured at once, all of shape
    (series,).
    """

    window: tuple[tuple[float, FloatArray, FloatArray], ...]
    """(instant, watts, smoothed watts) of the last control delay, oldest first."""
    spike_w: FloatArray
    """Largest rise within a control delay; older ones are forgotten gradually."""
    excess_w: FloatArray
    """Largest excess over the smoothed draw of one control delay before."""

    @property
    def smooth_w(self) -> FloatArray:
        """Smoothed draw; available only if something was measured within the last control delay."""
        return self.window[-1][2]


def no_spikes(taken_w: FloatArray) -> Spikes:
    """Memory before the first measurement. taken_w: shape (series,), assumed spikes until some are measured."""
    return Spikes((), taken_w, taken_w)


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
    if len(draw_w) == 1:  # a single row: plain floats take a third of the time
        now_w, was_w = draw_w.item(), smooth_w.item()
        rise_w = now_w - min([watts.item() for _, watts, _ in window])
        excess_w = now_w - window[0][2].item()
        return Spikes(
            (*window, (at_s, draw_w, np.array([was_w + part * (now_w - was_w)]))),
            np.array([max(spikes.spike_w.item() * kept, rise_w)]),
            np.array([max(spikes.excess_w.item() * kept, excess_w)]),
        )
    faded = spikes.spike_w * kept
    for _, watts, _ in window:
        faded = np.maximum(faded, draw_w - watts)
    over_w = np.maximum(spikes.excess_w * kept, draw_w - window[0][2])
    return Spikes((*window, (at_s, draw_w, smooth_w + part * (draw_w - smooth_w))), faded, over_w)
