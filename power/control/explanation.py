"""Explanation of a device's cap: whether it is held back, which domain is short, and what that costs in speed."""

import numpy as np

from cluster.arrays import BoolArray, IntArray
from power.control.speed_curves import speed_of
from power.control.state import Allocator, AllocatorState
from power.safety.estimator import FINE


def speed_at(allocator: Allocator, device: int, phase: int, cap_w: float, need_w: float) -> float:
    """Speed under a cap relative to the speed with all the power needed, from the curve of the device's type."""
    table = allocator.tree.table
    most_w = float(table.devices.max_w[device])
    curve = speed_of(table.speeds, table.gpu_types[int(table.devices.gpu_type[device])], phase)
    at_cap, at_need = np.interp([cap_w / most_w, need_w / most_w], curve.cap_share, curve.speed).tolist()
    return min(1.0, at_cap / at_need)


def held_back(allocator: Allocator, state: AllocatorState) -> BoolArray:
    """Devices that would draw more without their caps: managed, without fault, capped below their need.

    Shape (devices,).
    """
    devices, book = allocator.tree.table.devices, state.book
    fine = devices.managed & (state.estimate.fault == FINE)
    held: BoolArray = fine & (book.cap_w < devices.max_w) & (book.cap_w < state.need_w - 1.0)
    return held


def tightest(allocator: Allocator, state: AllocatorState) -> IntArray:
    """Tightest limit of each device, shape (devices,): the one above it with the largest fraction granted; -1: none."""
    tree = allocator.tree
    held_w = np.where(tree.table.devices.managed, state.estimate.held_w, 0.0)
    used = (allocator.fixed_w + tree.through(tree.burden * held_w)) / tree.budget_w
    # The last of several writes to one place stays: that of the fullest limit, the first among equals.
    order = np.lexsort((-tree.path_limit, used[tree.path_limit]))
    found = np.full(tree.devices, -1)
    found[tree.path_device[order]] = tree.path_limit[order]
    return found
