"""Why a device's cap is what it is: what holds it back, for whom, since when, and what that costs."""

import numpy as np

from cluster.plans import Reason
from power.allocator import Allocator, AllocatorState
from power.curves import speed_of
from power.estimator import FAULT_WORDS, FAULTS


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


def _tightest(allocator: Allocator, state: AllocatorState, device: int) -> str:
    """The limit above the device of which the largest part is granted."""
    tree = allocator.tree
    held_w = np.where(tree.table.devices.managed, state.estimate.held_w, 0.0)
    used = (allocator.fixed_w + tree.through(tree.burden * held_w)) / tree.budget_w
    mine = tree.path_limit[tree.path_device == device]
    return tree.table.domains.names[int(tree.limit[mine[int(np.argmax(used[mine]))]])] if len(mine) else "no domain"
