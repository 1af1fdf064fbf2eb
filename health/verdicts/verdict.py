"""Verdict: the answer about one disturbance of one job."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cluster.arrays import FloatArray


class Syndrome(StrEnum):
    """Kind of a disturbance."""

    COMMUNICATION_HANG = "communication-hang"
    OTHER_HANG = "non-communication-hang"
    COMMUNICATION_SLOW = "communication-slow"
    OTHER_SLOW = "non-communication-slow"
    DEAD_PROCESS = "dead-process"
    NONE = "none"


SLOW = (Syndrome.COMMUNICATION_SLOW, Syndrome.OTHER_SLOW)


class Part(StrEnum):
    """Kind of what is at fault."""

    RANK = "rank"
    """The rank's process or GPU."""
    NODE = "node"
    NIC = "nic"
    LINK = "link"
    """Between two ranks."""
    GROUP = "group"
    """A process group: one of its links, which only a probe can tell."""
    NOTHING = "nothing"


class Cause(StrEnum):
    """Explanation that is no fault of hardware."""

    DATA_IMBALANCE = "data imbalance"
    STAGE_IMBALANCE = "stage imbalance"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    COMPILATION = "compilation"
    ALL_SLOW = "all ranks slow"
    NETWORK_SLOW = "all paths slow"
    POWER_CAP = "own power cap"
    THROTTLED = "own cgroup limit"
    CALL_ORDER = "order of calls differs between ranks"
    OPERATIONS = "operations differ"
    SIZES = "sizes differ"
    TYPES = "types differ"
    UNMATCHED_SEND = "unmatched send"
    QUEUED = "queued, never begun"
    """On the device, which is busy with something else: a program's order of calls, or its own work before it."""
    ENDED = "ended in order"
    STALL = "all ranks stopped computing"
    NO_DEVICE_TIME = "needs device time"
    """Something is slower by the hosts' clocks, which say when operations were queued and not when they ran."""
    NETWORK_SOUND = "network sound"
    """Pair probes found nothing between the suspected nodes."""


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """Exactly one of three: it blames a part, it names a cause that is no hardware, or it asks for a probe."""

    at_s: float
    """Instant of the verdict, the analyser's clock."""
    syndrome: Syndrome
    part: Part
    ranks: tuple[int, ...]
    """Blamed or suspected ranks, rising."""
    since_s: float
    """When the disturbance began, as far as records tell."""
    confidence: float
    """0..1: the evidence's own strength, no frequency of error; `benchmarks.health` measures those."""
    evidence: tuple[str, ...]
    cause: Cause | None = None
    probe: str = ""
    """Probe that would decide; with a part it would narrow the part down."""
    signals: str = "calls and heartbeats"
    """What it rests on: these, `times on the host`, `times on the device`, or `dumps`."""
    program_error: bool = False
    """Whether an exception of the program came before all else, so that a restart may be enough."""

    @property
    def blames(self) -> bool:
        return self.part is not Part.NOTHING

    @property
    def abstains(self) -> bool:
        return self.part is Part.NOTHING and self.cause is None

    @property
    def subject(self) -> tuple[Syndrome, Part, tuple[int, ...], Cause | None]:
        """What makes two verdicts the same."""
        return (self.syndrome, self.part, self.ranks, self.cause)


class FactKind(StrEnum):
    """Kind of a fact; the first two are Tonnage's own doing."""

    POWER_CAP = "power cap"
    CGROUP_LIMIT = "cgroup limit"
    RETRANSMISSIONS = "retransmissions"
    NIC_ERRORS = "NIC errors"
    XID = "GPU error"
    PROCESS_GONE = "process gone"
    PROCESS_STOPPED = "process stopped"


OWN_LIMITS = {FactKind.POWER_CAP: Cause.POWER_CAP, FactKind.CGROUP_LIMIT: Cause.THROTTLED}
NETWORK = (FactKind.RETRANSMISSIONS, FactKind.NIC_ERRORS)


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact about one rank's devices or process, true since an instant."""

    kind: FactKind
    rank: int
    since_s: float
    speed_share: float = 1.0
    """Speed that a limit leaves, as a share of full speed."""
    peer: int = -1
    """The other rank of retransmissions; -1 for all."""


def expected_speed(facts: Sequence[Fact], ranks: int, now_s: float) -> FloatArray:
    """Shape (ranks,): speed that Tonnage's own limits leave each rank."""
    share = np.ones(ranks)
    for fact in facts:
        if fact.kind in OWN_LIMITS and fact.since_s <= now_s:
            share[fact.rank] = min(share[fact.rank], fact.speed_share)
    return share
