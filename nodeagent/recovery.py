"""Recovery of an agent at its start: its devices, their original limits, and the lease of its previous session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from nodeagent.state_file import Record, heard_in
from power.devices.backend import DeviceError, DeviceFacts, DeviceReading, OriginalLimit, original_limit_of
from power.leases.holder import DeviceLimits, Holder

RESTORE_S = 20.0
"""Time for restoring limits: Kubernetes gives a pod 30 s to end."""


@dataclass(frozen=True, slots=True)
class AgentRules:
    """Behaviour of the agent."""

    period_s: float = 0.5
    """Interval between two readings of the devices, each followed by a report. The draw above a lease is counted at
    readings, so rare readings end bursts late (tests/properties/test_power_bursts.py)."""
    mean_s: float = 1.0
    """Time over which draws are averaged, or one period if that is longer. Energy counters are updated some ten times a
    second: a mean over a second errs by a tenth at most, over half a second by a fifth."""
    floor_share: float = 0.5
    """Floor of devices without a lease, as a fraction of their highest limit (not below their lowest)."""
    manages: frozenset[str] | None = None
    """UUIDs of the devices that may be limited; None: all that can be. Others are only read and reported."""
    bursts: bool = True
    """Whether bursts of leases are used. Not out of band: a limit that takes 40 s to apply cannot end a burst soon
    enough."""
    restore_s: float = RESTORE_S
    """Time for restoring limits; failed devices are tried again until then."""

    def manages_device(self, uuid: str) -> bool:
        return self.manages is None or uuid in self.manages


log = structlog.get_logger(__name__)


def record_at_start(
    known: Record,
    facts: Sequence[DeviceFacts],
    found: Mapping[str, DeviceReading | DeviceError],
    rules: AgentRules,
    *,
    node: str,
    life: str,
    boot: str,
) -> Record:
    """The record to resume with.

    known: the record on disk. facts, found: the devices as they are now. life: name of a new session; the session on
    disk is resumed when it is of this start of the machine and has the same devices.
    """
    mine = {each.uuid: each for each in facts if each.can_limit and rules.manages_device(each.uuid)}
    if unmanaged := sorted({each.uuid for each in facts} - set(mine)):
        log.info("devices read but not limited", devices=unmanaged)
    previous = {
        uuid: original_limit_of(known.previous, each, _requested_w(found.get(uuid))) for uuid, each in mine.items()
    }
    # Devices that are absent, or no longer managed, still have the limit that we set.
    previous = {uuid: each for uuid, each in known.previous.items() if uuid not in mine} | previous
    devices = {uuid: _limits_of(each, previous[uuid], rules.floor_share) for uuid, each in mine.items()}
    before = known.holder if known.holder is not None and known.holder.node == node else None
    if before is not None and known.boot == boot and set(before.devices) == set(devices):
        return Record(previous, boot, replace(before, devices=devices))
    # Without its lease an agent raises nothing: a lower limit may be that of the lease that was lost.
    devices = {uuid: _no_higher(each, _enforced_w(found.get(uuid))) for uuid, each in devices.items()}
    # A controller that was replaced may still run: whoever heard its successor refuses it, also in another session.
    heard = heard_in(known)
    epoch = heard.epoch if heard is not None and heard.node == node else -1
    return Record(previous, boot, Holder(node, life, devices, epoch=epoch))


def _limits_of(facts: DeviceFacts, previous: OriginalLimit, floor_share: float) -> DeviceLimits:
    safe_w = min(max(floor_share * facts.max_w, facts.min_w), facts.max_w)
    return DeviceLimits(facts.min_w, facts.max_w, safe_w, previous.limit_w)


def _no_higher(limits: DeviceLimits, enforced_w: float | None) -> DeviceLimits:
    if enforced_w is None:
        return limits
    return replace(limits, safe_w=max(min(limits.safe_w, enforced_w), limits.min_w))


def _enforced_w(found: DeviceReading | DeviceError | None) -> float | None:
    return found.limit_w if isinstance(found, DeviceReading) else None


def _requested_w(found: DeviceReading | DeviceError | None) -> float | None:
    """The limit that was requested in band; what is enforced may be lower for other reasons, and only for a while."""
    if not isinstance(found, DeviceReading):
        return None
    return found.limit_w if found.requested_w is None else found.requested_w
