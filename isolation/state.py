"""State of isolation on one node: the ledger, what runs, and what waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isolation.admission.learning import Learned
from isolation.ledger import Ledger
from isolation.reasons import Reason
from isolation.settings import NORMAL_CPU_WEIGHT


@dataclass(frozen=True, slots=True)
class Request:
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

    request: Request
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
    feeds_runner: bool = False
    """Whether another call that runs waits for a pipe that this one holds."""
    reclaimed: bool = False
    cpu_weight: int = NORMAL_CPU_WEIGHT
    ending: Reason | None = None
    """Why it was killed; its memory counts until the kernel has it back."""

    @property
    def name(self) -> str:
        return self.request.call


@dataclass(frozen=True, slots=True)
class State:
    """All that the next step needs to know. A restart rebuilds the calls and leases from the cgroup tree."""

    ledger: Ledger
    queue: tuple[Request, ...] = ()
    calls: Mapping[str, RunningCall] = field(default_factory=dict)
    agents_want: Mapping[str, int] = field(default_factory=dict)
    """Sandbox → memory that its agent needs beyond its reservation."""
    asked: Mapping[str, float] = field(default_factory=dict)
    """Sandbox → when its agent was asked to shrink."""
    dying_agents: frozenset[str] = frozenset()
    read_at_s: float = float("-inf")
    """When the use of all calls was last read."""
    relieved_at_s: float = float("-inf")
    """When the ladder took its last step."""
    learned: Learned = field(default_factory=Learned)

    def with_call(self, call: RunningCall) -> "State":
        return replace(self, calls={**self.calls, call.name: call})

    def stuck(self) -> frozenset[str]:
        """Calls that wait with their claim used up: no order of finishing may count on their end."""
        return frozenset(
            name
            for name, call in self.calls.items()
            if call.wants_more and call.outgrown and self.ledger.reservations[name].need_bytes == 0
        )
