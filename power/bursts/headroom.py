"""Room below a budget: what is free now, and how far the draw may rise before a decision acts.

Both come from two measures (power/estimation/spike.py), each right by itself, and the sharper one counts: what is
below the budget now, against the largest rise within a control delay; or what the smoothed draw leaves, against the
largest excess over it.
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
    """Shape (limits,) each."""

    free_w: FloatArray
    """Below the budget; negative above it."""
    spike_w: FloatArray
    """What the draw may rise by before a decision acts."""

    def beyond(self, spikes: float) -> FloatArray:
        """Watts that are free beyond so many spikes, shape (limits,)."""
        return self.free_w - spikes * self.spike_w

    def less(self, watts: FloatArray) -> "Room":
        """The room when so much more is drawn; watts: shape (limits,)."""
        return Room(self.free_w - watts, self.spike_w)


def room_of(spikes: Spikes, excess_w: FloatArray, drawn_w: FloatArray, room_w: FloatArray) -> Room:
    """The room that the sharper measure tells.

    excess_w, drawn_w, room_w: shape (limits,): the excess that is to be counted on, the draw of devices, and what all
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
    """The excess over the smoothed draw that is to be counted on; shape (limits,).

    prompts: shape (devices,), of `prompts_share`. Less than the largest that was seen counts where most that works
    alternates between its phases: such a draw is a sum of many that know nothing of each other, so its largest excess
    in a week lies far out, and does not last.
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
    """Watts at each limit that present needs leave alone: so many measured spikes, less what needs have over the draw.

    excess_w: shape (limits,), the excess to count on. draw_w, mean_w, need_w: shape (devices,): draws, smoothed draws
    and needs. Only the margin over what is drawn counts: what a device needs and does not get is no room for any rise.
    """
    least_w: FloatArray = np.full(tree.limits, np.inf)
    for drawn_w, rise_w in ((draw_w, spikes.spike_w), (mean_w, excess_w)):
        shown_w = np.minimum(need_w, drawn_w * (1 + rules.margin_share))
        margin_w = tree.at_worst(shown_w) - tree.drawn(drawn_w)
        least_w = np.minimum(least_w, rules.reserve_spikes * rise_w - np.maximum(margin_w, 0.0))
    most_w: FloatArray = rules.reserve_most_share * tree.budget_w
    return np.minimum(np.maximum(least_w, 0.0), most_w)
