"""Memory ledger of a node: what agents and their tool calls may hold, and what is left for others."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One agent with its tool calls."""

    name: str
    budget_bytes: int
    """Most that the agent and its calls may hold together: its container's limit."""
    priority: int = 0
    """Higher outranks lower."""
    guaranteed_bytes: int = 0
    """Memory that is kept for this sandbox, used or not, as far as the node has it beside all agents."""
    agent_bytes: int = 0
    """Memory reserved for the agent's own processes; it follows their use, above the floor."""
    agent_floor_bytes: int = 0
    """Memory declared for the agent's own processes."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Memory of one tool call."""

    call: str
    sandbox: str
    lease_bytes: int
    """What it may hold: its memory.high. Its claim, and more where it passed that while memory was free."""


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Reservations against a node's budget. Every change returns another ledger."""

    budget_bytes: int
    sandboxes: Mapping[str, Sandbox] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)

    def held_bytes(self, sandbox: str) -> int:
        """Memory that the agent and its calls may hold now."""
        leases = sum(kept.lease_bytes for kept in self.reservations.values() if kept.sandbox == sandbox)
        return self.sandboxes[sandbox].agent_bytes + leases

    def guarantees(self) -> dict[str, int]:
        """Memory that is kept for each sandbox, the highest priority first.

        What the agents themselves hold comes before: memory that is kept for a tool call is no reason to end an agent.
        """
        room = max(0, self.budget_bytes - sum(sandbox.agent_bytes for sandbox in self.sandboxes.values()))
        kept: dict[str, int] = {}
        for sandbox in sorted(self.sandboxes.values(), key=lambda each: (-each.priority, each.name)):
            for_calls = min(room, max(0, sandbox.guaranteed_bytes - sandbox.agent_bytes))
            kept[sandbox.name] = sandbox.agent_bytes + for_calls
            room -= for_calls
        return kept

    def held(self) -> dict[str, int]:
        """Memory that each agent and its calls may hold now."""
        held = {name: sandbox.agent_bytes for name, sandbox in self.sandboxes.items()}
        for kept in self.reservations.values():
            held[kept.sandbox] += kept.lease_bytes
        return held

    def reserved_bytes(self) -> int:
        """Memory that is not free: leases and agents, or the guarantee where that is more."""
        held, guaranteed = self.held(), self.guarantees()
        return sum(max(held[name], guaranteed[name]) for name in held)

    @property
    def free_bytes(self) -> int:
        """Memory that no sandbox may take without a larger lease; negative where agents outgrew the budget."""
        return self.budget_bytes - self.reserved_bytes()

    def free_for(self, sandbox: str) -> int:
        """Memory that could be leased to the sandbox's calls: within its own budget, its guarantee and the node."""
        held = self.held_bytes(sandbox)
        kept = max(0, self.guarantees()[sandbox] - held)
        return min(self.sandboxes[sandbox].budget_bytes - held, max(0, self.free_bytes) + kept)

    def fits(self, sandbox: str) -> bool:
        """Whether the node's budget holds, and that of the sandbox where it has calls."""
        has_calls = any(kept.sandbox == sandbox for kept in self.reservations.values())
        within = self.held_bytes(sandbox) <= self.sandboxes[sandbox].budget_bytes
        return self.free_bytes >= 0 and (within or not has_calls)

    def with_sandbox(self, sandbox: Sandbox) -> "MemoryLedger":
        return replace(self, sandboxes={**self.sandboxes, sandbox.name: sandbox})

    def without_sandbox(self, name: str) -> "MemoryLedger":
        """The ledger without the sandbox and its calls."""
        return replace(
            self,
            sandboxes={key: kept for key, kept in self.sandboxes.items() if key != name},
            reservations={key: kept for key, kept in self.reservations.items() if kept.sandbox != name},
        )

    def with_agent(self, sandbox: str, agent_bytes: int) -> "MemoryLedger":
        return self.with_sandbox(replace(self.sandboxes[sandbox], agent_bytes=agent_bytes))

    def with_reservation(self, reservation: Reservation) -> "MemoryLedger":
        return replace(self, reservations={**self.reservations, reservation.call: reservation})

    def with_lease(self, call: str, lease_bytes: int) -> "MemoryLedger":
        return self.with_reservation(replace(self.reservations[call], lease_bytes=lease_bytes))

    def without_calls(self, calls: Collection[str]) -> "MemoryLedger":
        return replace(self, reservations={key: kept for key, kept in self.reservations.items() if key not in calls})
