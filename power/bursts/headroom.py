"""Room below a budget: what is free now, and how far the draw may rise before a decision takes effect.

Both result from two measures (power/estimation/spike.py), each valid on its own, and the stricter one applies. Either:
the room below the budget now, against the largest rise within a control delay. Or: the room that the smoothed draw
leaves, against the largest excess over it.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, any_of
from cluster.power import PHASE_IDLE, PowerReadings
from power.domains.tree import Tree
from power.estimation.phases import alternate
from power.estimation.spike import Spikes
from power.rules import PowerRules


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Room at each limit; shape (limits,) each."""

    free_w: FloatArray
    """Power below the budget; negative above it."""
    spike_w: FloatArray
    """Rise of the draw that is possible before a decision takes effect."""

    def beyond(self, spikes: float) -> FloatArray:
        """Power that is free beyond this number of spikes, shape (limits,)."""
        return self.free_w - spikes * self.spike_w

    def less(self, watts: FloatArray) -> "Room":
        """The room when `watts` more are drawn; shape (limits,)."""
        return Room(self.free_w - watts, self.spike_w)


def room_of(spikes: Spikes, excess_w: FloatArray, drawn_w: FloatArray, room_w: FloatArray) -> Room:
    """The room by the stricter of the two measures.

    excess_w, drawn_w, room_w: shape (limits,): the excess to plan for, the draw of devices, and the power that all
    devices together may draw.
    """
    free_w = room_w - drawn_w
    if not spikes.window:
        return Room(free_w, spikes.spike_w)
    smooth_w = room_w - spikes.smooth_w
    flutters = smooth_w * spikes.spike_w > free_w * excess_w
    return Room(np.where(flutters, smooth_w, free_w), np.where(flutters, excess_w, spikes.spike_w))


def counted_excess_w(
    tree: Tree, rules: PowerRules, spikes: Spikes, prompts: FloatArray, readings: PowerReadings
) -> FloatArray:
    """The excess over the smoothed draw to plan for; shape (limits,).

    prompts: shape (devices,), from `prompts_share`. Less than the largest measured excess is used where most of the
    working draw alternates between phases. Such a draw is a sum of many independent ones, so its largest excess in a
    week is an outlier and does not last.
    """
    alternates = alternate(prompts)
    if not any_of(alternates):
        return spikes.excess_w
    works_w = np.where(readings.phase == PHASE_IDLE, 0.0, readings.draw_w)
    most = tree.drawn(np.where(alternates, works_w, 0.0)) > 0.5 * tree.drawn(works_w)
    return np.where(most, rules.alternating_share * spikes.excess_w, spikes.excess_w)


def reserve(
    tree: Tree,
    rules: PowerRules,
    spikes: Spikes,
    excess_w: FloatArray,
    *,
    draw_w: FloatArray,
    mean_w: FloatArray,
    need_w: FloatArray,
) -> FloatArray:
    """Power at each limit that present needs leave free: the measured spikes less the margin of needs over the draw.

    excess_w: shape (limits,), the excess to plan for. draw_w, mean_w, need_w: shape (devices,): draws, smoothed draws
    and needs. Only the margin over the draw counts: power that a device needs and does not get is no room for a rise.
    """
    least_w: FloatArray = np.full(tree.limits, np.inf)
    for drawn_w, rise_w in ((draw_w, spikes.spike_w), (mean_w, excess_w)):
        shown_w = np.minimum(need_w, drawn_w * (1 + rules.margin_share))
        margin_w = tree.at_worst(shown_w) - tree.drawn(drawn_w)
        least_w = np.minimum(least_w, rules.reserve_spikes * rise_w - np.maximum(margin_w, 0.0))
    most_w: FloatArray = rules.reserve_most_share * tree.budget_w
    return np.minimum(np.maximum(least_w, 0.0), most_w)
