"""Report of a node agent about health: records of the node's pods, and what the host itself shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from cluster.errors import UNREADABLE
from health.records.probes import ProbeAddress, ProbeResult

KIND = "health"
"""Kind of these messages on the agents' link."""
LONGEST_FRAMES = 96 * 1024
"""Bytes of frames in one report; a message of the agents' protocol holds 256 KiB."""
MOST_EVIDENCE = 256
"""Pieces of evidence in one report."""


class Source(StrEnum):
    """Where a node agent found a piece of evidence; none is written by a pod."""

    KERNEL = "kernel"
    NIC = "nic"
    DEVICE = "device"
    PROCESS = "process"
    CGROUP = "cgroup"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact about a node, its devices or the process of a rank, as its agent read it."""

    source: Source
    code: str
    """What was found, in CamelCase: `Xid79`, `LinkDown`, `Throttled`, `Gone`."""
    subject: str
    """Device, NIC or process that it is about."""
    age_s: float
    """Seconds since it was first seen, when the report was made."""
    words: str = ""
    pod: str = ""
    """UID of the pod that it is about; empty for the whole node."""
    rank: int = -1
    speed_share: float = 1.0
    """Speed that a throttle leaves, as a share of full speed."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Message of an agent, several a second while its pods record."""

    node: str
    life: str
    """Session of the agent."""
    sequence: int
    """Number of the report in this session, rising: a repeated one is refused."""
    frames: Mapping[str, bytes] = field(default_factory=dict)
    """Whole frames by the UID of the pod that wrote them, as the kernel names it."""
    evidence: tuple[Evidence, ...] | None = None
    """All that is known now; None: nothing has changed since the last report."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Datagrams that were not forwarded since the agent started, by cause."""
    probes_at: ProbeAddress | None = None
    """Where this agent admits pair probes; None where it takes no part in them."""
    probed: tuple[ProbeResult, ...] = ()
    """Pairs that it measured of late; each is sent several times."""


def packed(report: HealthReport) -> bytes:
    """The report as it is sent."""
    return msgspec.msgpack.encode(report)


def unpacked(body: bytes) -> HealthReport:
    """A report that was received. Raises msgspec.MsgspecError for anything else."""
    try:
        return msgspec.msgpack.decode(body, type=HealthReport)
    except UNREADABLE as error:
        raise msgspec.DecodeError(str(error)) from error
