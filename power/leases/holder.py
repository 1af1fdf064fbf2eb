"""The agent's side of a lease: which leases it accepts, the limits at any instant, and what is restored on exit.

Pure: the caller supplies the clock, which must be monotonic, continue while the process restarts, and start again with
the machine. Whatever happens to the controller or the network, `limits` falls to the safe floor when the lease has
ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TypeVar

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN
from power.devices.backend import DeviceReading
from power.leases.messages import Lease, Refusal
from power.rules import ROUNDING_W
from power.safety.bursts import credit_after

DRIFT_SHARE = 0.001
"""Fraction by which two clocks may differ in speed; the agent ends leases earlier by it (crystals stay below
0.0001)."""


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Limits of a device that an agent knows before any lease."""

    min_w: float
    max_w: float
    safe_w: float
    """Limit without a lease: the useful floor, from the agent's own settings."""
    previous_w: float
    """Limit that was found before Tonnage set one."""


@dataclass(frozen=True, slots=True)
class Holder:
    """State that an agent must keep. It is data: written to disk before a lease takes effect, it survives a restart."""

    node: str
    life: str
    devices: Mapping[str, DeviceLimits]
    epoch: int = -1
    sequence: int = -1
    caps_w: Mapping[str, float] = field(default_factory=dict)
    safe_w: Mapping[str, float] = field(default_factory=dict)
    burst_j: Mapping[str, float] = field(default_factory=dict)
    burst_to_w: Mapping[str, float] = field(default_factory=dict)
    credit_back_s: float = 300.0
    ends_s: float = float("-inf")
    """End of the lease, by the agent's clock."""
    issued_s: float = float("-inf")
    """Instant when the newest accepted lease was issued, by the controller's clock."""


def accepted(holder: Holder, lease: Lease, now_s: float) -> tuple[Holder, Refusal | None]:
    """The holder after this lease, or the unchanged holder with the reason why the lease is refused.

    The caller has verified that the lease was sealed by its controller (`messages.opened`).
    """
    if refusal := _refusal(holder, lease, now_s):
        return holder, refusal
    ends_s = lease.echo_s + lease.for_s * (1 - DRIFT_SHARE)
    if (lease.epoch, lease.sequence) == (holder.epoch, holder.sequence):
        ends_s = max(holder.ends_s, ends_s)
    caps_w = dict(lease.caps_w)
    if lease.only_lower:
        now_w = limits(holder, now_s)
        caps_w = {name: min(cap_w, now_w[name]) for name, cap_w in caps_w.items()}
    made = replace(
        holder,
        epoch=lease.epoch,
        sequence=lease.sequence,
        caps_w=caps_w,
        safe_w=dict(lease.safe_w),
        burst_j=dict(lease.burst_j),
        burst_to_w=dict(lease.burst_to_w),
        credit_back_s=lease.credit_back_s,
        ends_s=ends_s,
        issued_s=max(holder.issued_s, lease.issued_s) if lease.epoch == holder.epoch else lease.issued_s,
    )
    return made, None


def _refusal(holder: Holder, lease: Lease, now_s: float) -> Refusal | None:
    if lease.node != holder.node:
        return Refusal("OtherNode", f"lease is for node {lease.node}")
    if lease.life != holder.life:
        return Refusal("OtherLife", "lease answers a report from before this agent lost its record")
    if lease.epoch < holder.epoch:
        return Refusal("StaleEpoch", f"lease has epoch {lease.epoch}, the current leader has {holder.epoch}")
    if lease.epoch == holder.epoch and lease.sequence < holder.sequence:
        return Refusal("Replayed", f"lease has sequence {lease.sequence}, {holder.sequence} was accepted before")
    if not lease.echo_s <= now_s:
        return Refusal("FromTheFuture", "lease answers a report that was not sent yet")
    if not now_s < lease.echo_s + lease.for_s * (1 - DRIFT_SHARE):
        return Refusal("Expired", f"lease ended before it arrived, {now_s - lease.echo_s:.1f} s after its report")
    known, named = set(holder.devices), set(lease.caps_w)
    if not named <= known or named != set(lease.safe_w) or not set(lease.burst_j) <= named:
        return Refusal("OtherDevices", f"lease names {sorted(named ^ known) or sorted(set(lease.safe_w) ^ named)}")
    if not set(lease.burst_to_w) <= named:
        return Refusal("OtherDevices", f"lease limits bursts of unknown {sorted(set(lease.burst_to_w) - named)}")
    if not (isfinite(lease.credit_back_s) and lease.credit_back_s > 0):
        return Refusal("OutOfRange", f"credit_back_s of {lease.credit_back_s:g} s is not a positive number")
    for name, cap_w in lease.caps_w.items():
        device = holder.devices[name]
        if not (device.min_w <= cap_w <= device.max_w and device.min_w <= lease.safe_w[name] <= cap_w):
            return Refusal("OutOfRange", f"{name} accepts {device.min_w:g} to {device.max_w:g} W, not {cap_w:g} W")
        if not (isfinite(lease.burst_j.get(name, 0.0)) and lease.burst_j.get(name, 0.0) >= 0):
            return Refusal("OutOfRange", f"burst of {lease.burst_j[name]:g} J for {name} is not 0 or more")
        if not cap_w <= (burst_to_w := lease.burst_to_w.get(name, cap_w)) < float("inf"):
            return Refusal("OutOfRange", f"burst of {name} to {burst_to_w:g} W does not exceed its cap of {cap_w:g} W")
    return None


def limits(holder: Holder, now_s: float) -> Mapping[str, float]:
    """Limit of each device now, in watts: its cap while the lease lasts, then its safe floor.

    Devices that the lease does not name (they were opted out) keep the limit that was found.
    """
    leased = holder.sequence >= 0
    return {
        name: (
            device.safe_w
            if not leased
            else device.previous_w
            if name not in holder.caps_w
            else holder.caps_w[name]
            if now_s < holder.ends_s
            else min(holder.safe_w[name], holder.caps_w[name])
        )
        for name, device in holder.devices.items()
    }


def bursts(holder: Holder, now_s: float) -> Mapping[str, float]:
    """Energy in joules that each device may draw above its limit now; none without a lease in force."""
    return dict(holder.burst_j) if now_s < holder.ends_s else {}


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
    device that enforces less than requested is limited by something else, and setting it again does not help. But it
    may be on its way to an older request: where that was for more, or it still enforces more, it must get the new one.
    """
    lower, higher = [], []
    for uuid, limit_w in sorted(allowed_w.items()):
        now_w = enforced_w.get(uuid)
        if now_w is None or max(now_w, asked_w.get(uuid, now_w)) > limit_w + ROUNDING_W:
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
