"""Ladder: the next step that makes room for a want, the gentlest first.

Queueing came before it: the want was not granted. Then leases shrink to what is used, and the calls that are outranked
get less CPU. Then the first victim is frozen, what it holds is reclaimed, its agent is asked to shrink, and the call is
killed; then the next victim. Last of all, an agent of a lower priority. Each step has time to show its effect, in which
other calls may end: the victim then goes on.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from isolation.actions import Action, AskToShrink, Freeze, Kill, KillAgent, Reclaim, SetCpuWeight, SetLease, Thaw
from isolation.ladder.victims import agent_victim, outranked
from isolation.reasons import Reason
from isolation.settings import NORMAL_CPU_WEIGHT, Rung, Settings
from isolation.state import RunningCall, State
from isolation.wants import AgentWant, GrowthWant, Want

Step = tuple[State, tuple[Action, ...]]


def shrink_leases(state: State, want: Want, now_s: float, settings: Settings) -> Step:
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


def relieve(state: State, want: Want, now_s: float, settings: Settings) -> Step:
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


def _slow_down(state: State, victims: list[RunningCall], _: Reason, __: float, settings: Settings) -> Step | None:
    fast = [call for call in victims if call.cpu_weight > settings.low_cpu_weight and call.frozen is None]
    if not fast:
        return None
    for call in fast:
        state = state.with_call(replace(call, cpu_weight=settings.low_cpu_weight))
    weight = settings.low_cpu_weight
    return state, tuple(SetCpuWeight(call.name, weight, "HIGHER_PRIORITY_NEEDS_CPU") for call in fast)


def _freeze(state: State, victims: list[RunningCall], reason: Reason, now_s: float, _: Settings) -> Step | None:
    """Freezes the first victim; what its lease holds beyond its use goes with the next readings."""
    if not victims or victims[0].frozen is not None or victims[0].feeds_runner:
        return None
    call = victims[0]
    frozen = state.with_call(replace(call, frozen=reason, frozen_since_s=now_s))
    return frozen, (Freeze(call.name, reason),)


def _reclaim(state: State, victims: list[RunningCall], reason: Reason, _: float, settings: Settings) -> Step | None:
    if not settings.swap or not victims or victims[0].reclaimed:
        return None
    call = victims[0]
    return state.with_call(replace(call, reclaimed=True)), (Reclaim(call.name, call.used_bytes, reason),)


def _ask(state: State, victims: list[RunningCall], reason: Reason, now_s: float, settings: Settings) -> Step | None:
    """Asks the agent of the first victim to shrink, and waits for it."""
    if not victims:
        return None
    sandbox = victims[0].request.sandbox
    asked_at_s = state.asked.get(sandbox)
    if asked_at_s is None:
        return replace(state, asked={**state.asked, sandbox: now_s}), (AskToShrink(sandbox, reason),)
    return (state, ()) if now_s < asked_at_s + settings.ask_s else None


def _kill(state: State, victims: list[RunningCall], reason: Reason, _: float, __: Settings) -> Step | None:
    """Kills the first victim; none while the memory of an earlier one is still to come back."""
    if any(call.ending is not None for call in state.calls.values()):
        return state, ()
    return killed(state, victims[0], reason) if victims else None


_RUNGS: Mapping[Rung, Callable[[State, list[RunningCall], Reason, float, Settings], Step | None]] = {
    "slow down": _slow_down,
    "freeze": _freeze,
    "reclaim": _reclaim,
    "ask": _ask,
    "kill": _kill,
}


def _kill_agent(state: State, want: Want, reason: Reason) -> Step:
    name = agent_victim(state, state.ledger.sandboxes[want.sandbox].priority)
    if name is None:
        return state, ()
    return replace(state, dying_agents=state.dying_agents | {name}), (KillAgent(name, reason),)


def killed(state: State, call: RunningCall, reason: Reason) -> Step:
    """The state while the call ends: its memory counts until the kernel has it back."""
    return state.with_call(replace(call, ending=reason, wants_more=False)), (Kill(call.name, reason),)


def restored(state: State) -> Step:
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
