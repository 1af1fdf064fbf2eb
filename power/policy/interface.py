"""Between policy and safety: what the policy may know, and what it wants; the safety layer grants or trims it."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, any_of
from power.rules import MEANT_W, PowerRules
from power.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Plant:
    """Constant data: the tree, the settings, and what no lease governs."""

    tree: Tree
    rules: PowerRules
    fixed_w: FloatArray
    """Power that no lease governs, shape (limits,): servers apart from their devices, and devices that opted out."""
    bursts: BoolArray
    """Devices whose leases may allow bursts above them, shape (devices,)."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyInput:
    """What the safety layer believes at this step; shape (devices,) unless stated otherwise."""

    for_s: float
    """Time since the previous step; 0 at the first."""
    draw_w: FloatArray
    """Believed draw: the reading, else the worst case of what the device may hold."""
    shown_w: FloatArray
    """The reading, believed or not."""
    phase: IntArray
    """Phase of work as reported: PHASE_…"""
    limit_w: FloatArray
    """Limit in force: the one reported, as far as it may be held."""
    lease_w: FloatArray
    """Newest grant."""
    shows: BoolArray
    """Whether the newest grant is old enough to show in the reading."""
    governed: BoolArray
    """Devices that a new grant may govern: managed, heard from, and not seen to exceed their limits."""
    base_w: FloatArray
    """Lowest cap that the device would keep; more than its lowest limit where it clamps."""
    free_w: FloatArray
    """What governed devices together may be granted, in watts at each limit; shape (limits,)."""
    drawn_w: FloatArray
    """Draw through each limit, everything else at its worst case; shape (limits,)."""
    budget_w: FloatArray
    """Shape (limits,)."""
    is_clean: bool
    """Whether every reading is believed and every device obeys."""
    slowed: BoolArray | None
    """Devices whose draw a hardware brake holds down; None while none does."""


@dataclass(frozen=True, slots=True, eq=False)
class Wants:
    """What the policy wants; shape (devices,) each."""

    cap_w: FloatArray
    """Caps to move to now."""
    burst_to_w: FloatArray
    """Highest limit of bursts that begin now."""


def floors_first_w(tree: Tree, wanted_w: FloatArray, before_w: FloatArray, cap_w: FloatArray) -> FloatArray:
    """Caps in which no device rises above its useful floor while a higher class below the same limit waits for its
    floor, watts, shape (devices,); never above `cap_w`.

    before_w: caps of the last step, which nothing here lowers. A device of which less than its floor is wanted, because
    it has no work, waits for nothing.
    """
    devices = tree.table.devices
    waits = (cap_w < np.minimum(devices.floor_w, wanted_w) - MEANT_W) & devices.managed
    rises = cap_w > before_w
    if not any_of(waits) or not any_of(rises):
        return cap_w
    first = np.full(tree.limits, np.iinfo(np.int64).max)
    waiting = waits[tree.path_device]
    np.minimum.at(first, tree.path_limit[waiting], tree.rank[tree.path_device[waiting]])
    ahead = np.full(tree.devices, np.iinfo(np.int64).max)
    np.minimum.at(ahead, tree.path_device, first[tree.path_limit])
    held_back = rises & (ahead < tree.rank)
    return np.where(held_back, np.minimum(cap_w, np.maximum(devices.floor_w, before_w)), cap_w)
