"""Target caps, to be reached once all devices obey: power distributed from the root to the leaves, class by class."""

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, all_of
from power.allocator.state import MEANT_W, Allocator
from power.allocator.uncapped_demand import without_work
from power.allocator.water_filling import pour
from power.domains.tree import Tree
from power.estimation.estimator import OVER_CAP, STALE, Estimate, Trust


def all_needs(
    allocator: Allocator, trust: Trust, seen: Estimate, need_w: FloatArray, phase: IntArray, room_w: FloatArray
) -> FloatArray | None:
    """The result of `targets` where every need fits, without water-filling.

    None where a need may not fit, or where spare room must be distributed too.
    room_w: shape (limits,), what present needs may take.
    """
    tree, base_w = allocator.tree, allocator.appetite.base_w
    if not (allocator.all_burst and trust.clean and seen.clean and allocator.all_managed):
        return None
    wants_w = without_work(allocator, need_w, phase)
    if not all_of(tree.at_worst(wants_w) <= room_w):
        return None
    wants_w = base_w + np.floor((wants_w - base_w) / MEANT_W + 1e-9) * MEANT_W
    return np.minimum(wants_w, allocator.appetite.most_w)


def targets(
    allocator: Allocator,
    trust: Trust,
    seen: Estimate,
    width_w: FloatArray,
    level: IntArray,
    room_w: FloatArray,
    reserve_w: FloatArray,
) -> FloatArray:
    """Target caps, to be reached once all devices obey; shape (devices,).

    The amount by which draws may rise before other devices could be lowered is kept in reserve: present needs leave it
    free.
    """
    tree, appetite = allocator.tree, allocator.appetite
    out = _ungoverned(tree, seen)
    base_w = appetite.base_w
    if not trust.clean:
        base_w = np.maximum(base_w, trust.least_w)
        width_w = _above(width_w, base_w - appetite.base_w)
    lowest_w = base_w
    if out.any():
        width_w = np.where(out[:, None], 0.0, width_w)
        base_w = np.where(out, np.where(tree.table.devices.managed, seen.held_w, 0.0), base_w)
    free_w = room_w - tree.at_worst(base_w)
    got_w = pour(allocator.pouring, width_w, level, free_w - allocator.keeps_reserve * reserve_w)
    target_w = np.minimum(lowest_w + np.floor(got_w / MEANT_W + 1e-9) * MEANT_W, appetite.most_w)
    return _kept_apart(allocator, seen, target_w) if out.any() else target_w


def _above(width_w: FloatArray, had_w: FloatArray) -> FloatArray:
    """Remaining width of each device's pieces after the first `had_w` watts of them."""
    end_w = np.maximum(np.cumsum(width_w, axis=1) - had_w[:, None], 0.0)
    return np.diff(end_w, axis=1, prepend=0.0)


def _ungoverned(tree: Tree, seen: Estimate) -> BoolArray:
    """Devices that a new cap may not govern: they count at what they may hold, whatever is granted to them."""
    unmanaged = ~tree.table.devices.managed
    return unmanaged if seen.clean else unmanaged | (seen.fault == STALE) | (seen.fault == OVER_CAP)


def _kept_apart(allocator: Allocator, seen: Estimate, target_w: FloatArray) -> FloatArray:
    """Targets in which ungoverned devices are sent to the safe floor, or left alone when they opted out."""
    tree, appetite = allocator.tree, allocator.appetite
    out = _ungoverned(tree, seen)
    return np.where(out, np.where(tree.table.devices.managed, appetite.floor_w, appetite.most_w), target_w)
