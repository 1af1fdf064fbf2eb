"""Wants, needs for memory that are not met yet, and the ladder: the next step that makes room for one, gentlest first.

Queueing came before it: the want was not granted. Then leases shrink to what is used, and the calls that are outranked
get less CPU. Then the first victim is frozen, what it holds is reclaimed, its agent is asked to shrink, and the call is
killed; then the next victim. Last of all, an agent of a lower priority. Each step has time to show its effect, in which
other calls may end: the victim then goes on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from isolation.admission import is_safe
from isolation.ledger import MemoryLedger, Reservation
from isolation.settings import NORMAL_CPU_WEIGHT, Rung, Settings
from isolation.state import (
    Action,
    ArbiterState,
    AskToShrink,
    CallDemand,
    Freeze,
    Kill,
    KillAgent,
    Reason,
    Reclaim,
    RunningCall,
    SetCpuWeight,
    SetLease,
    Thaw,
)

Step = tuple[ArbiterState, tuple[Action, ...]]


@dataclass(frozen=True, slots=True)
class AgentWant:
    """An agent's own processes need more memory: before every tool call."""

    sandbox: str
    agent_bytes: int

    priority = float("inf")

    def granted(self, state: ArbiterState) -> MemoryLedger | None:
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

    def granted(self, state: ArbiterState) -> MemoryLedger | None:
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

    request: CallDemand
    priority: float
    first_lease_bytes: int

    @property
    def sandbox(self) -> str:
        return self.request.sandbox

    def granted(self, state: ArbiterState) -> MemoryLedger | None:
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


def running_wants(state: ArbiterState, settings: Settings) -> Iterator[AgentWant | GrowthWant]:
    """Wants of agents, then of running calls by priority and age."""
    for sandbox, agent_bytes in sorted(state.agents_want.items()):
        yield AgentWant(sandbox, agent_bytes)
    braked = [call for call in state.calls.values() if call.wants_more and call.ending is None]
    for call in sorted(braked, key=lambda call: (-call.priority, call.started_at_s, call.name)):
        yield GrowthWant(call, settings.lease_step_bytes)


def queued_wants(state: ArbiterState, settings: Settings) -> Iterator[StartWant]:
    """Wants of queued calls, by priority and time of asking."""
    sandboxes = state.ledger.sandboxes
    for request in sorted(state.queue, key=lambda asked: (-sandboxes[asked.sandbox].priority, asked.asked_at_s)):
        first = settings.start_lease_bytes if settings.leases == "growing" else request.claim_bytes
        yield StartWant(request, sandboxes[request.sandbox].priority, first)


def in_victim_order(calls: Iterable[RunningCall]) -> list[RunningCall]:
    """Lowest priority first; among equals those that passed their claim, then those not declared, then the youngest."""
    return sorted(
        calls,
        key=lambda call: (call.priority, not call.outgrown, call.request.declared, -call.started_at_s, call.name),
    )


def outranked(state: ArbiterState, want: Want) -> list[RunningCall]:
    """Calls that make way for the want, first victim first; those that are ending make way already.

    A call's want outranks lower priorities, and its equals that passed their claim. An agent's outranks every call, but
    where its sandbox's own budget is short, only calls of that sandbox can help.
    """
    alive = [call for call in state.calls.values() if call.ending is None]
    if isinstance(want, AgentWant):
        own = [call for call in alive if call.request.sandbox == want.sandbox]
        return in_victim_order(own if _is_short_of_its_own(state, want) else alive)
    own_name = want.call.name if isinstance(want, GrowthWant) else None
    return in_victim_order(
        call
        for call in alive
        if call.priority < want.priority or (call.outgrown and call.priority == want.priority and call.name != own_name)
    )


def _is_short_of_its_own(state: ArbiterState, want: AgentWant) -> bool:
    claims = [kept.claim_bytes for kept in state.ledger.reservations.values() if kept.sandbox == want.sandbox]
    return want.agent_bytes + max(claims, default=0) > state.ledger.sandboxes[want.sandbox].budget_bytes


def agent_victim(state: ArbiterState, priority: float) -> str | None:
    """Agent that goes last: none while a tool call lives anywhere, none that is not outranked, lowest first."""
    if state.calls or state.dying_agents:
        return None
    lower = [sandbox for sandbox in state.ledger.sandboxes.values() if sandbox.priority < priority]
    return (
        min(lower, key=lambda sandbox: (sandbox.priority, -sandbox.agent_bytes, sandbox.name)).name if lower else None
    )


def shrink_leases(state: ArbiterState, want: Want, now_s: float, settings: Settings) -> Step:
    """Leases lowered to what is used plus a slack, until the want can be granted or nothing is left to shrink."""
    if now_s > state.read_at_s + settings.fresh_s:
        return state, ()
    own = want.call.name if isinstance(want, GrowthWant) else None
    actions: list[Action] = []
    for call in sorted(state.calls.values(), key=lambda call: (call.priority, -call.started_at_s)):
        if call.name == own or call.priority > want.priority or call.ending is not None or call.wants_more:
            continue
        lease = state.ledger.reservations[call.name].lease_bytes
        shrunk = call.used_bytes + (0 if call.frozen else settings.lease_slack_bytes)
        if lease - shrunk < settings.lease_slack_bytes:
            continue
        state = replace(state, ledger=state.ledger.with_lease(call.name, shrunk))
        actions.append(SetLease(call.name, shrunk, "LEASE_SHRUNK"))
        if want.granted(state) is not None:
            break
    return state, tuple(actions)


def relieve(state: ArbiterState, want: Want, now_s: float, settings: Settings) -> Step:
    """Next rung for the want; nothing while the last one may still show its effect."""
    if now_s < state.relieved_at_s + settings.settle_s:
        return state, ()
    victims = outranked(state, want)
    reason: Reason = "AGENT_NEEDS_MEMORY" if isinstance(want, AgentWant) else "HIGHER_PRIORITY_NEEDS_MEMORY"
    for rung in settings.rungs:
        stepped = _RUNGS[rung](state, victims, reason, now_s, settings)
        if stepped is not None:
            after, actions = stepped
            return replace(after, relieved_at_s=now_s) if actions else after, actions
    return _kill_agent(state, want, reason)


def _slow_down(
    state: ArbiterState, victims: list[RunningCall], _: Reason, __: float, settings: Settings
) -> Step | None:
    fast = [call for call in victims if call.cpu_weight > settings.low_cpu_weight and call.frozen is None]
    if not fast:
        return None
    for call in fast:
        state = state.with_call(replace(call, cpu_weight=settings.low_cpu_weight))
    weight = settings.low_cpu_weight
    return state, tuple(SetCpuWeight(call.name, weight, "HIGHER_PRIORITY_NEEDS_CPU") for call in fast)


def _freeze(state: ArbiterState, victims: list[RunningCall], reason: Reason, now_s: float, _: Settings) -> Step | None:
    """Freezes the first victim; what its lease holds beyond its use goes with the next readings."""
    if not victims or victims[0].frozen is not None or victims[0].feeds_runner:
        return None
    call = victims[0]
    frozen = state.with_call(replace(call, frozen=reason, frozen_since_s=now_s))
    return frozen, (Freeze(call.name, reason),)


def _reclaim(
    state: ArbiterState, victims: list[RunningCall], reason: Reason, _: float, settings: Settings
) -> Step | None:
    if not settings.swap or not victims or victims[0].reclaimed:
        return None
    call = victims[0]
    return state.with_call(replace(call, reclaimed=True)), (Reclaim(call.name, call.used_bytes, reason),)


def _ask(
    state: ArbiterState, victims: list[RunningCall], reason: Reason, now_s: float, settings: Settings
) -> Step | None:
    """Asks the agent of the first victim to shrink, and waits for it."""
    if not victims:
        return None
    sandbox = victims[0].request.sandbox
    asked_at_s = state.asked.get(sandbox)
    if asked_at_s is None:
        return replace(state, asked={**state.asked, sandbox: now_s}), (AskToShrink(sandbox, reason),)
    return (state, ()) if now_s < asked_at_s + settings.ask_s else None


def _kill(state: ArbiterState, victims: list[RunningCall], reason: Reason, _: float, __: Settings) -> Step | None:
    """Kills the first victim; none while the memory of an earlier one is still to come back."""
    if any(call.ending is not None for call in state.calls.values()):
        return state, ()
    return killed(state, victims[0], reason) if victims else None


_RUNGS: Mapping[Rung, Callable[[ArbiterState, list[RunningCall], Reason, float, Settings], Step | None]] = {
    "slow down": _slow_down,
    "freeze": _freeze,
    "reclaim": _reclaim,
    "ask": _ask,
    "kill": _kill,
}


def _kill_agent(state: ArbiterState, want: Want, reason: Reason) -> Step:
    name = agent_victim(state, state.ledger.sandboxes[want.sandbox].priority)
    if name is None:
        return state, ()
    return replace(state, dying_agents=state.dying_agents | {name}), (KillAgent(name, reason),)


def killed(state: ArbiterState, call: RunningCall, reason: Reason) -> Step:
    """The state while the call ends: its memory counts until the kernel has it back."""
    return state.with_call(replace(call, ending=reason, wants_more=False)), (Kill(call.name, reason),)


def restored(state: ArbiterState) -> Step:
    """Calls that made way go on: thawed, and with their CPU back. Their leases grow as they ask for more."""
    actions: list[Action] = []
    for call in state.calls.values():
        if call.ending is not None:
            continue
        back = call
        if call.frozen is not None and not call.wants_more:
            back = replace(back, frozen=None, reclaimed=False)
            actions.append(Thaw(call.name, "FITS"))
        if call.cpu_weight != NORMAL_CPU_WEIGHT:
            back = replace(back, cpu_weight=NORMAL_CPU_WEIGHT)
            actions.append(SetCpuWeight(call.name, NORMAL_CPU_WEIGHT, "FITS"))
        if back is not call:
            state = state.with_call(back)
    return replace(state, asked={}) if state.asked else state, tuple(actions)
