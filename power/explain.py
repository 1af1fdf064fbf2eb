"""Why a device's cap is what it is: what holds it back, for whom, since when, and what that costs."""

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.plans import Reason
from power.allocator import Allocator, AllocatorState
from power.curves import speed_of
from power.estimator import FAULT_WORDS, FAULTS, FINE


def reason_of_cap(allocator: Allocator, state: AllocatorState, device: int, phase: int) -> Reason:
    """The reason of the newest grant of a device, with its figures.

    phase: PHASE_… of its work, for the price. The price is what its type's curve says, not a measurement.
    """
    tree, book = allocator.tree, state.book
    devices, cap_w, need_w = tree.table.devices, float(book.cap_w[device]), float(state.need_w[device])
    figures = {"cap_w": cap_w, "need_w": need_w, "held_w": float(state.estimate.held_w[device])}
    figures["since_s"] = float(book.granted_at_s[device])
    fault = int(state.estimate.fault[device])
    if not devices.managed[device]:
        return Reason("OptedOut", "it is not under management: its limit is never touched", figures)
    if fault:
        return Reason(FAULTS[fault], f"it {FAULT_WORDS[fault]}", figures)
    if cap_w >= devices.max_w[device]:
        return Reason("NotCapped", "its cap is its highest limit", figures)
    if cap_w >= need_w - 1.0:
        return Reason(
            "HasItsNeed", f"it needs {need_w:.0f} W; what is above that is lent where it may be needed", figures
        )
    figures["speed"] = speed_at(allocator, device, phase, cap_w, need_w)
    gone = 1 - figures["speed"]
    name = tree.table.classes[int(devices.power_class[device])].name
    short = _tightest(allocator, state, device)
    at_floor = " and is at its useful floor" if cap_w <= devices.floor_w[device] + 1.0 else ""
    words = (
        f"{short} cannot carry all needs: class {name} gives up {need_w - cap_w:.0f} W here, about {gone:.0%} of speed"
    )
    return Reason("BudgetShort", f"{words}{at_floor}", figures)


def speed_at(allocator: Allocator, device: int, phase: int, cap_w: float, need_w: float) -> float:
    """Speed under a cap relative to that with all that is needed, by the curve of the device's type."""
    table = allocator.tree.table
    most_w = float(table.devices.max_w[device])
    curve = speed_of(table.speeds, table.gpu_types[int(table.devices.gpu_type[device])], phase)
    at_cap, at_need = np.interp([cap_w / most_w, need_w / most_w], curve.cap_share, curve.speed).tolist()
    return min(1.0, at_cap / at_need)


def held_back(allocator: Allocator, state: AllocatorState) -> BoolArray:
    """Which devices would draw more if they were let: managed, without fault, capped below what they need.

    Shape (devices,); those whose reason is BudgetShort.
    """
    devices, book = allocator.tree.table.devices, state.book
    fine = devices.managed & (state.estimate.fault == FINE)
    held: BoolArray = fine & (book.cap_w < devices.max_w) & (book.cap_w < state.need_w - 1.0)
    return held


def tightest(allocator: Allocator, state: AllocatorState) -> IntArray:
    """For each device, shape (devices,), the limit above it of which the largest part is granted; -1: none is."""
    tree = allocator.tree
    held_w = np.where(tree.table.devices.managed, state.estimate.held_w, 0.0)
    used = (allocator.fixed_w + tree.through(tree.burden * held_w)) / tree.budget_w
    # Of several writes to one place the last one stays: that of the fullest limit, the first of equals.
    order = np.lexsort((-tree.path_limit, used[tree.path_limit]))
    found = np.full(tree.devices, -1)
    found[tree.path_device[order]] = tree.path_limit[order]
    return found


def _tightest(allocator: Allocator, state: AllocatorState, device: int) -> str:
    limit = int(tightest(allocator, state)[device])
    names = allocator.tree.table.domains.names
    return names[int(allocator.tree.limit[limit])] if limit >= 0 else "no domain"
