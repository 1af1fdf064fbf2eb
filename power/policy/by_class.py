"""Tonnage's policy: floors, then needs, class by class, with the measured spike kept free; bursts as room permits."""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, all_of, any_of
from cluster.power import NEVER_S, PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN
from power.policy.interface import Plant, PolicyInput, Wants
from power.policy.water_filling import levels_of, pour, pouring_of, widths_w
from power.rules import MEANT_W

_PROMPTS_MEMORY_S = 120.0
"""Time constant of the fraction of prompts: many requests at one at a time, of which a twentieth to a tenth is
prompt."""
_ALTERNATES_SHARE = 0.25
"""Fraction of prompts from which phases count as alternating: it is a third to a half with continuous batching."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceDemand:
    """What is known of each device's demand; shape (devices,) each."""

    need_w: FloatArray
    """What it would draw without its cap, with its margin; between its floor and its highest limit."""
    usual_w: FloatArray
    """What it needed lately in token generation; where phases are not known, while it worked."""
    mean_w: FloatArray
    """Draw smoothed over some seconds; negative before the first reading."""
    prompts: FloatArray
    """Fraction of the readings during work that hit a prompt."""
    phase: IntArray
    """Phase that will still apply when a grant arrives; unknown where phases alternate faster than they are read."""

    @property
    def alternates(self) -> BoolArray:
        """Devices whose phases alternate faster than they are read."""
        found: BoolArray = self.prompts >= _ALTERNATES_SHARE
        return found

    @property
    def rests(self) -> BoolArray:
        """Idle devices; not where phases alternate, since there the next request comes before a grant does."""
        found: BoolArray = (self.phase == PHASE_IDLE) & ~self.alternates
        return found


def no_demand(plant: Plant) -> DeviceDemand:
    devices = plant.tree.table.devices
    nothing, phase = np.zeros(len(devices)), np.full(len(devices), PHASE_UNKNOWN)
    return DeviceDemand(devices.max_w, devices.floor_w, nothing - 1.0, nothing, phase)


def observed(plant: Plant, demand: DeviceDemand, seen: PolicyInput) -> DeviceDemand:
    """The demand with its means and phases brought up to date; a first reading is its own mean.

    A draw that no device can have counts as the highest limit: one broken reading must not stay in the mean for ever.
    A server that handles one request at a time is in its prompt for a second or two and generates tokens for a minute.
    Continuous batching alternates several times a second, so the phase of a reading tells nothing there.
    """
    most_w, for_s = plant.tree.table.devices.max_w, max(seen.for_s, 0.0)
    draw_w = np.fmax(np.fmin(seen.shown_w, most_w), 0.0)
    part = 1 - exp(-for_s / plant.rules.mean_s)
    mean_w = np.where(demand.mean_w < 0, draw_w, demand.mean_w + part * (draw_w - demand.mean_w))
    rests = seen.phase == PHASE_IDLE
    part = 1 - exp(-for_s / _PROMPTS_MEMORY_S) if for_s < _PROMPTS_MEMORY_S else 0.0
    prompts = demand.prompts + np.where(rests, 0.0, part) * ((seen.phase == PHASE_COMPUTE_BOUND) - demand.prompts)
    phase = np.where((prompts >= _ALTERNATES_SHARE) & ~rests, PHASE_UNKNOWN, seen.phase)
    return DeviceDemand(demand.need_w, demand.usual_w, mean_w, prompts, phase)


def needed(plant: Plant, demand: DeviceDemand, seen: PolicyInput, for_s: float) -> DeviceDemand:
    """The demand with needs estimated anew.

    A device held back by its cap is tried at what it usually needs, or at more; one in a prompt, or whose phases
    alternate, will need what it usually does soon, and a burst covers its prompts. A need is kept while it moves
    little, so that a ripple of the draw moves no caps. It is also kept while the newest cap is too young to show:
    otherwise a device that was just given more would seem not to use it. What a brake holds down shows no need.

    for_s: time since this was done last.
    """
    rules, devices, before_w = plant.rules, plant.tree.table.devices, demand.need_w
    computes, tokens = demand.phase == PHASE_COMPUTE_BOUND, demand.phase == PHASE_MEMORY_BOUND
    draw_w = np.where(plant.bursts & ~tokens, demand.mean_w, seen.draw_w)
    band_w = rules.band_share * devices.max_w
    held_back = (draw_w >= rules.pinned_share * seen.limit_w) & (demand.phase != PHASE_IDLE)
    more_w = np.where(computes & ~plant.bursts, 1.0, rules.probe_share) * devices.max_w
    more_w = np.maximum(seen.limit_w + more_w, demand.usual_w)
    wants_w = np.where(held_back, more_w, draw_w * (1 + rules.margin_share))
    wants_w = np.where(computes | demand.alternates, np.maximum(wants_w, demand.usual_w), wants_w)
    wants_w = np.minimum(np.maximum(wants_w, devices.floor_w), devices.max_w)
    rises = (wants_w > before_w + band_w) | ((wants_w > before_w) & (draw_w > before_w))
    falls = (wants_w < before_w - band_w) & seen.shows
    need_w = np.where(rises | falls, wants_w, before_w)
    part = 1 - exp(-max(for_s, 0.0) / (4 * rules.mean_s))
    free_w = np.minimum(np.maximum(seen.draw_w * (1 + rules.margin_share), devices.floor_w), need_w)
    usual_w = np.where(seen.draw_w < rules.pinned_share * seen.limit_w, free_w, need_w)
    steady = tokens | (demand.phase == PHASE_UNKNOWN)
    usual_w = np.where(steady, demand.usual_w + part * (usual_w - demand.usual_w), demand.usual_w)
    if seen.slowed is not None:
        need_w, usual_w = np.where(seen.slowed, before_w, need_w), demand.usual_w
    return DeviceDemand(need_w, usual_w, demand.mean_w, demand.prompts, demand.phase)


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
    wants: Wants | None
    """What it wanted last."""
    decided_s: float
    """Instant when it last decided."""

    @property
    def need_w(self) -> FloatArray:
        return self.demand.need_w

    @property
    def spike_w(self) -> FloatArray:
        return self.spikes.spike_w


class ByClass:
    """The policy of one plant, without memory of its own.

    Power fills levels in order until domains are full (`water_filling.py`), so low classes give way first; the largest
    rise of the draw within a control delay stays free of needs, since no grant can prevent it.
    """

    def __init__(self, plant: Plant) -> None:
        self.plant, self._levels = plant, levels_of(plant.tree, plant.bursts)
        self._pouring = pouring_of(plant.tree, self._levels.count)

    def first(self) -> ByClassMemory:
        """Memory before the first step."""
        plant = self.plant
        first_w = plant.rules.first_spike_share * plant.tree.budget_w
        spikes = Spikes((), first_w, first_w)
        return ByClassMemory(no_demand(plant), spikes, None, NEVER_S)

    def wants(self, memory: ByClassMemory, seen: PolicyInput) -> tuple[ByClassMemory, Wants]:
        """What it wants now, and the memory for the next step. Called once per step."""
        plant, rules = self.plant, self.plant.rules
        spikes = memory.spikes
        if seen.slowed is not None:  # the recovery after a brake is no rise of demand
            spikes = Spikes((), spikes.spike_w, spikes.excess_w)
        elif seen.is_clean:  # nor is a device that falls silent and counts for more at once
            spikes = with_draw(
                spikes, seen.drawn_w, seen.at_s, rules.control_delay_s, rules.spike_memory_s, rules.mean_s
            )
        demand = observed(plant, memory.demand, seen)
        demand = needed(plant, demand, seen, seen.at_s - memory.decided_s if memory.wants is not None else 0.0)
        wants = self._decided(demand, spikes, seen)
        return ByClassMemory(demand, spikes, wants, seen.at_s), wants

    def _is_far(self, seen: PolicyInput) -> bool:
        return seen.is_clean and all_of(seen.drawn_w < self.plant.rules.calm_look_share * seen.budget_w)

    def _decided(self, demand: DeviceDemand, spikes: Spikes, seen: PolicyInput) -> Wants:
        plant, tree, rules, levels = self.plant, self.plant.tree, self.plant.rules, self._levels
        spikes = Spikes(spikes.window, spikes.spike_w, planned_excess_w(plant, demand, spikes, seen))
        width_w = widths_w(
            tree,
            levels,
            seen.base_w,
            demand.need_w,
            demand.usual_w,
            demand.rests,
            plant.bursts,
            seen.governed,
        )
        reserve_w = np.full(tree.limits, np.inf)
        for draw_w, rise_w in ((seen.draw_w, spikes.spike_w), (demand.mean_w, spikes.excess_w)):
            # Where phases alternate the draw is another one soon: all that a need leaves above it is margin.
            shown_w = np.where(demand.alternates, np.inf, draw_w * (1 + rules.margin_share))
            shown_w = np.minimum(demand.need_w, shown_w)
            margin_w = np.maximum(tree.at_worst(shown_w) - tree.drawn(draw_w), 0.0)
            reserve_w = np.minimum(reserve_w, np.maximum(rules.reserve_spikes * rise_w - margin_w, 0.0))
        reserve_w = np.minimum(reserve_w, rules.reserve_most_share * seen.budget_w)
        free_w = seen.free_w - tree.at_worst(np.where(seen.governed, seen.base_w, 0.0))
        got_w = pour(self._pouring, width_w, levels.level, free_w - levels.keeps_reserve * reserve_w)
        target_w = np.minimum(seen.base_w + np.floor(got_w / MEANT_W + 1e-9) * MEANT_W, tree.table.devices.max_w)
        pool_w = np.minimum(spikes.spike_w, rules.reserve_most_share * seen.budget_w)
        needs_w = demand.need_w
        if self._is_far(seen):  # an idle device keeps its power until others need it
            devices, rests = tree.table.devices, plant.bursts & demand.rests
            needs_w = np.where(rests, needs_w - devices.floor_w + devices.min_w, needs_w)
        cap_w = _without_useless_moves(plant, seen, needs_w, target_w, seen.free_w - pool_w)
        lease_w = np.minimum(cap_w, seen.lease_w)  # what is lowered is lowered at once, what is raised may have to wait
        return Wants(cap_w, demand.need_w, burst_ends_w(plant, demand, spikes, seen, lease_w))


def planned_excess_w(plant: Plant, demand: DeviceDemand, spikes: Spikes, seen: PolicyInput) -> FloatArray:
    """The excess over the smoothed draw to plan for, shape (limits,).

    Less than the largest one where most of the working draw alternates between phases, as with short requests and with
    continuous batching: such a draw is a sum of many independent ones, so its largest excess of a week is an outlier,
    and is over before a decision takes effect.
    """
    alternates = demand.alternates
    if not any_of(alternates):
        return spikes.excess_w
    works_w = np.where(demand.phase == PHASE_IDLE, 0.0, seen.draw_w)
    most = plant.tree.drawn(np.where(alternates, works_w, 0.0)) > 0.5 * plant.tree.drawn(works_w)
    return np.where(most, plant.rules.alternating_share, 1.0) * spikes.excess_w


def _without_useless_moves(
    plant: Plant, seen: PolicyInput, need_w: FloatArray, target_w: FloatArray, room_w: FloatArray
) -> FloatArray:
    """Caps to move to now: the targets, without moves that have no use.

    A device that has what it needs keeps any surplus until others need the power. A device that must do with less than
    it needs is lowered at once, and raised when the gain is worth it.
    """
    band_w = plant.rules.band_share * plant.tree.table.devices.max_w
    squeezed = target_w < need_w - MEANT_W
    near = squeezed & (seen.lease_w <= target_w) & (seen.lease_w >= target_w - band_w)
    content = ~squeezed & (seen.lease_w >= need_w - MEANT_W) & (seen.lease_w >= target_w - 3 * band_w)
    kept_w = np.where((content | near) & seen.governed, seen.lease_w, target_w)
    fits = plant.tree.at_worst(np.where(seen.governed, kept_w, 0.0)) <= room_w
    if all_of(fits):
        return kept_w
    return np.where(plant.tree.least(np.where(fits, 1.0, -1.0)) > 0, kept_w, np.where(near, kept_w, target_w))


def burst_ends_w(
    plant: Plant, demand: DeviceDemand, spikes: Spikes, seen: PolicyInput, lease_w: FloatArray
) -> FloatArray:
    """Highest limits of bursts that begin now, shape (devices,).

    Work may start together, as after an outage or where a schedule starts it. So bursts that may begin within one
    control delay fit what leases and draws leave of the budget together: class by class, and in the first class that
    does not fit each device with the same fraction of its burst.

    Only devices at work whose phases alternate are independent of each other. With `low_bursts_room` measured spikes of
    room their bursts are unrestricted; with less they end lower in proportion, at the lease with `low_floor_room`.
    Devices that are stopped abruptly accumulate work, and start all of it together when there is room again.

    lease_w: shape (devices,), lease of each device from now on.
    """
    tree, rules = plant.tree, plant.rules
    open_w = np.where(plant.bursts, tree.table.devices.max_w, lease_w)
    alone = demand.alternates & (seen.phase != PHASE_IDLE) & plant.bursts
    room = (seen.budget_w - seen.drawn_w) / np.maximum(spikes.spike_w, MEANT_W)
    if spikes.window:  # each measure is valid on its own
        room = np.maximum(room, (seen.budget_w - spikes.window[-1][2]) / np.maximum(spikes.excess_w, MEANT_W))
    none = np.where(tree.below_first, rules.low_floor_room, rules.floor_room)
    whole = np.where(tree.below_first, rules.low_bursts_room, rules.bursts_room)
    share = np.clip((tree.least(room) - none) / (whole - none), 0.0, 1.0)
    claims_w = np.maximum(seen.draw_w, lease_w)
    left_w = seen.budget_w - seen.drawn_w + tree.drawn(np.where(alone, 0.0, seen.draw_w))
    left_w = left_w - tree.at_worst(np.where(alone, 0.0, claims_w))
    rise_w = np.where(alone, 0.0, np.maximum(open_w - claims_w, 0.0))
    for rank in range(int(tree.rank.max(initial=0)) + 1):
        own = (tree.rank == rank) & ~alone
        asked_w = tree.at_worst(np.where(own, rise_w, 0.0))
        fits = np.clip(left_w / np.maximum(asked_w, MEANT_W), 0.0, 1.0)
        share = np.where(own, tree.least(fits), share)
        left_w = left_w - asked_w * fits
    to_w: FloatArray = lease_w + share * (open_w - lease_w)
    return to_w
