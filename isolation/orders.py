"""Orders and reports of isolation between controller and node agents: the sandboxes of a node, and their state.

They travel on the agents' link, signed (power/leases/messages.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from isolation.capability import Level

ORDERS, REPORT = "sandboxes", "sandbox-report"
"""Kinds of the two messages, which are signed with them."""


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
class NodeReport:
    """State of isolation on one node."""

    node: str
    life: str
    """Session of the reporting process: counts begin again with it."""
    level: Level
    why: str
    budget_bytes: int = 0
    reserved_bytes: int = 0
    sandboxes: Mapping[str, SandboxReport] = field(default_factory=dict)
