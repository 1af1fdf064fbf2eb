"""The agent's side of a lease: which leases it accepts, the limits at any instant, and what is restored on exit.

Pure: the caller supplies the clock, which must be monotonic, continue while the process restarts, and start again with
the machine. Whatever happens to the controller or the network, `limits` falls to the safe floor when the lease has
ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from power.leases.messages import Lease, Refusal

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
    return _unfit(holder, lease)


def _unfit(holder: Holder, lease: Lease) -> Refusal | None:
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
