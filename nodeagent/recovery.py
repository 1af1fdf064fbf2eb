"""Recovery of an agent at its start: its devices, their original limits, and the lease of its previous session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from nodeagent.state_file import Record, newest_epoch_in
from power.devices.backend import DeviceError, DeviceFacts, DeviceReading, original_limit_of
from power.leases.holder import DeviceLimits, Holder

log = structlog.get_logger(__name__)
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


@dataclass(frozen=True, slots=True)
class Session:
    """One session of an agent: of which node, and since which start of its machine."""

    node: str
    life: str
    """Name of the session, never used before."""
    boot: str
    """Identifies this start of the machine."""


def record_at_start(
    known: Record,
    facts: Sequence[DeviceFacts],
    found: Mapping[str, DeviceReading | DeviceError],
    rules: AgentRules,
    session: Session,
) -> Record:
    """The record to resume with.

    known: the record on disk. facts, found: the devices as they are now. session: a new one; that on disk is resumed
    when it is of this start of the machine and has the same devices.
    """
    named = {each.uuid for each in facts} if rules.manages is None else rules.manages
    mine = {each.uuid: each for each in facts if each.can_limit and each.uuid in named}
    if unmanaged := sorted({each.uuid for each in facts} - set(mine)):
        log.info("devices read but not limited", devices=unmanaged)
    # Devices that are absent, or no longer managed, still have the limit that we set.
    previous = {uuid: each for uuid, each in known.previous.items() if uuid not in mine}
    devices: dict[str, DeviceLimits] = {}
    lowest_w: dict[str, float] = {}
    for uuid, each in mine.items():
        seen = found.get(uuid)
        limit_w = requested_w = seen.limit_w if isinstance(seen, DeviceReading) else None
        if isinstance(seen, DeviceReading) and seen.requested_w is not None:
            requested_w = seen.requested_w  # what is enforced may be lower for other reasons, and only for a while
        previous[uuid] = original_limit_of(known.previous, each, requested_w)
        safe_w = min(max(rules.floor_share * each.max_w, each.min_w), each.max_w)
        devices[uuid] = DeviceLimits(each.min_w, each.max_w, safe_w, previous[uuid].limit_w)
        lowest_w[uuid] = safe_w if limit_w is None else max(min(safe_w, limit_w), each.min_w)
    before = known.holder if known.holder is not None and known.holder.node == session.node else None
    if before is not None and known.boot == session.boot and set(before.devices) == set(devices):
        return Record(previous, session.boot, replace(before, devices=devices))
    # Without its lease an agent raises nothing: a lower limit may be that of the lease that was lost.
    devices = {uuid: replace(each, safe_w=lowest_w[uuid]) for uuid, each in devices.items()}
    # A controller that was replaced may still run: whoever accepted its successor refuses it, in any session.
    newest = newest_epoch_in(known)
    epoch = newest.epoch if newest is not None and newest.node == session.node else -1
    return Record(previous, session.boot, Holder(session.node, session.life, devices, epoch=epoch))
