"""Tonnage's policy: floors, then needs, class by class, with the measured spike kept free; bursts as room permits."""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import FloatArray
from power.policy.interface import Plant, PolicyInput, Wants
from power.rules import MEANT_W


@dataclass(frozen=True, slots=True, eq=False)
class DeviceDemand:
    """What is known of each device's demand; shape (devices,) each."""

    mean_w: FloatArray
    """Draw smoothed over some seconds; negative before the first reading."""
    usual_w: FloatArray
    """What it needed lately, smoothed over four times as long: between two requests it needs that still."""
    need_w: FloatArray
    """What it would draw without its cap, with its margin; between its lowest and its highest limit."""


def needed(plant: Plant, before: DeviceDemand, seen: PolicyInput) -> DeviceDemand:
    """The demand with its means brought up to date; a first reading is its own mean.

    Where bursts are allowed a device needs its smoothed draw, since a burst covers a prompt; under hard limits it needs
    its draw, and its useful floor also when idle. One that its cap holds back is tried at more. A need is kept while it
    moves little, so that a ripple of the draw moves no caps, and while the newest cap is too young to show: otherwise a
    device that was just given more would seem not to use it. What a brake holds down shows no need. A draw that no
    device can have counts as the highest limit: one broken reading must not stay in the mean for ever.
    """
    rules, devices = plant.rules, plant.tree.table.devices
    shown_w = np.fmax(np.fmin(seen.shown_w, devices.max_w), 0.0)
    part, slow_part = 1 - exp(-seen.for_s / rules.mean_s), 1 - exp(-seen.for_s / (4 * rules.mean_s))
    mean_w = np.where(before.mean_w < 0, shown_w, before.mean_w + part * (shown_w - before.mean_w))
    draw_w = np.where(plant.bursts, mean_w, seen.draw_w)
    held_back = draw_w >= rules.pinned_share * seen.limit_w
    more_w = seen.limit_w + rules.probe_share * devices.max_w
    wants_w = np.where(held_back, more_w, draw_w * (1 + rules.margin_share))
    usual_w = before.usual_w + slow_part * (wants_w - before.usual_w)
    wants_w = np.where(plant.bursts, np.maximum(wants_w, usual_w), wants_w)
    wants_w = np.minimum(np.maximum(wants_w, np.where(plant.bursts, devices.min_w, devices.floor_w)), devices.max_w)
    band_w = rules.band_share * devices.max_w
    rises = (wants_w > before.need_w + band_w) | ((wants_w > before.need_w) & (draw_w > before.need_w))
    falls = (wants_w < before.need_w - band_w) & seen.shows
    need_w = np.where(rises | falls, wants_w, before.need_w)
    if seen.slowed is not None:
        need_w, usual_w = np.where(seen.slowed, before.need_w, need_w), before.usual_w
    return DeviceDemand(mean_w, usual_w, need_w)


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


@dataclass(frozen=True, slots=True, eq=False)
class ByClassMemory:
    """What the policy remembers between steps."""

    demand: DeviceDemand
    spikes: Spikes


class ByClass:
    """The policy of one plant, without memory of its own.

    Power fills levels in order until domains are full (`Tree.poured`), so low classes give way first; the largest rise
    of the draw within a control delay stays free of needs, since no grant can prevent it.
    """

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        rank = plant.tree.rank
        self._of_class = [rank == number for number in range(int(rank.max(initial=-1)) + 1)]

    def first(self) -> ByClassMemory:
        """Memory before the first step."""
        tree, devices = self.plant.tree, self.plant.tree.table.devices
        first_w = self.plant.rules.first_spike_share * tree.budget_w
        demand = DeviceDemand(np.full(tree.devices, -1.0), devices.floor_w, devices.max_w)
        return ByClassMemory(demand, Spikes((), first_w, first_w))

    def wants(self, memory: ByClassMemory, seen: PolicyInput) -> tuple[ByClassMemory, Wants]:
        """What it wants now, and the memory for the next step. Called once per step."""
        rules, spikes = self.plant.rules, memory.spikes
        if seen.slowed is not None:  # the recovery after a brake is no rise of demand
            spikes = Spikes((), spikes.spike_w, spikes.excess_w)
        elif seen.is_clean:  # nor is a device that falls silent and counts for more at once
            spikes = with_draw(
                spikes, seen.drawn_w, seen.at_s, rules.control_delay_s, rules.spike_memory_s, rules.mean_s
            )
        demand = needed(self.plant, memory.demand, seen)
        cap_w = self._caps_w(demand, seen, self._reserve_w(demand, spikes, seen))
        lease_w = np.minimum(cap_w, seen.lease_w)  # what is lowered is lowered at once, what is raised may have to wait
        return ByClassMemory(demand, spikes), Wants(
            cap_w, demand.need_w, burst_ends_w(self.plant, spikes, seen, lease_w)
        )

    def _reserve_w(self, demand: DeviceDemand, spikes: Spikes, seen: PolicyInput) -> FloatArray:
        """What must stay free of needs, shape (limits,): the measured rise, less what needs leave above the draw.

        Either measure of the rise is valid on its own. A need is granted whole, so all of it that is not drawn holds a
        part of the rise already: a reserve that is not used is given back. None under hard limits.
        """
        tree, rules = self.plant.tree, self.plant.rules
        if not self.plant.bursts.any():
            return np.zeros(tree.limits)
        needs_w, reserve_w = tree.at_worst(demand.need_w), np.full(tree.limits, np.inf)
        for draw_w, rise_w in ((seen.draw_w, spikes.spike_w), (demand.mean_w, spikes.excess_w)):
            reserve_w = np.minimum(reserve_w, rules.reserve_spikes * rise_w - (needs_w - tree.drawn(draw_w)))
        least_w, most_w = rules.reserve_least_share * seen.budget_w, rules.reserve_most_share * seen.budget_w
        kept_w: FloatArray = np.minimum(np.maximum(reserve_w, least_w), most_w)
        return kept_w

    def _caps_w(self, demand: DeviceDemand, seen: PolicyInput, reserve_w: FloatArray) -> FloatArray:
        """Useful floors as far as they are needed, class by class, then needs, class by class, then spare power.

        All but the floors of the first class leave the reserve free: a row gives them up before it exceeds its budget
        for a moment. Spare power is for hard limits alone: elsewhere a burst carries a device until its lease is
        raised, and power that an idle device holds must first be seen to be released, which takes three control delays.
        """
        tree, need_w, base_w = self.plant.tree, demand.need_w, seen.base_w
        devices = tree.table.devices
        floor_w = np.maximum(np.minimum(devices.floor_w, need_w), base_w)
        full_w = np.maximum(need_w, floor_w)
        parts = [(piece_w, own) for piece_w in (floor_w - base_w, full_w - floor_w) for own in self._of_class]
        pieces_w = [np.where(own & seen.governed, piece_w, 0.0) for piece_w, own in parts]
        pieces_w.append(np.where(self.plant.bursts | ~seen.governed, 0.0, devices.max_w - full_w))
        kept_w = [0 * reserve_w] + [reserve_w] * (len(pieces_w) - 2) + [0 * reserve_w]
        room_w = seen.free_w - tree.at_worst(np.where(seen.governed, base_w, 0.0))
        got_w = tree.poured(pieces_w, [room_w - kept for kept in kept_w])
        target_w = np.minimum(base_w + np.floor(got_w / MEANT_W + 1e-9) * MEANT_W, devices.max_w)
        # A device that has about as much, or all that it needs, is raised when the gain is worth it.
        near = (seen.lease_w <= target_w) & (seen.lease_w >= target_w - self.plant.rules.band_share * devices.max_w)
        near &= (target_w < need_w - MEANT_W) | (seen.lease_w >= need_w - MEANT_W)
        return np.where(near & seen.governed, seen.lease_w, target_w)


def burst_ends_w(plant: Plant, spikes: Spikes, seen: PolicyInput, lease_w: FloatArray) -> FloatArray:
    """Highest limits of bursts: the nearer a domain is to its budget, the lower, and low classes first.

    With `low_bursts_room` measured spikes of room all bursts are unrestricted; with less they end lower in proportion,
    at the lease with `low_floor_room`. A gradual bound: devices that are stopped abruptly accumulate work, and start
    all of it together when there is room again.

    lease_w: shape (devices,), lease of each device from now on.
    """
    tree, rules = plant.tree, plant.rules
    room = (seen.budget_w - seen.drawn_w) / np.maximum(spikes.spike_w, MEANT_W)
    if spikes.window:  # each measure is valid on its own
        room = np.maximum(room, (seen.budget_w - spikes.window[-1][2]) / np.maximum(spikes.excess_w, MEANT_W))
    room, low = tree.least(room), tree.below_first
    none = np.where(low, rules.low_floor_room, rules.floor_room)
    part = (room - none) / (np.where(low, rules.low_bursts_room, rules.bursts_room) - none)
    open_w = np.where(plant.bursts, tree.table.devices.max_w, lease_w)
    to_w: FloatArray = lease_w + np.clip(part, 0.0, 1.0) * (open_w - lease_w)
    return to_w
