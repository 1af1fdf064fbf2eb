"""Wants, needs for memory that are not met yet, and the ladder: the next step that makes room for one, gentlest first.

Queueing came before it: the want was not granted. Then leases shrink to what is used. Then the first victim is
frozen, what it holds is reclaimed, and the call is killed; then the next victim. Last of all, an agent of a lower
priority. Each step has time to show its effect, in which other calls may end: the victim then goes on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from isolation import state as act
from isolation.admission import is_safe
from isolation.ledger import MemoryLedger, Reservation
from isolation.settings import Rung, Settings

Step = tuple[act.ArbiterState, tuple[act.Action, ...]]


@dataclass(frozen=True, slots=True)
class AgentWant:
    """An agent's own processes need more memory: before the tool calls of the same priority."""

    sandbox: str
    agent_bytes: int
    priority: float

    def granted(self, state: act.ArbiterState) -> MemoryLedger | None:
        """Ledger with the need met; None where that would not be safe, or take from what is kept for another."""
        ledger = state.ledger.with_agent(self.sandbox, self.agent_bytes)
        kept, before = ledger.guarantees(), state.ledger.guarantees()
        takes = any(kept[name] < before[name] for name in kept if name != self.sandbox)
        return ledger if not takes and is_safe(ledger, stuck=state.stuck()) else None


@dataclass(frozen=True, slots=True)
class GrowthWant:
    """A running call reached its lease."""

    call: act.RunningCall
    step_bytes: int

    @property
    def sandbox(self) -> str:
        return self.call.request.sandbox

    @property
    def priority(self) -> float:
        return self.call.priority

    def granted(self, state: act.ArbiterState) -> MemoryLedger | None:
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

    request: act.CallDemand
    priority: float
    first_lease_bytes: int

    @property
    def sandbox(self) -> str:
        return self.request.sandbox

    def granted(self, state: act.ArbiterState) -> MemoryLedger | None:
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


def queued_wants(state: act.ArbiterState, settings: Settings) -> Iterator[StartWant]:
    """Wants of queued calls, by priority and time of asking."""
    sandboxes = state.ledger.sandboxes
    for request in sorted(state.queue, key=lambda asked: (-sandboxes[asked.sandbox].priority, asked.asked_at_s)):
        first = settings.start_lease_bytes if settings.leases == "growing" else request.claim_bytes
        yield StartWant(request, sandboxes[request.sandbox].priority, first)


def in_victim_order(calls: Iterable[act.RunningCall]) -> list[act.RunningCall]:
    """Lowest priority first; among equals those that passed their claim, then those not declared, then the youngest."""
    return sorted(
        calls, key=lambda call: (call.priority, not call.outgrown, call.request.declared, -call.started_at_s, call.name)
    )


def outranked(state: act.ArbiterState, want: Want) -> list[act.RunningCall]:
    """Calls that make way for the want, first victim first; those that are ending make way already.

    By guarantee, then priority, then kind: no call of another sandbox that holds no more than is guaranteed to it; a
    call's want outranks lower priorities, and its equals that passed their claim; an agent's all of its equals. Where
    an agent's sandbox is short of its own budget, only calls of that sandbox can help.
    """
    kept = state.ledger.guarantees()
    alive = [
        call
        for call in state.calls.values()
        if call.ending is None
        and (
            call.request.sandbox == want.sandbox
            or state.ledger.held_bytes(call.request.sandbox) > kept[call.request.sandbox]
            or not state.ledger.sandboxes[call.request.sandbox].guaranteed_bytes
        )
    ]
    if isinstance(want, AgentWant):
        own = [call for call in alive if call.request.sandbox == want.sandbox]
        claims = [each.claim_bytes for each in state.ledger.reservations.values() if each.sandbox == want.sandbox]
        needed_bytes = want.agent_bytes + max(claims, default=0)
        if needed_bytes > state.ledger.sandboxes[want.sandbox].budget_bytes:
            return in_victim_order(own)
        return in_victim_order(call for call in alive if call.priority <= want.priority)
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


def shrink_leases(state: act.ArbiterState, want: Want, now_s: float, settings: Settings) -> Step:
    """Leases lowered to what is used plus a slack, until the want can be granted or nothing is left to shrink."""
    if now_s > state.read_at_s + settings.fresh_s:
        return state, ()
    own = want.call.name if isinstance(want, GrowthWant) else None
    actions: list[act.Action] = []
    for call in sorted(state.calls.values(), key=lambda call: (call.priority, -call.started_at_s)):
        if call.name == own or call.priority > want.priority or call.ending is not None or call.wants_more:
            continue
        lease = state.ledger.reservations[call.name].lease_bytes
        shrunk = call.used_bytes + (0 if call.frozen else settings.lease_slack_bytes)
        if lease - shrunk < settings.lease_slack_bytes:
            continue
        state = replace(state, ledger=state.ledger.with_lease(call.name, shrunk))
        actions.append(act.SetLease(call.name, shrunk, "LEASE_SHRUNK"))
        if want.granted(state) is not None:
            break
    return state, tuple(actions)


def relieve(state: act.ArbiterState, want: Want, now_s: float, settings: Settings) -> Step:
    """Next rung for the want; nothing while the last one may still show its effect."""
    if now_s < state.relieved_at_s + settings.settle_s:
        return state, ()
    victims = outranked(state, want)
    reason: act.Reason = "AGENT_NEEDS_MEMORY" if isinstance(want, AgentWant) else "HIGHER_PRIORITY_NEEDS_MEMORY"
    for rung in settings.rungs if victims else ():
        stepped = _rung(rung, state, victims[0], reason, now_s, settings)
        if stepped is not None:
            after, actions = stepped
            return replace(after, relieved_at_s=now_s) if actions else after, actions
    name = agent_victim(state, state.ledger.sandboxes[want.sandbox].priority)
    if name is None:
        return state, ()
    return replace(state, dying_agents=state.dying_agents | {name}), (act.KillAgent(name, reason),)


def _rung(
    rung: Rung, state: act.ArbiterState, first: act.RunningCall, reason: act.Reason, now_s: float, settings: Settings
) -> Step | None:
    """One rung for the first victim; None where it has nothing left to give."""
    match rung:
        case "freeze" if first.frozen is None:
            # What its lease holds beyond its use goes with the next readings.
            frozen = replace(first, frozen=reason, frozen_since_s=now_s)
            return state.with_call(frozen), (act.Freeze(first.name, reason),)
        case "reclaim" if settings.swap and not first.reclaimed:
            return state.with_call(replace(first, reclaimed=True)), (act.Reclaim(first.name, first.used_bytes, reason),)
        case "kill":
            # The memory of an earlier victim may be still to come back.
            if any(call.ending is not None for call in state.calls.values()):
                return state, ()
            return killed(state, first, reason)
    return None


def killed(state: act.ArbiterState, call: act.RunningCall, reason: act.Reason) -> Step:
    """The state while the call ends: its memory counts until the kernel has it back."""
    return state.with_call(replace(call, ending=reason, wants_more=False)), (act.Kill(call.name, reason),)


def restored(state: act.ArbiterState) -> Step:
    """Calls that made way go on: thawed. Their leases grow as they ask for more."""
    actions: list[act.Action] = []
    for call in state.calls.values():
        if call.ending is None and call.frozen is not None and not call.wants_more:
            state = state.with_call(replace(call, frozen=None, reclaimed=False))
            actions.append(act.Thaw(call.name, "FITS"))
    return state, tuple(actions)
