"""How far draws may rise before a decision acts: measured all the time, to be kept in reserve.

Two measures, each right by itself: the largest rise of the draw within one control delay, and the largest excess of the
draw over its smoothed course one control delay before. The first is the smaller one where draws climb, as when requests
arrive at idle servers; the second where they flutter, as with continuous batching, whose rises begin in troughs.
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """Memory of the largest rises. A series is a limit's draw; several are measured at once, all of shape (series,)."""

    window: tuple[tuple[float, FloatArray, FloatArray], ...]
    """(instant, watts, smoothed watts) of the last control delay, oldest first."""
    spike_w: FloatArray
    """The largest rise within a control delay, older ones forgotten bit by bit."""
    excess_w: FloatArray
    """The largest excess over the smoothed draw of one control delay before."""

    @property
    def smooth_w(self) -> FloatArray:
        """The smoothed draw; only where something was measured within the last control delay."""
        return self.window[-1][2]


def no_spikes(taken_w: FloatArray) -> Spikes:
    """Nothing was measured yet. taken_w: shape (series,), what spikes are taken to be until they are."""
    return Spikes((), taken_w, taken_w)


def with_draw(
    spikes: Spikes, draw_w: FloatArray, at_s: float, within_s: float, memory_s: float, mean_s: float
) -> Spikes:
    """The memory after one more measurement.

    within_s: the time that a decision takes to act, from the draw that it answers. memory_s: time constant of
    forgetting. mean_s: of smoothing. The first measurement is no rise: nothing came before it.
    """
    window = tuple([each for each in spikes.window if at_s - each[0] <= within_s])
    if not window:
        return Spikes(((at_s, draw_w, draw_w),), spikes.spike_w, spikes.excess_w)
    last_s, _, smooth_w = window[-1]
    for_s = max(at_s - last_s, 0.0)
    kept, part = exp(-for_s / memory_s), 1 - exp(-for_s / mean_s)
    if len(draw_w) == 1:  # a row alone: plain numbers are a third of the time
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
