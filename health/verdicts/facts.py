"""Facts from outside the job: what Tonnage itself limits, and what node agents read from devices and hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cluster.arrays import FloatArray


class FactKind(StrEnum):
    """Kind of a fact; the first two are Tonnage's own doing."""

    POWER_CAP = "power cap"
    CGROUP_LIMIT = "cgroup limit"
    RETRANSMISSIONS = "retransmissions"
    NIC_ERRORS = "NIC errors"
    XID = "GPU error"
    PROCESS_GONE = "process gone"
    PROCESS_STOPPED = "process stopped"


OWN_LIMITS = (FactKind.POWER_CAP, FactKind.CGROUP_LIMIT)
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
