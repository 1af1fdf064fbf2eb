"""Demand: what each device would draw without its cap, as far as its draws show it."""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN
from power.policy.interface import Plant, Seen

_REST_SHARE = 0.25
"""Highest idle draw as a fraction of the highest limit: A100 and H100 idle at 0.08 to 0.2 of it."""
_REST_MEMORY_S = 3600.0
"""Time constant with which the lowest idle draw is forgotten: one wrong reading must not stay for ever."""
_RESTS_SHARE = 1.3
"""Multiple of its idle draw above which a device was not idle all the time since the last reading."""
_PROMPTS_MEMORY_S = 120.0
"""Time constant of the fraction of prompts: many requests at one at a time, of which a twentieth to a tenth is
prompt."""
_ALTERNATES_SHARE = 0.25
"""Fraction of prompts from which phases count as alternating: it is a third to a half with continuous batching."""


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What is known of each device's demand; shape (devices,) each."""

    need_w: FloatArray
    """What it would draw without its cap, with its margin; between its floor and its highest limit."""
    usual_w: FloatArray
    """What it needed lately in token generation; where phases are not known, while it worked."""
    mean_w: FloatArray
    """Draw smoothed over some seconds; negative before the first reading."""
    rest_w: FloatArray
    """Draw while idle: the lowest read at rest, slowly forgotten. Types differ by a factor of two."""
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


def no_demand(plant: Plant) -> Demand:
    devices = plant.tree.table.devices
    nothing, phase = np.zeros(len(devices)), np.full(len(devices), PHASE_UNKNOWN)
    return Demand(devices.max_w, devices.floor_w, nothing - 1.0, _REST_SHARE * devices.max_w, nothing, phase)


def observed(plant: Plant, demand: Demand, seen: Seen) -> Demand:
    """The demand with its means and phases brought up to date; a first reading is its own mean.

    A draw that no device can have counts as the highest limit: one broken reading must not stay in the mean for ever.
    A server that handles one request at a time is in its prompt for a second or two and generates tokens for a minute.
    Continuous batching alternates several times a second, so the phase of a reading tells nothing there. A device that
    is idle now but drew more since the previous reading did work, and counts as in a prompt, which may be next.
    """
    most_w, for_s = plant.tree.table.devices.max_w, max(seen.for_s, 0.0)
    draw_w = np.fmax(np.fmin(seen.shown_w, most_w), 0.0)
    part = 1 - exp(-for_s / plant.rules.mean_s)
    mean_w = np.where(demand.mean_w < 0, draw_w, demand.mean_w + part * (draw_w - demand.mean_w))
    rests = seen.phase == PHASE_IDLE
    rest_w = np.minimum(demand.rest_w * exp(min(for_s / _REST_MEMORY_S, 1.0)), _REST_SHARE * most_w)
    believed = seen.draw_w == seen.shown_w  # 0 W of a broken meter would stay for ever
    rest_w = np.where(rests & believed, np.fmin(rest_w, draw_w), rest_w)
    part = 1 - exp(-for_s / _PROMPTS_MEMORY_S) if for_s < _PROMPTS_MEMORY_S else 0.0
    prompts = demand.prompts + np.where(rests, 0.0, part) * ((seen.phase == PHASE_COMPUTE_BOUND) - demand.prompts)
    phase = np.where(rests & (draw_w > _RESTS_SHARE * rest_w), PHASE_COMPUTE_BOUND, seen.phase)
    phase = np.where((prompts >= _ALTERNATES_SHARE) & (phase != PHASE_IDLE), PHASE_UNKNOWN, phase)
    return Demand(demand.need_w, demand.usual_w, mean_w, rest_w, prompts, phase)


def needed(plant: Plant, demand: Demand, seen: Seen, for_s: float) -> Demand:
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
    return Demand(need_w, usual_w, demand.mean_w, demand.rest_w, demand.prompts, demand.phase)
