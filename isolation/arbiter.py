"""Arbiter: from events and the time to actions. Admission grants what fits, the ladder makes room for the rest."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from isolation import ladder, state as act
from isolation.ledger import Reservation
from isolation.settings import Settings


def step(state: act.ArbiterState, events: Iterable[act.Event], now_s: float, settings: Settings) -> ladder.Step:
    """State and actions after the events. Called with none when a timer runs out: waiting has bounds."""
    actions: list[act.Action] = []
    queued_before = {asked.call for asked in state.queue}
    for event in events:
        state, done = _taken(event, state, now_s, settings)
        actions.extend(done)
    rules: tuple[Callable[[act.ArbiterState, float, Settings], ladder.Step], ...] = (
        _grow_running,
        _end_overdue,
        _break_stalemate,
        _serve_queue,
        _relieve,
    )
    for rule in rules:
        state, done = rule(state, now_s, settings)
        actions.extend(done)
    new = (asked for asked in state.queue if asked.call not in queued_before)
    return state, (*actions, *(_queued(state, asked, now_s, settings) for asked in new))


def _taken(event: act.Event, state: act.ArbiterState, now_s: float, settings: Settings) -> ladder.Step:
    """State after one event, before anything is decided."""
    match event:
        case act.SandboxStarted(sandbox):
            # One that is known already keeps what its agent holds, under its new policy.
            known = state.ledger.sandboxes.get(sandbox.name)
            floor = max(sandbox.agent_floor_bytes, sandbox.agent_bytes)
            held = floor if known is None else max(floor, known.agent_bytes)
            started = replace(sandbox, agent_bytes=held, agent_floor_bytes=floor)
            return replace(state, ledger=state.ledger.with_sandbox(started)), ()
        case act.SandboxEnded(name):
            return replace(
                state,
                ledger=state.ledger.without_sandbox(name),
                queue=tuple(asked for asked in state.queue if asked.sandbox != name),
                calls={key: call for key, call in state.calls.items() if call.request.sandbox != name},
                agents_want={key: wanted for key, wanted in state.agents_want.items() if key != name},
                dying_agents=state.dying_agents - {name},
            ), ()
        case act.Asked(request):
            return _asked(state, request, settings)
        case act.Withdrawn(call):
            return _unqueued(state, call), ()
        case act.Found():
            return _found(state, event, now_s), ()
        case act.ReachedLease(call, used_bytes):
            return _reached(state, call, used_bytes), ()
        case act.Ended(call, peak_bytes):
            return _ended(state, call, peak_bytes, now_s), ()
        case act.Used():
            return _used(state, event, settings)


def _asked(state: act.ArbiterState, request: act.CallDemand, settings: Settings) -> ladder.Step:
    """The request in the queue, or refused where waiting cannot help."""
    sandbox = state.ledger.sandboxes.get(request.sandbox)
    if sandbox is None:
        return state, (act.Refuse(request.call, 0.0, "UNKNOWN_SANDBOX"),)
    calls = sum(call.request.sandbox == sandbox.name for call in state.calls.values())
    if calls + sum(asked.sandbox == sandbox.name for asked in state.queue) >= settings.calls_per_sandbox:
        return state, (act.Refuse(request.call, settings.starvation_s, "TOO_MANY_CALLS"),)
    # Alone on the node, with every other agent as it is: no claim beyond that is ever met.
    room = replace(state.ledger, reservations={}).free_for(sandbox.name)
    if request.claim_bytes > sandbox.budget_bytes - sandbox.agent_bytes or room <= 0:
        return state, (act.Refuse(request.call, 0.0, "ABOVE_SANDBOX_BUDGET"),)
    wait_s = min(request.wait_s, settings.longest_wait_s)
    bounded = replace(request, wait_s=wait_s, claim_bytes=min(request.claim_bytes, room))
    return replace(state, queue=(*state.queue, bounded)), ()


def _found(state: act.ArbiterState, found: act.Found, now_s: float) -> act.ArbiterState:
    """The call as running, with what it holds: it was admitted before, and is not asked to go."""
    request = found.request
    sandbox = state.ledger.sandboxes.get(request.sandbox)
    if sandbox is None or request.call in state.calls:
        return state
    lease = max(found.lease_bytes, found.used_bytes)
    kept = Reservation(request.call, request.sandbox, lease)
    call = act.RunningCall(request, sandbox.priority, now_s, found.used_bytes, found.used_bytes)
    return replace(state, ledger=state.ledger.with_reservation(kept)).with_call(call)


def _reached(state: act.ArbiterState, name: str, used_bytes: int) -> act.ArbiterState:
    call = state.calls.get(name)
    if call is None or call.ending is not None:
        return state
    peak = max(call.peak_bytes, used_bytes)
    return state.with_call(replace(call, used_bytes=used_bytes, peak_bytes=peak, wants_more=True, outgrown=True))


def _ended(state: act.ArbiterState, name: str, peak_bytes: int, now_s: float) -> act.ArbiterState:
    call = state.calls.get(name)
    if call is None:
        return state
    learned = state.learned
    if call.ending is None:  # the peak of a killed call is not its need
        peak = max(peak_bytes, call.peak_bytes)
        learned = learned.after(call.request.command_class, peak, now_s - call.started_at_s)
    calls = {key: other for key, other in state.calls.items() if key != name}
    return replace(state, ledger=state.ledger.without_calls({name}), calls=calls, learned=learned)


def _used(state: act.ArbiterState, event: act.Used, settings: Settings) -> ladder.Step:
    """Readings recorded; an agent's reservation follows its use as far as memory is free."""
    calls = dict(state.calls)
    for name, used_bytes in event.calls.items():
        if call := calls.get(name):
            calls[name] = replace(call, used_bytes=used_bytes, peak_bytes=max(call.peak_bytes, used_bytes))
    state = replace(state, calls=calls)
    # Leases of calls that crept over their brake are what they hold, as far as the budget allows.
    for name, used_bytes in event.calls.items():
        kept = state.ledger.reservations.get(name)
        if kept is not None and used_bytes > kept.lease_bytes:
            held = kept.lease_bytes + max(0, min(used_bytes - kept.lease_bytes, state.ledger.free_for(kept.sandbox)))
            state = replace(state, ledger=state.ledger.with_lease(name, held))
    actions: list[act.Action] = []
    wants = dict(state.agents_want)
    for name, used_bytes in event.agents.items():
        sandbox = state.ledger.sandboxes.get(name)
        if sandbox is None:
            continue
        slack = settings.agent_slack_bytes
        if used_bytes + slack // 4 > sandbox.agent_bytes:
            wants[name] = used_bytes + slack
            continue
        wants.pop(name, None)
        lease = max(sandbox.agent_floor_bytes, used_bytes + 2 * slack)
        # With hysteresis, so that the brake does not follow every garbage collection.
        if lease < sandbox.agent_bytes - 2 * slack:
            state = replace(state, ledger=state.ledger.with_agent(name, lease))
            actions.append(act.SetAgentLease(name, lease, "LEASE_SHRUNK"))
    return replace(state, agents_want=wants), tuple(actions)


def _grow_running(state: act.ArbiterState, now_s: float, settings: Settings) -> ladder.Step:
    """Grants to agents, then to calls that passed their claim, what fits; freezes the calls that must wait.

    Such a call takes nothing from a queued one that its equals make way for, unless that is guaranteed to its sandbox.
    """
    actions: list[act.Action] = []
    first = _made_way_for(state, now_s, settings)
    for want in ladder.running_wants(state, settings):
        is_behind = first is not None and isinstance(want, ladder.GrowthWant) and want.priority <= first.priority
        waits = is_behind and state.ledger.held_bytes(want.sandbox) >= state.ledger.guarantees()[want.sandbox]
        ledger = None if waits else want.granted(state)
        if isinstance(want, ladder.AgentWant):
            if ledger is not None:
                wants = {name: wanted for name, wanted in state.agents_want.items() if name != want.sandbox}
                state = replace(state, ledger=ledger, agents_want=wants)
                actions.append(act.SetAgentLease(want.sandbox, want.agent_bytes, "LEASE_GROWN"))
            continue
        call = state.calls[want.call.name]
        if ledger is not None:
            actions.append(act.SetLease(call.name, ledger.reservations[call.name].lease_bytes, "LEASE_GROWN"))
            if call.frozen is not None:
                actions.append(act.Thaw(call.name, "LEASE_GROWN"))
            state = replace(state, ledger=ledger).with_call(replace(call, wants_more=False, frozen=None))
        elif call.frozen is None:
            # Braked by the kernel alone it would burn CPU in reclaim, and creep over.
            state = state.with_call(replace(call, frozen="WAITS_FOR_MEMORY", frozen_since_s=now_s))
            actions.append(act.Freeze(call.name, "WAITS_FOR_MEMORY"))
    return state, tuple(actions)


def _end_overdue(state: act.ArbiterState, now_s: float, settings: Settings) -> ladder.Step:
    """Kills calls that were frozen for too long; requests that waited too long are refused in `_serve_queue`."""
    actions: list[act.Action] = []
    for call in list(state.calls.values()):
        if call.frozen is None or call.ending is not None:
            continue
        if now_s >= call.frozen_since_s + settings.frozen_s:
            state, done = ladder.killed(state, call, "OUTGREW_CLAIM")
            actions.extend(done)
    return state, tuple(actions)


def _break_stalemate(state: act.ArbiterState, _: float, __: Settings) -> ladder.Step:
    """Kills a call that passed its claim and waits, where the node's budget is exceeded, or where every call waits like
    that: then no end of another gives it what it needs.

    Claims that hold cannot dead-lock; only a call that broke its own can stand in the way of all. Where it outranks
    another, the ladder makes room for it instead.
    """
    stuck = state.stuck()
    if not stuck or any(call.ending for call in state.calls.values()):
        return state, ()
    if len(stuck) < len(state.calls) and state.ledger.free_bytes >= 0:
        return state, ()
    victim = ladder.in_victim_order(call for call in state.calls.values() if call.name in stuck)[0]
    if any(call.priority < victim.priority for call in state.calls.values()):
        return state, ()
    return ladder.killed(state, victim, "OUTGREW_CLAIM")


def _serve_queue(state: act.ArbiterState, now_s: float, settings: Settings) -> ladder.Step:
    """Admits what fits, in order, and refuses what waited too long.

    What its own sandbox's budget cannot hold waits for that alone: nobody else waits behind it.
    """
    actions: list[act.Action] = []
    aged, aged_own = float("-inf"), set[str]()
    failed = 0
    for want in ladder.queued_wants(state):
        request = want.request
        waited_s, waits_for_own = now_s - request.asked_at_s, want.exceeds_own(state.ledger)
        may_pass = want.priority > aged and want.sandbox not in aged_own
        is_tried = may_pass and not waits_for_own and failed < settings.tried_requests
        ledger = want.granted(state) if is_tried else None
        if ledger is not None:
            call = act.RunningCall(request, state.ledger.sandboxes[request.sandbox].priority, started_at_s=now_s)
            state = _unqueued(replace(state, ledger=ledger), request.call).with_call(call)
            lease_bytes = ledger.reservations[request.call].lease_bytes
            actions.append(act.Admit(request.call, request.sandbox, lease_bytes))
            continue
        failed += not waits_for_own
        if waited_s >= request.wait_s:
            retry_after_s = _expected_wait_s(state, request, now_s)
            state = _unqueued(state, request.call)
            actions.append(act.Refuse(request.call, retry_after_s, "WAITED_TOO_LONG"))
        elif waited_s >= settings.starvation_s and waits_for_own:
            aged_own.add(want.sandbox)
        elif waited_s >= settings.starvation_s:
            aged = max(aged, want.priority)
    return state, tuple(actions)


def _unqueued(state: act.ArbiterState, call: str) -> act.ArbiterState:
    return replace(state, queue=tuple(asked for asked in state.queue if asked.call != call))


def _starved(state: act.ArbiterState, now_s: float, settings: Settings) -> ladder.StartWant | None:
    """The first queued call that waited too long for the node's memory: nothing of its priority or a lower one is
    admitted before it.
    """
    older = (each for each in ladder.queued_wants(state) if now_s >= each.request.asked_at_s + settings.starvation_s)
    return next((each for each in older if not each.exceeds_own(state.ledger)), None)


def _made_way_for(state: act.ArbiterState, now_s: float, settings: Settings) -> ladder.StartWant | None:
    """That call, if none of a lower priority runs, and it fits once its equals that passed their claims made way."""
    starved = _starved(state, now_s, settings)
    if starved is None or any(call.priority < starved.priority for call in state.calls.values()):
        return None
    gone = {call.name for call in ladder.outranked(state, starved)}
    left = state.ledger.without_calls(gone | {call.name for call in state.calls.values() if call.ending is not None})
    return None if starved.granted(replace(state, ledger=left)) is None else starved


def _queued(state: act.ArbiterState, request: act.CallDemand, now_s: float, settings: Settings) -> act.Queue:
    starved = _starved(state, now_s, settings)
    is_behind = starved is not None and starved.request.call != request.call
    reason: act.Reason = "WAITS_BEHIND_OLDER" if is_behind else "WAITS_FOR_MEMORY"
    return act.Queue(request.call, _expected_wait_s(state, request, now_s), reason)


def _expected_wait_s(state: act.ArbiterState, request: act.CallDemand, now_s: float) -> float:
    """Time until enough of the running calls ended, by the medians of their classes."""
    short = request.claim_bytes - state.ledger.free_for(request.sandbox)
    left = sorted(
        (
            max(1.0, state.learned.expected_s(call.request.command_class) - (now_s - call.started_at_s)),
            state.ledger.reservations[call.name].lease_bytes,
        )
        for call in state.calls.values()
    )
    for ends_in_s, lease_bytes in left:
        short -= lease_bytes
        if short <= 0:
            return ends_in_s
    return left[-1][0] if left else 1.0


def _relieve(state: act.ArbiterState, now_s: float, settings: Settings) -> ladder.Step:
    """One step of the ladder for the first want that outranks something.

    A queued call that waited too long outranks its equals that passed their claims, too, where it fits without them.
    """
    unmet: list[ladder.Want] = [*ladder.running_wants(state, settings), *ladder.queued_wants(state)]
    ending = [call for call in state.calls.values() if call.ending is not None]
    lowest = min((call.priority for call in state.calls.values()), default=float("inf"))
    first = _made_way_for(state, now_s, settings)
    for want in unmet:
        if not isinstance(want, ladder.AgentWant) and want.priority <= lowest and want != first:
            continue  # it outranks nothing
        victims = [*ending, *ladder.outranked(state, want)]
        if isinstance(want, ladder.AgentWant):
            is_own = want.exceeds_own(state.ledger)
            helps = bool(victims) or (not is_own and ladder.agent_victim(state, want.priority) is not None)
        else:
            helps = bool(victims) and (want == first or any(call.priority < want.priority for call in victims))
        if helps:
            return ladder.relieve(state, want, now_s, settings)
    return state, ()


def next_timer_s(state: act.ArbiterState, settings: Settings, stepped_at_s: float) -> float:
    """Next instant after the last step at which something changes without an event; infinity where nothing waits."""
    instants = [asked.asked_at_s + bound for asked in state.queue for bound in (settings.starvation_s, asked.wait_s)]
    frozen = (call for call in state.calls.values() if call.frozen is not None)
    instants += [call.frozen_since_s + settings.frozen_s for call in frozen]
    instants.append(state.relieved_at_s + settings.settle_s)
    return min((at_s for at_s in instants if at_s > stepped_at_s), default=float("inf"))
