"""Wants, needs for memory that are not met yet, and the ladder: the next step that makes room for one, gentlest first.

Queueing came before it: the want was not granted. Then the first victim is killed; then the next. Last of all, an agent
of a lower priority. Each step has time to show its effect, in which other calls may end.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from isolation import state as act
from isolation.ledger import MemoryLedger, Reservation
from isolation.settings import Settings

Step = tuple[act.ArbiterState, tuple[act.Action, ...]]


@dataclass(frozen=True, slots=True)
class AgentWant:
    """An agent's own processes need more memory: before the tool calls of the same priority."""

    sandbox: str
    agent_bytes: int
    priority: float

    def granted(self, state: act.ArbiterState) -> MemoryLedger | None:
        """Ledger with the need met; None where that does not fit, or would take from what is kept for another."""
        ledger = state.ledger.with_agent(self.sandbox, self.agent_bytes)
        return ledger if not self.takes_guaranteed(state.ledger) and ledger.fits(self.sandbox) else None

    def exceeds_own(self, ledger: MemoryLedger) -> bool:
        """Whether its sandbox's own budget is short: then only calls of that sandbox can help."""
        held = ledger.with_agent(self.sandbox, self.agent_bytes).held_bytes(self.sandbox)
        return held > ledger.sandboxes[self.sandbox].budget_bytes

    def takes_guaranteed(self, ledger: MemoryLedger) -> bool:
        """Whether it would take from what is kept for another, which the end of no call changes."""
        kept, before = ledger.with_agent(self.sandbox, self.agent_bytes).guarantees(), ledger.guarantees()
        return any(kept[name] < before[name] for name in kept if name != self.sandbox)


@dataclass(frozen=True, slots=True)
class GrowthWant:
    """A running call reached its lease, which was its claim."""

    call: act.RunningCall
    step_bytes: int

    @property
    def sandbox(self) -> str:
        return self.call.request.sandbox

    @property
    def priority(self) -> float:
        return self.call.priority

    def granted(self, state: act.ArbiterState) -> MemoryLedger | None:
        """Ledger with a lease larger by a step or a quarter, or by what is free; None where nothing is."""
        kept = state.ledger.reservations[self.call.name].lease_bytes
        larger = min(kept + state.ledger.free_for(self.sandbox), max(kept + self.step_bytes, kept * 5 // 4))
        ledger = state.ledger.with_lease(self.call.name, larger)
        return ledger if larger > kept and ledger.fits(self.sandbox) else None

    def exceeds_own(self, ledger: MemoryLedger) -> bool:
        return ledger.held_bytes(self.sandbox) >= ledger.sandboxes[self.sandbox].budget_bytes


@dataclass(frozen=True, slots=True)
class StartWant:
    """A call waits in the queue."""

    request: act.CallDemand
    priority: float

    @property
    def sandbox(self) -> str:
        return self.request.sandbox

    def granted(self, state: act.ArbiterState) -> MemoryLedger | None:
        """Ledger with the call, which gets its whole claim; None where that does not fit."""
        lease = Reservation(self.request.call, self.sandbox, self.request.claim_bytes)
        ledger = state.ledger.with_reservation(lease)
        return ledger if ledger.fits(self.sandbox) else None

    def exceeds_own(self, ledger: MemoryLedger) -> bool:
        return ledger.held_bytes(self.sandbox) + self.request.claim_bytes > ledger.sandboxes[self.sandbox].budget_bytes


Want = AgentWant | GrowthWant | StartWant


def running_wants(state: act.ArbiterState, settings: Settings) -> Iterator[AgentWant | GrowthWant]:
    """Wants of agents and of running calls by priority, agents first among equals, then by age."""
    sandboxes = state.ledger.sandboxes
    wants: list[AgentWant | GrowthWant] = [
        AgentWant(name, wanted, sandboxes[name].priority) for name, wanted in sorted(state.agents_want.items())
    ]
    braked = [call for call in state.calls.values() if call.wants_more and call.ending is None]
    braked.sort(key=lambda call: (call.started_at_s, call.name))
    wants += [GrowthWant(call, settings.lease_step_bytes) for call in braked]
    yield from sorted(wants, key=lambda want: -want.priority)


def queued_wants(state: act.ArbiterState) -> Iterator[StartWant]:
    """Wants of queued calls, by priority and time of asking."""
    sandboxes = state.ledger.sandboxes
    for request in sorted(state.queue, key=lambda asked: (-sandboxes[asked.sandbox].priority, asked.asked_at_s)):
        yield StartWant(request, sandboxes[request.sandbox].priority)


def in_victim_order(calls: Iterable[act.RunningCall]) -> list[act.RunningCall]:
    """Lowest priority first; among equals those that passed their claim, then those not declared, then the youngest."""
    return sorted(
        calls, key=lambda call: (call.priority, not call.outgrown, call.request.declared, -call.started_at_s, call.name)
    )


def outranked(state: act.ArbiterState, want: Want) -> list[act.RunningCall]:
    """Calls that make way for the want, first victim first; those that are ending make way already.

    By guarantee, then priority, then kind: no call of another sandbox that holds no more than is guaranteed to it; a
    call's want outranks lower priorities, and its equals that passed their claim; an agent's all of its equals. Where
    a sandbox is short of its own budget, only calls of that sandbox can help.
    """
    kept, held, is_own = state.ledger.guarantees(), state.ledger.held(), want.exceeds_own(state.ledger)
    alive = [
        call
        for call in state.calls.values()
        if call.ending is None
        and (call.request.sandbox == want.sandbox or not is_own)
        and (
            call.request.sandbox == want.sandbox
            or held[call.request.sandbox] > kept[call.request.sandbox]
            or not state.ledger.sandboxes[call.request.sandbox].guaranteed_bytes
        )
    ]
    if isinstance(want, AgentWant):
        if want.takes_guaranteed(state.ledger):
            return []
        return in_victim_order(
            call for call in alive if call.priority <= want.priority or call.request.sandbox == want.sandbox
        )
    own_name = want.call.name if isinstance(want, GrowthWant) else None
    return in_victim_order(
        call
        for call in alive
        if call.priority < want.priority or (call.outgrown and call.priority == want.priority and call.name != own_name)
    )


def agent_victim(state: act.ArbiterState, priority: float) -> str | None:
    """Agent that goes last: none while a tool call lives anywhere, none that is not outranked, lowest first."""
    if state.calls or state.dying_agents:
        return None
    lower = [sandbox for sandbox in state.ledger.sandboxes.values() if sandbox.priority < priority]
    return (
        min(lower, key=lambda sandbox: (sandbox.priority, -sandbox.agent_bytes, sandbox.name)).name if lower else None
    )


def relieve(state: act.ArbiterState, want: Want, now_s: float, settings: Settings) -> Step:
    """The next victim for the want; none while the last one may still show its effect, or holds its memory."""
    if now_s < state.relieved_at_s + settings.settle_s:
        return state, ()
    victims = outranked(state, want)
    reason: act.Reason = "AGENT_NEEDS_MEMORY" if isinstance(want, AgentWant) else "HIGHER_PRIORITY_NEEDS_MEMORY"
    if victims and any(call.ending is not None for call in state.calls.values()):
        return state, ()
    if victims:
        if victims[0].outgrown and victims[0].priority == want.priority and not isinstance(want, AgentWant):
            reason = "OUTGREW_CLAIM"
        return killed(replace(state, relieved_at_s=now_s), victims[0], reason)
    name = agent_victim(state, state.ledger.sandboxes[want.sandbox].priority)
    if name is None:
        return state, ()
    return replace(state, dying_agents=state.dying_agents | {name}), (act.KillAgent(name, reason),)


def killed(state: act.ArbiterState, call: act.RunningCall, reason: act.Reason) -> Step:
    """The state while the call ends: its memory counts until the kernel has it back."""
    return state.with_call(replace(call, ending=reason, wants_more=False)), (act.Kill(call.name, reason),)
