"""Events: what the kernel and the agents report to isolation."""

from collections.abc import Mapping
from dataclasses import dataclass

from isolation.ledger import Sandbox
from isolation.state import Request


@dataclass(frozen=True, slots=True)
class SandboxStarted:
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class SandboxEnded:
    name: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool call wants to start."""

    request: Request


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The asker of a queued call is gone."""

    call: str


@dataclass(frozen=True, slots=True)
class Found:
    """A call that runs already, as a restart finds it in the tree."""

    request: Request
    lease_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class ReachedLease:
    """The kernel brakes a call at its memory.high."""

    call: str
    used_bytes: int


@dataclass(frozen=True, slots=True)
class FeedsRunner:
    """Whether a call holds a pipe that another running call waits for."""

    call: str
    feeds: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A call's leaf holds no process any more and the kernel has its memory back."""

    call: str
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Used:
    """Readings of memory.current."""

    calls: Mapping[str, int]
    agents: Mapping[str, int]
    complete: bool = True
    """Whether every call was read."""


Event = SandboxStarted | SandboxEnded | Asked | Withdrawn | Found | ReachedLease | FeedsRunner | Ended | Used
