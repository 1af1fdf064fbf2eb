"""Enforcement of a lease: from permitted power to the limits of devices, lowered first, then raised; and its
confirmation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN
from power.devices.backend import DeviceReading
from power.rules import ROUNDING_W
from power.safety.burst_credit import credit_after

R = TypeVar("R")
SHORTEST_MEAN_S = 0.2
"""Shortest interval for a mean from energy counters: they are updated some ten times a second, so shorter ones show
nothing."""
MEMORY_BOUND_SHARE = 0.4
"""Ratio of memory's busy time to that of kernels from which work counts as memory-bound. Token generation reads all
weights for each token and was measured above it, prompts and training below; a wrong guess costs optimality, not
safety."""


@dataclass(frozen=True, slots=True)
class LimitOrder:
    """Limit to set on one device."""

    uuid: str
    limit_w: float


def orders(
    allowed_w: Mapping[str, float], enforced_w: Mapping[str, float], asked_w: Mapping[str, float]
) -> tuple[tuple[LimitOrder, ...], tuple[LimitOrder, ...]]:
    """Limits to lower, and limits that may be raised once all of those have been set.

    allowed_w: permitted limit of each device. enforced_w: limits read back last; a device missing there is set with the
    first group, since its limit may be higher. asked_w: limits that devices report as requested, where they do. A
    device that enforces less than requested is limited by something else, and setting it again does not help. A device
    that still enforces more may be on its way down to an older request, and must get the new one.
    """
    lower, higher = [], []
    for uuid, limit_w in sorted(allowed_w.items()):
        now_w = enforced_w.get(uuid)
        if now_w is None or now_w > limit_w + ROUNDING_W:
            lower.append(LimitOrder(uuid, limit_w))
        elif asked_w.get(uuid, now_w) < limit_w - ROUNDING_W:
            higher.append(LimitOrder(uuid, limit_w))
    return tuple(lower), tuple(higher)


def is_in_force(allowed_w: Mapping[str, float], enforced_w: Mapping[str, float]) -> bool:
    """Whether every device was read back at its limit or below."""
    return all(uuid in enforced_w and enforced_w[uuid] <= limit_w + ROUNDING_W for uuid, limit_w in allowed_w.items())


@dataclass(frozen=True, slots=True)
class Bursting:
    """Burst credit of each device, in joules, and whether it is allowed to burst now."""

    credit_j: Mapping[str, float] = field(default_factory=dict)
    now: Mapping[str, bool] = field(default_factory=dict)


def bursting_after(
    before: Bursting,
    draw_w: Mapping[str, float],
    lease_w: Mapping[str, float],
    burst_j: Mapping[str, float],
    for_s: float,
    credit_back_s: float = 300.0,
) -> Bursting:
    """Credit and permission after `for_s` seconds at this draw. A device new to bursts starts without credit and earns
    it.

    credit_back_s: time in which used credit is restored, from the lease.
    A device whose draw is unknown is charged for its highest possible draw: its credit is used up.
    """
    credit: dict[str, float] = {}
    now: dict[str, bool] = {}
    for uuid, most_j in burst_j.items():
        if uuid not in draw_w:
            credit[uuid], now[uuid] = 0.0, False
            continue
        had = np.array([before.credit_j.get(uuid, 0.0)])
        most = np.array([most_j])
        has = credit_after(had, np.array([draw_w[uuid]]), np.array([lease_w[uuid]]), most, for_s, credit_back_s)
        credit[uuid] = float(has[0])
        now[uuid] = bool(may_burst(has, np.array([before.now.get(uuid, False)]), most)[0])
    return Bursting(credit, now)


def may_burst(credit_j: FloatArray, bursting: BoolArray, burst_j: FloatArray) -> BoolArray:
    """Devices that may draw above their leases now: with credit left or, after running out, with half of it back."""
    return (credit_j > np.where(bursting, 0.0, 0.5 * burst_j)) & (burst_j > 0)


def limits_to_set_w(
    lease_w: Mapping[str, float], highest_w: Mapping[str, float], bursting: Bursting
) -> Mapping[str, float]:
    """Limit to set on each device: its lease, or its highest limit while it may burst."""
    return {uuid: highest_w[uuid] if bursting.now.get(uuid) else limit_w for uuid, limit_w in lease_w.items()}


def phase_of(reading: DeviceReading) -> int:
    """Kind of work that a device seems to do."""
    busy, memory = reading.busy_share, reading.memory_busy_share
    if busy is None:
        return PHASE_UNKNOWN
    if busy == 0.0:
        return PHASE_IDLE
    if memory is None:
        return PHASE_UNKNOWN
    return PHASE_MEMORY_BOUND if memory / busy >= MEMORY_BOUND_SHARE else PHASE_COMPUTE_BOUND


def reading_before(past: Sequence[tuple[float, R]], now_s: float, for_s: float) -> R | None:
    """Reading from which a mean until now begins: the newest that is about `for_s` old, or the oldest that exists.

    past: instants and readings, oldest first.
    """
    old_enough = [each for at_s, each in past if now_s - at_s >= 0.95 * for_s]
    return old_enough[-1] if old_enough else past[0][1] if past else None


def mean_draw_w(before: DeviceReading | None, now: DeviceReading) -> float | None:
    """Mean draw between two readings: from the energy counter where there is one, else as the device reports it.

    The reported draw is also used where a counter ran backwards (after a driver reload) or is implausible.
    """
    if before is None or before.energy_j is None or now.energy_j is None:
        return now.draw_w
    for_s, energy_j = now.at_s - before.at_s, now.energy_j - before.energy_j
    if for_s < SHORTEST_MEAN_S or energy_j < 0:
        return now.draw_w
    return energy_j / for_s
