"""State of isolation on one node: what runs and waits, the events that change it, the actions that follow, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from isolation.admission import LearnedNeeds
from isolation.ledger import MemoryLedger, Sandbox

Reason = Literal[
    "FITS",
    "WAITS_FOR_MEMORY",
    "WAITS_BEHIND_OLDER",
    "TOO_MANY_CALLS",
    "WAITED_TOO_LONG",
    "ABOVE_SANDBOX_BUDGET",
    "INVALID_HINT",
    "UNKNOWN_SANDBOX",
    "LEASE_GROWN",
    "LEASE_SHRUNK",
    "HIGHER_PRIORITY_NEEDS_MEMORY",
    "AGENT_NEEDS_MEMORY",
    "OUTGREW_CLAIM",
]

ADVICE: dict[Reason, str] = {
    "WAITS_FOR_MEMORY": "wait, or try a smaller run",
    "WAITS_BEHIND_OLDER": "wait: an older call is served first",
    "TOO_MANY_CALLS": "end a call before starting the next",
    "WAITED_TOO_LONG": "try again later, or declare less memory",
    "ABOVE_SANDBOX_BUDGET": "split the work: it cannot fit into this sandbox",
    "INVALID_HINT": "declare memory as bytes, such as 536870912 or 512Mi",
    "OUTGREW_CLAIM": "declare more memory, or split the work",
    "HIGHER_PRIORITY_NEEDS_MEMORY": "try again later",
    "AGENT_NEEDS_MEMORY": "try again with a smaller run",
}
"""Fixed sentences: text of one tenant never reaches another."""


@dataclass(frozen=True, slots=True)
class CallDemand:
    """A tool call that wants to start."""

    call: str
    sandbox: str
    asked_at_s: float
    claim_bytes: int
    """Most that it will hold, declared or learned, within the sandbox's budget."""
    command_class: str = "other:"
    declared: bool = True
    wait_s: float = 300.0
    """Time after which it is refused."""


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A tool call that runs, is frozen, or is ending."""

    request: CallDemand
    priority: int
    started_at_s: float
    used_bytes: int = 0
    peak_bytes: int = 0
    wants_more: bool = False
    """Whether it reached its lease and waits, braked by the kernel."""
    outgrown: bool = False
    """Whether it passed its claim: its protection is lost."""
    frozen: Reason | None = None
    frozen_since_s: float = 0.0
    ending: Reason | None = None
    """Why it was killed; its memory counts until the kernel has it back."""

    @property
    def name(self) -> str:
        return self.request.call


@dataclass(frozen=True, slots=True)
class ArbiterState:
    """All that the next step needs to know. A restart rebuilds the calls and leases from the cgroup tree."""

    ledger: MemoryLedger
    queue: tuple[CallDemand, ...] = ()
    calls: Mapping[str, RunningCall] = field(default_factory=dict)
    agents_want: Mapping[str, int] = field(default_factory=dict)
    """Sandbox → memory that its agent needs beyond its reservation."""
    dying_agents: frozenset[str] = frozenset()
    relieved_at_s: float = float("-inf")
    """When the ladder took its last step."""
    learned: LearnedNeeds = field(default_factory=LearnedNeeds)

    def with_call(self, call: RunningCall) -> "ArbiterState":
        return replace(self, calls={**self.calls, call.name: call})

    def stuck(self) -> frozenset[str]:
        """Calls that wait with their claim used up: nobody may count on their end."""
        return frozenset(name for name, call in self.calls.items() if call.wants_more)


@dataclass(frozen=True, slots=True)
class SandboxStarted:
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class SandboxEnded:
    name: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool call wants to start."""

    request: CallDemand


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The asker of a queued call is gone."""

    call: str


@dataclass(frozen=True, slots=True)
class Found:
    """A call that runs already, as a restart finds it in the tree."""

    request: CallDemand
    lease_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class ReachedLease:
    """The kernel brakes a call at its memory.high."""

    call: str
    used_bytes: int


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


Event = SandboxStarted | SandboxEnded | Asked | Withdrawn | Found | ReachedLease | Ended | Used


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
class Freeze:
    call: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Thaw:
    call: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Kill:
    call: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class KillAgent:
    sandbox: str
    reason: Reason


Action = Admit | Queue | Refuse | SetLease | SetAgentLease | Freeze | Thaw | Kill | KillAgent
