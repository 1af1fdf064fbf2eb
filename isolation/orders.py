"""Orders and reports of isolation between controller and node agents, and the verdict on a tool call that ended.

They travel on the agents' link (power/leases/messages.py). A signal alone says nothing about memory: only the
arbiter's own kill, or the kernel's count of kills in the call's leaf, makes an end an end for memory. A `kill -9` by
the user stays what it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from isolation.state import ADVICE, Reason
from isolation.tree import Level, MemoryEvents

ORDERS, REPORT = "sandboxes", "sandbox-report"
"""Kinds of the two messages."""


@dataclass(frozen=True, slots=True)
class SandboxOrder:
    """One pod's sandbox."""

    container_id: str
    """Of the container with the agent, as in the pod's status."""
    tenant: str
    """Whose calls teach each other their needs: namespace and policy."""
    priority: int = 0
    budget_bytes: int | None = None
    """Most memory of the agent with its calls; None: the container's limit."""
    guaranteed_bytes: int = 0
    agent_bytes: int = 0
    """Memory reserved for the agent's own processes."""


@dataclass(frozen=True, slots=True)
class Orders:
    """All sandboxes of one node."""

    node: str
    epoch: int
    sequence: int
    """Orders of an earlier (epoch, sequence) are refused."""
    sandboxes: Mapping[str, SandboxOrder] = field(default_factory=dict)
    """By the pod's UID."""

    def is_newer_than(self, other: "Orders") -> bool:
        return (self.epoch, self.sequence) > (other.epoch, other.sequence)


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """State of one sandbox."""

    agent_bytes: int = 0
    calls_bytes: int = 0
    """Leases of its running calls."""
    running: int = 0
    queued: int = 0
    frozen: int = 0
    happened: Mapping[str, int] = field(default_factory=dict)
    """`<what>/<reason>`, such as `ToolCallKilled/OUTGREW_CLAIM` → how often in this life of the agent."""
    trouble: str = ""
    """Why the pod is not under control; empty: it is."""


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """State of isolation on one node."""

    node: str
    life: str
    """Session of the reporting process: counts begin again with it."""
    level: Level
    why: str
    budget_bytes: int = 0
    reserved_bytes: int = 0
    sandboxes: Mapping[str, SandboxReport] = field(default_factory=dict)


Outcome = Literal["exited", "signalled", "refused", "killed", "out_of_memory"]


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """What became of a call. The exit code is the program's own, in the shell's form for signals (128 + number)."""

    outcome: Outcome
    exit_code: int | None
    """None: it never started."""
    reason: Reason | None
    peak_bytes: int
    limit_bytes: int | None
    """Lease at its end."""
    retry_after_s: float | None
    advice: str


def refused(reason: Reason, retry_after_s: float) -> CallVerdict:
    """Verdict on a call that was not admitted."""
    again = retry_after_s if retry_after_s > 0 else None
    return CallVerdict("refused", None, reason, 0, None, again, ADVICE.get(reason, ""))


def ended(
    exit_code: int, events: MemoryEvents, killed_for: Reason | None, peak_bytes: int, limit_bytes: int | None
) -> CallVerdict:
    """Verdict on a call that ran.

    exit_code: as subprocess has it, negative for a signal. killed_for: reason of the arbiter's kill, if it was one.
    """
    code = 128 - exit_code if exit_code < 0 else exit_code
    if killed_for is not None:
        return CallVerdict("killed", code, killed_for, peak_bytes, limit_bytes, None, ADVICE.get(killed_for, ""))
    if events.oom_kill > 0:
        advice = ADVICE["OUTGREW_CLAIM"]
        return CallVerdict("out_of_memory", code, "OUTGREW_CLAIM", peak_bytes, limit_bytes, None, advice)
    outcome: Outcome = "signalled" if exit_code < 0 else "exited"
    return CallVerdict(outcome, code, None, peak_bytes, limit_bytes, None, "")
