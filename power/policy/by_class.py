"""Tonnage's policy: floors, then needs, class by class, with room for the usual rises; bursts as far as they fit."""

from dataclasses import dataclass, replace
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND
from power.policy.interface import Plant, PolicyInput, Wants
from power.policy.water_filling import levels_of, pour, widths_w
from power.rules import MEANT_W

_PROMPTS_MEMORY_S = 120.0
"""Time constant of the fraction of prompts: many requests at one at a time, of which a twentieth to a tenth is
prompt."""
_ALTERNATES_SHARE = 0.25
"""Fraction of prompts from which phases count as alternating: it is a third to a half with continuous batching."""

_SPIKE_MOST_SHARE = 0.15
"""Most that stays free for rises, of the budget: a row whose devices step together would keep half of it."""


@dataclass(frozen=True, slots=True, eq=False)
class ByClassMemory:
    """What the policy remembers between steps: shape (devices,) each, unless stated otherwise."""

    need_w: FloatArray
    """What each device would draw without its cap, with its margin; between its floor and its highest limit."""
    mean_w: FloatArray
    """Draw smoothed over some seconds; negative before the first reading."""
    prompts: FloatArray
    """Fraction of the readings during work that hit a prompt."""
    smooth_w: FloatArray
    """Draw through each limit, smoothed alike, shape (limits,); negative before the first reading."""
    swing_w: FloatArray
    """Root of the mean square of what the draw through each limit exceeds the smoothed one by, shape (limits,)."""
    spike_w: FloatArray
    """How far the draw through each limit may rise within a control delay: a multiple of its swing, shape (limits,)."""

    @property
    def alternates(self) -> BoolArray:
        """Devices whose phases alternate faster than they are read."""
        return np.asarray(self.prompts >= _ALTERNATES_SHARE)


class ByClass:
    """The policy of one plant, without memory of its own.

    Power fills levels in order until domains are full (`water_filling.py`), so low classes give way first. What the
    draw usually rises by within a control delay stays free of needs, since no grant can prevent it.
    """

    def __init__(self, plant: Plant) -> None:
        self.plant, self._levels = plant, levels_of(plant.tree, plant.bursts)

    def first(self) -> ByClassMemory:
        """Memory before the first step."""
        tree, rules = self.plant.tree, self.plant.rules
        nothing, swing_w = np.zeros(tree.devices), rules.first_swing_share * tree.budget_w
        most_w, spike_w = tree.table.devices.max_w, rules.spike_swings * swing_w
        return ByClassMemory(most_w, nothing - 1.0, nothing, np.full(tree.limits, -1.0), swing_w, spike_w)

    def wants(self, memory: ByClassMemory, seen: PolicyInput) -> tuple[ByClassMemory, Wants]:
        """What it wants now, and the memory for the next step. Called once per step."""
        plant, tree, rules, levels = self.plant, self.plant.tree, self.plant.rules, self._levels
        devices, memory = tree.table.devices, observed(plant, memory, seen)
        need_w = needed_w(plant, memory, seen)
        rests = (seen.phase == PHASE_IDLE) & ~memory.alternates  # else the next request comes before a grant does
        # What needs leave above draws is margin, which is free as well.
        shown_w = np.minimum(need_w, np.where(memory.alternates, np.inf, memory.mean_w * (1 + rules.margin_share)))
        margin_w = np.maximum(tree.at_worst(shown_w) - tree.drawn(memory.mean_w), 0.0)
        reserve_w = np.maximum(memory.spike_w - margin_w, 0.0)
        width_w = widths_w(tree, seen.base_w, need_w, rests, plant.bursts, seen.governed)
        free_w = seen.free_w - tree.at_worst(np.where(seen.governed, seen.base_w, 0.0))
        got_w = pour(tree, width_w, levels.level, free_w - levels.keeps_reserve * reserve_w)
        cap_w = np.minimum(seen.base_w + np.floor(got_w / MEANT_W + 1e-9) * MEANT_W, devices.max_w)
        cap_w = _kept_w(plant, seen, np.where(plant.bursts & rests, devices.min_w, need_w), cap_w, reserve_w)
        return replace(memory, need_w=need_w), Wants(cap_w, burst_ends_w(plant, memory, seen, cap_w))


def observed(plant: Plant, memory: ByClassMemory, seen: PolicyInput) -> ByClassMemory:
    """The memory with its means brought up to date; a first reading is its own mean.

    A draw that no device can have counts as the highest limit: one broken reading must not stay in the mean for ever.
    A server that handles one request at a time is in its prompt for a second or two and generates tokens for a minute.
    Continuous batching alternates several times a second, so the phase of a reading tells nothing there.
    """
    rules, for_s = plant.rules, max(seen.for_s, 0.0)
    draw_w = np.fmax(np.fmin(seen.shown_w, plant.tree.table.devices.max_w), 0.0)
    part = 1 - exp(-for_s / rules.mean_s)
    mean_w = np.where(memory.mean_w < 0, draw_w, memory.mean_w + part * (draw_w - memory.mean_w))
    new = 1 - exp(-for_s / _PROMPTS_MEMORY_S) if for_s < _PROMPTS_MEMORY_S else 0.0
    hits = (seen.phase == PHASE_COMPUTE_BOUND) - memory.prompts
    prompts = memory.prompts + np.where(seen.phase == PHASE_IDLE, 0.0, new) * hits
    smooth_w, swing_w = memory.smooth_w, memory.swing_w
    if seen.slowed is None and seen.is_clean:  # the recovery after a brake, or a device that falls silent, is no swing
        over_w, known = seen.drawn_w - smooth_w, (smooth_w >= 0) & (for_s < rules.stale_s)
        kept = exp(-for_s / rules.swing_memory_s)
        swing_w = np.where(known, np.sqrt(kept * swing_w**2 + (1 - kept) * over_w**2), swing_w)
        smooth_w = np.where(known, smooth_w + part * over_w, seen.drawn_w)
    else:  # what was smoothed before is no measure of later draws
        smooth_w = np.full(plant.tree.limits, -1.0)
    spike_w = np.minimum(rules.spike_swings * swing_w, _SPIKE_MOST_SHARE * seen.budget_w)
    return ByClassMemory(memory.need_w, mean_w, prompts, smooth_w, swing_w, spike_w)


def needed_w(plant: Plant, memory: ByClassMemory, seen: PolicyInput) -> FloatArray:
    """What each device would draw without its cap, with a margin, shape (devices,).

    In token generation that follows from its draw now, else from its smoothed draw, since a burst covers a prompt. One
    that its cap holds back is tried at more. A need falls once the newest cap is old enough to show: otherwise a device
    that was just given more would seem not to use it. What a brake holds down shows no need.
    """
    rules, devices = plant.rules, plant.tree.table.devices
    tokens = (seen.phase == PHASE_MEMORY_BOUND) & ~memory.alternates
    draw_w = np.where(plant.bursts & ~tokens, memory.mean_w, seen.draw_w)
    held_back = (draw_w >= rules.pinned_share * seen.limit_w) & (seen.phase != PHASE_IDLE)
    more = np.where((seen.phase == PHASE_COMPUTE_BOUND) & ~plant.bursts, 1.0, rules.probe_share)
    wants_w = np.where(held_back, seen.limit_w + more * devices.max_w, draw_w * (1 + rules.margin_share))
    wants_w = np.minimum(np.maximum(wants_w, devices.floor_w), devices.max_w)
    need_w = np.where((wants_w > memory.need_w) | seen.shows, wants_w, memory.need_w)
    return need_w if seen.slowed is None else np.where(seen.slowed, memory.need_w, need_w)


def _kept_w(
    plant: Plant, seen: PolicyInput, need_w: FloatArray, target_w: FloatArray, reserve_w: FloatArray
) -> FloatArray:
    """Caps to move to now: the targets, but a device keeps a lease with which it has what it needs, until others need
    the power; one that must do with less is lowered at once, and raised when the gain is worth it.
    """
    band_w = plant.rules.band_share * plant.tree.table.devices.max_w
    close = (seen.lease_w >= target_w - band_w) & seen.governed
    near = close & (seen.lease_w <= target_w)
    kept_w = np.where(near | (close & (seen.lease_w >= need_w - MEANT_W)), seen.lease_w, target_w)
    fits = plant.tree.at_worst(np.where(seen.governed, kept_w, 0.0)) <= seen.free_w - reserve_w
    if all_of(fits):
        return kept_w
    return np.where(plant.tree.least(np.where(fits, 1.0, -1.0)) > 0, kept_w, np.where(near, seen.lease_w, target_w))


def burst_ends_w(plant: Plant, memory: ByClassMemory, seen: PolicyInput, cap_w: FloatArray) -> FloatArray:
    """Highest limits of bursts that begin now, shape (devices,): together they fit the room, class by class, and in the
    first class that does not fit each device has the same fraction of its burst.

    Idle devices may start together, as after an outage or where a schedule starts them, so all of their bursts count,
    and all that their leases hold back draw more as soon as they may. Of other devices in token generation only some
    begin a prompt within one control delay, and the others draw what they draw now, whatever their leases allow.
    Devices whose phases alternate are independent of each other, so the room that they need together is a multiple of
    the swing of the draw.

    cap_w: shape (devices,), lease of each device from now on.
    """
    tree, rules = plant.tree, plant.rules
    lease_w = np.minimum(cap_w, seen.lease_w)  # what is lowered is lowered at once, what is raised may have to wait
    open_w = np.where(plant.bursts, tree.table.devices.max_w, lease_w)
    swings = plant.bursts & (seen.phase != PHASE_IDLE) & memory.alternates
    held_back = seen.draw_w >= rules.pinned_share * np.maximum(seen.limit_w, cap_w)
    steady = plant.bursts & (seen.phase == PHASE_MEMORY_BOUND) & ~memory.alternates
    firm_w = np.where(swings, 0.0, np.where(steady, seen.draw_w, np.maximum(seen.draw_w, cap_w)))
    rises_w = tree.at_worst(np.where(steady, 0.0, firm_w)) - tree.drawn(np.where(steady | swings, 0.0, seen.draw_w))
    room_w = seen.budget_w - np.maximum(seen.drawn_w, memory.smooth_w) - np.maximum(rises_w, 0.0)
    rise_w = np.maximum(open_w - firm_w, 0.0)
    if tree.table.devices.ramp_w_per_s is not None:  # a device that smooths its draw rises only so far until then
        rise_w = np.minimum(rise_w, tree.table.devices.ramp_w_per_s * rules.control_delay_s)
        open_w = np.where(swings, open_w, np.minimum(open_w, firm_w + rise_w))  # and, without a controller, for ever
    rise_w = np.where(steady & ~held_back, rules.together_share, 1.0) * rise_w
    share = np.zeros(tree.devices)
    for rank in range(int(tree.rank.max(initial=-1)) + 1):
        own = tree.rank == rank
        asked_w = tree.at_worst(np.where(own & ~swings, rise_w, 0.0))
        if any_of(own & swings):
            asked_w = asked_w + (rules.low_burst_swings if rank else rules.burst_swings) * memory.swing_w
        fits = np.minimum(np.maximum(room_w / np.maximum(asked_w, MEANT_W), 0.0), 1.0)
        share = np.where(own, np.minimum(tree.least(fits), 1.0), share)  # 1 below no limit
        room_w = room_w - asked_w * fits
    to_w: FloatArray = lease_w + share * (open_w - lease_w)
    return to_w
