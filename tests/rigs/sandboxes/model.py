"""Replay of agents against the arbiter and a modelled kernel: exact, without a clock, a hundred runs in seconds.

The kernel of the model brakes a call at its lease, freezes and thaws at once, and gives memory back a moment after a
kill. Computing takes no time, so that CPU weights have no effect here; what they buy only a real kernel shows.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from isolation import state as act
from isolation.admission import claim_bytes
from isolation.arbiter import next_timer_s, step
from isolation.ledger import MIB, MemoryLedger, Sandbox
from isolation.settings import Settings
from isolation.state import (
    ArbiterState,
    Asked,
    CallDemand,
    Ended,
    Event,
    ReachedLease,
    SandboxEnded,
    SandboxStarted,
    Used,
)
from nodeagent.sandboxes.enforcer import SHORTAGE_TICK_S
from tests.rigs.sandboxes.runs import OURS, AgentResult, SandboxPolicyName, SandboxResult, SandboxRun
from tests.rigs.sandboxes.traces import AgentTrace, CallTrace

RELEASE_S = 0.02
"""From a kill until the kernel has the memory back: measured in the guest, 10 to 30 ms."""
TICK_S = 1.0
GIVE_UP_S = 3600.0
"""Beyond the longest trace: something is stuck."""


MODELLED: tuple[SandboxPolicyName, ...] = ("unlimited", "none", "static", OURS)
"""The rule of memory.high depends on how the kernel throttles, which a model cannot say."""


def modelled(run: SandboxRun) -> SandboxResult:
    """A run with the defaults."""
    return Model(run, Settings()).result()


@dataclass
class ModelAgent:
    """Agent of a run."""

    name: str
    trace: AgentTrace
    priority: int
    hints: tuple[float, ...]
    began_s: float
    phase: int = 0
    base_bytes: int = 0
    stalled_s: float = 0.0
    calls: int = 0
    killed: int = 0
    refused: int = 0
    result: AgentResult | None = None


@dataclass
class ModelCall:
    """Tool call of a run."""

    agent: ModelAgent
    trace: CallTrace
    asked_s: float
    lease_bytes: float = math.inf
    used_bytes: int = 0
    peak_bytes: int = 0
    sample: int = 0
    """The next of its trace's samples."""
    due_s: float = math.inf
    """When it comes to the next sample; infinity while it is braked, frozen or dying."""
    left_s: float = 0.0
    """Time to the next sample of a frozen call."""
    braked: bool = False
    frozen: bool = False
    started: bool = False


@dataclass
class Model:
    """One run. Memory in bytes, times in unscaled seconds."""

    run: SandboxRun
    settings: Settings
    guarantees: bool = True
    """Whether the high agents' largest declared need is kept for them."""
    now_s: float = 0.0
    agents: list[ModelAgent] = field(default_factory=list)
    calls: dict[str, ModelCall] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    kernel_kills: int = 0
    peak_bytes: int = 0
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: int = 0
    _events: list[Event] = field(default_factory=list)
    _read_at_s: float = 0.0

    def __post_init__(self) -> None:
        self.ours = self.run.policy == OURS
        self.budget_bytes = _bytes_of(self.run.budget_mib)
        self.state = ArbiterState(MemoryLedger(self.budget_bytes))

    def result(self) -> SandboxResult:
        for index, trace in enumerate(self.run.agents):
            delay_s = self.run.delays_s[index]
            agent = ModelAgent(f"agent-{index}", trace, self.run.priorities[index], self.run.hints[index], delay_s)
            self.agents.append(agent)
            if self.ours:
                # As the guest's arena has it.
                base = _bytes_of(agent.trace.base_mib * self.run.base_hint)
                declared = (
                    hint * phase.call.peak_mib
                    for hint, phase in zip(agent.hints, agent.trace.phases, strict=True)
                    if phase.call is not None
                )
                kept = base + _bytes_of(max(declared, default=0.0)) if agent.priority and self.guarantees else 0
                self._events.append(SandboxStarted(Sandbox(agent.name, self.budget_bytes, agent.priority, kept, base)))
            self._at(delay_s, lambda agent=agent: self._think(agent))  # type: ignore[misc]
        end_s = GIVE_UP_S + max(trace.for_s for trace in self.run.agents)
        while any(agent.result is None for agent in self.agents):
            if self.now_s > end_s:
                self.reasons["GIVEN_UP"] = 1
                break
            # To the next instant at which something happens, and the arbiter's answer.
            instants = [call.due_s for call in self.calls.values()]
            if self._queue:
                instants.append(self._queue[0][0])
            if self.ours:
                tick_s = SHORTAGE_TICK_S if self._is_short() else TICK_S
                instants += [next_timer_s(self.state, self.settings, self.now_s), self._read_at_s + tick_s]
            self.now_s = max(self.now_s, min(instants, default=math.inf))
            while self._queue and self._queue[0][0] <= self.now_s:
                heapq.heappop(self._queue)[2]()
            for name, call in list(self.calls.items()):
                if call.due_s <= self.now_s:
                    self._work(name, call)
            if self.ours:
                if self.now_s >= self._read_at_s + tick_s:
                    self._events.append(self._readings())
                events, self._events = self._events, []
                self._step(events)
            self._measure()
        for agent in self.agents:
            if agent.result is None:
                self._finish(agent, survived=False)
        return SandboxResult(
            self.run.policy,
            tuple(agent.result for agent in self.agents if agent.result is not None),
            self.kernel_kills,
            self.counts.get("Freeze", 0),
            self.counts.get("Queue", 0),
            self.peak_bytes / MIB,
            0.0,
            (),
            self.reasons,
        )

    def _at(self, at_s: float, deed: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (at_s, self._number, deed))

    def _is_short(self) -> bool:
        calls = self.state.calls.values()
        return bool(self.state.queue or self.state.agents_want or any(one.wants_more or one.frozen for one in calls))

    def _readings(self) -> Used:
        self._read_at_s = self.now_s
        used = {name: call.used_bytes for name, call in self.calls.items() if call.started}
        return Used(used, {agent.name: agent.base_bytes for agent in self._alive()})

    def _step(self, events: list[Event]) -> None:
        self.state, actions = step(self.state, events, self.now_s, self.settings)
        for action in actions:
            kind = type(action).__name__
            self.counts[kind] = self.counts.get(kind, 0) + 1
            match action:
                case act.Admit(name, _, lease_bytes):
                    self._start(name, lease_bytes)
                case act.Refuse(name, _, reason):
                    self._count(reason)
                    self._end(name, self.calls[name], "refused")
                case act.SetLease(name, lease_bytes):
                    call = self.calls[name]
                    call.lease_bytes = max(lease_bytes, call.used_bytes)
                    self._go_on(call)
                case act.Freeze(name, reason):
                    self._count(reason)
                    call = self.calls[name]
                    call.frozen, call.left_s, call.due_s = True, max(0.0, call.due_s - self.now_s), math.inf
                case act.Thaw(name):
                    self.calls[name].frozen = False
                    self._go_on(self.calls[name])
                case act.Kill(name, reason):
                    self._count(reason)
                    self._kill(name)
                case act.KillAgent(sandbox, reason):
                    self._count(reason)
                    self._kill_agent(next(agent for agent in self.agents if agent.name == sandbox))
                case _:
                    pass

    def _alive(self) -> Iterator[ModelAgent]:
        return (agent for agent in self.agents if agent.result is None and agent.base_bytes)

    def _think(self, agent: ModelAgent) -> None:
        """The agent's next phase: its own memory changes, it thinks, and then calls or ends."""
        phase = agent.trace.phases[agent.phase]
        agent.base_bytes = _bytes_of(phase.base_mib)
        self._events.append(Used({}, {agent.name: agent.base_bytes}))
        self._at(self.now_s + phase.think_s, lambda: self._call(agent))

    def _call(self, agent: ModelAgent) -> None:
        if agent.result is not None:
            return
        trace = agent.trace.phases[agent.phase].call
        if trace is None:
            self._next_phase(agent)
            return
        agent.calls += 1
        name = f"{agent.name}-{agent.phase}"
        self.calls[name] = ModelCall(agent, trace, self.now_s)
        if not self.ours:
            self._start(name, math.inf)
            return
        hint, state = _bytes_of(trace.peak_mib * (agent.hints[agent.phase] or 1.0)), self.state
        sandbox, fraction = state.ledger.sandboxes[agent.name], self.settings.learned_fraction
        claim = claim_bytes(hint, trace.command_class, sandbox, state.learned, fraction)
        asked = CallDemand(name, agent.name, self.now_s, max(MIB, claim), trace.command_class)
        self._events.append(Asked(asked))

    def _next_phase(self, agent: ModelAgent) -> None:
        agent.phase += 1
        if agent.phase < len(agent.trace.phases):
            self._think(agent)
        else:
            self._finish(agent, survived=True)

    def _finish(self, agent: ModelAgent, *, survived: bool) -> None:
        agent.result = AgentResult(
            agent.trace.name,
            agent.priority,
            survived,
            self.now_s - agent.began_s,
            agent.stalled_s,
            agent.calls,
            agent.killed,
            agent.refused,
        )
        agent.base_bytes = 0
        if self.ours:
            self._events.append(SandboxEnded(agent.name))

    def _start(self, name: str, lease_bytes: float) -> None:
        call = self.calls[name]
        call.started, call.lease_bytes, call.due_s = True, lease_bytes, self.now_s

    def _work(self, name: str, call: ModelCall) -> None:
        """The call comes to its next sample: it holds what that says, or meets its brake."""
        _, mib = call.trace.samples[call.sample]
        wanted = _bytes_of(mib)
        call.used_bytes = int(min(wanted, call.lease_bytes))
        call.peak_bytes = max(call.peak_bytes, call.used_bytes)
        if wanted > call.lease_bytes:
            call.braked, call.due_s = True, math.inf
            self._events.append(ReachedLease(name, call.used_bytes))
            return
        call.sample += 1
        if call.sample == len(call.trace.samples):
            self._end(name, call, "done")
            return
        call.due_s = self.now_s + call.trace.samples[call.sample][0] - call.trace.samples[call.sample - 1][0]

    def _end(self, name: str, call: ModelCall, how: str) -> None:
        del self.calls[name]
        agent = call.agent
        if self.ours and call.started:
            self._events.append(Ended(name, call.peak_bytes))
        agent.killed += how == "killed"
        agent.refused += how == "refused"
        own_s = call.trace.for_s if how == "done" else 0.0
        agent.stalled_s += max(0.0, self.now_s - call.asked_s - own_s)
        if agent.result is None:
            self._next_phase(agent)

    def _go_on(self, call: ModelCall) -> None:
        """A call that was braked or frozen goes on where it was, as far as it may."""
        if call.frozen or call.due_s < math.inf:
            return
        call.due_s = self.now_s + (0.0 if call.braked else call.left_s)
        call.braked = False

    def _kill(self, name: str) -> None:
        call = self.calls[name]
        call.frozen, call.due_s = True, math.inf
        self._at(self.now_s + RELEASE_S, lambda: self._end(name, call, "killed") if name in self.calls else None)

    def _kill_agent(self, agent: ModelAgent) -> None:
        for name in [name for name, call in self.calls.items() if call.agent is agent]:
            agent.killed += 1
            del self.calls[name]
        self._finish(agent, survived=False)

    def _count(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def _measure(self) -> None:
        """Memory of all, and the kernel's answer where it is too much: the container of the largest process dies whole,
        as the kubelet sets it, and in a static limit the one that meets it. Isolation has tool calls go first.
        """
        if self.run.policy == "static":
            for agent in self.agents:
                if agent.base_bytes + self._calls_bytes(agent) > self.budget_bytes // len(self.agents):
                    self._kernel_kills(agent)
        while self._total() > self.budget_bytes and self.run.policy != "unlimited":
            largest = max(self.calls.items(), key=lambda item: item[1].used_bytes, default=None)
            if self.ours and largest is not None:
                self.kernel_kills += 1
                self._end(*largest, "killed")
                continue
            sizes = {call.used_bytes: call.agent for call in self.calls.values()}
            sizes |= {agent.base_bytes: agent for agent in self._alive()}
            self._kernel_kills(sizes[max(sizes)])
        self.peak_bytes = max(self.peak_bytes, self._total())

    def _kernel_kills(self, agent: ModelAgent) -> None:
        self.kernel_kills += 1
        self._kill_agent(agent)

    def _calls_bytes(self, agent: ModelAgent) -> int:
        return sum(call.used_bytes for call in self.calls.values() if call.agent is agent)

    def _total(self) -> int:
        return sum(agent.base_bytes + self._calls_bytes(agent) for agent in self.agents)


def _bytes_of(mib: float) -> int:
    return round(mib * MIB)
