"""Order in which tool calls make way, and agents after all of them."""

from collections.abc import Iterable

from isolation.state import RunningCall, State
from isolation.wants import AgentWant, GrowthWant, Want


def in_victim_order(calls: Iterable[RunningCall]) -> list[RunningCall]:
    """Lowest priority first; among equals those that passed their claim, then those not declared, then the youngest."""
    return sorted(
        calls,
        key=lambda call: (call.priority, not call.outgrown, call.request.declared, -call.started_at_s, call.name),
    )


def outranked(state: State, want: Want) -> list[RunningCall]:
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


def _is_short_of_its_own(state: State, want: AgentWant) -> bool:
    claims = [kept.claim_bytes for kept in state.ledger.reservations.values() if kept.sandbox == want.sandbox]
    return want.agent_bytes + max(claims, default=0) > state.ledger.sandboxes[want.sandbox].budget_bytes


def agent_victim(state: State, priority: float) -> str | None:
    """Agent that goes last: none while a tool call lives anywhere, none that is not outranked, lowest first."""
    if state.calls or state.dying_agents:
        return None
    lower = [sandbox for sandbox in state.ledger.sandboxes.values() if sandbox.priority < priority]
    return (
        min(lower, key=lambda sandbox: (sandbox.priority, -sandbox.agent_bytes, sandbox.name)).name if lower else None
    )
