"""Actions of isolation: what is done to a tool call or an agent, each with its reason code."""

from dataclasses import dataclass

from isolation.reasons import Reason


@dataclass(frozen=True, slots=True)
class Admit:
    call: str
    sandbox: str
    lease_bytes: int
    reason: Reason = "FITS"


@dataclass(frozen=True, slots=True)
class Queue:
    call: str
    retry_after_s: float
    """Expected time until it is admitted."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refuse:
    call: str
    retry_after_s: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class SetLease:
    """Another memory.high of a call."""

    call: str
    lease_bytes: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class SetAgentLease:
    sandbox: str
    lease_bytes: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class SetCpuWeight:
    call: str
    weight: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Freeze:
    call: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Thaw:
    call: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Reclaim:
    call: str
    reclaim_bytes: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class AskToShrink:
    sandbox: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Kill:
    call: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class KillAgent:
    sandbox: str
    reason: Reason


Action = (
    Admit
    | Queue
    | Refuse
    | SetLease
    | SetAgentLease
    | SetCpuWeight
    | Freeze
    | Thaw
    | Reclaim
    | AskToShrink
    | Kill
    | KillAgent
)
