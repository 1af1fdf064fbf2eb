"""Wants: needs for memory that are not met yet, in the order in which they are served."""

from collections.abc import Iterator
from dataclasses import dataclass

from isolation.admission.safe_state import is_safe
from isolation.ledger import Ledger, Reservation
from isolation.settings import Settings
from isolation.state import Request, RunningCall, State


@dataclass(frozen=True, slots=True)
class AgentWant:
    """An agent's own processes need more memory: before every tool call."""

    sandbox: str
    agent_bytes: int

    priority = float("inf")

    def granted(self, state: State) -> Ledger | None:
        """Ledger with the need met; None where that would not be safe."""
        ledger = state.ledger.with_agent(self.sandbox, self.agent_bytes)
        return ledger if is_safe(ledger, stuck=state.stuck()) else None


@dataclass(frozen=True, slots=True)
class GrowthWant:
    """A running call reached its lease."""

    call: RunningCall
    step_bytes: int

    @property
    def sandbox(self) -> str:
        return self.call.request.sandbox

    @property
    def priority(self) -> float:
        return self.call.priority

    def granted(self, state: State) -> Ledger | None:
        """Ledger with a larger lease, the largest of three that is safe; None where none is.

        The whole claim is given while it takes at most half of what is free: fewer wake-ups, and others find room.
        """
        kept = state.ledger.reservations[self.call.name]
        free = state.ledger.free_for(self.sandbox)
        sizes = [kept.lease_bytes + self.step_bytes, 2 * kept.lease_bytes]
        if kept.need_bytes <= free // 2:
            sizes.append(kept.claim_bytes)
        stuck = state.stuck() - {self.call.name}
        for lease in sorted({min(size, kept.claim_bytes) for size in sizes}, reverse=True):
            if lease > kept.lease_bytes:
                ledger = state.ledger.with_lease(self.call.name, lease)
                if is_safe(ledger, stuck=stuck):
                    return ledger
        return None


@dataclass(frozen=True, slots=True)
class StartWant:
    """A call waits in the queue."""

    request: Request
    priority: float
    first_lease_bytes: int

    @property
    def sandbox(self) -> str:
        return self.request.sandbox

    def granted(self, state: State) -> Ledger | None:
        """Ledger with the call; None where some admitted call could not finish any more.

        The whole claim is given at once to what outranks others, and while it takes at most half of what is free: a
        call that meets the brake stalls for tens of milliseconds, however fast the answer is.
        """
        claim = self.request.claim_bytes
        leases = [min(claim, self.first_lease_bytes)]
        outranks = any(other.priority < self.priority for other in state.ledger.sandboxes.values())
        if outranks or claim <= state.ledger.free_for(self.sandbox) // 2:
            leases.insert(0, claim)
        for lease in leases:
            ledger = state.ledger.with_reservation(Reservation(self.request.call, self.sandbox, claim, lease))
            if is_safe(ledger, stuck=state.stuck()):
                return ledger
        return None


Want = AgentWant | GrowthWant | StartWant


def running_wants(state: State, settings: Settings) -> Iterator[AgentWant | GrowthWant]:
    """Wants of agents, then of running calls by priority and age."""
    for sandbox, agent_bytes in sorted(state.agents_want.items()):
        yield AgentWant(sandbox, agent_bytes)
    braked = [call for call in state.calls.values() if call.wants_more and call.ending is None]
    for call in sorted(braked, key=lambda call: (-call.priority, call.started_at_s, call.name)):
        yield GrowthWant(call, settings.lease_step_bytes)


def queued_wants(state: State, settings: Settings) -> Iterator[StartWant]:
    """Wants of queued calls, by priority and time of asking."""
    sandboxes = state.ledger.sandboxes
    for request in sorted(state.queue, key=lambda asked: (-sandboxes[asked.sandbox].priority, asked.asked_at_s)):
        first = settings.start_lease_bytes if settings.leases == "growing" else request.claim_bytes
        yield StartWant(request, sandboxes[request.sandbox].priority, first)
