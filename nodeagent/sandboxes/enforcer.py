"""Enforcer: waits for the kernel's events, has the arbiter decide, and writes its actions into the cgroup tree.

Fast path: a call at its memory.high is stopped by the kernel already when its event arrives; the answer, a larger lease
or a freeze, is one read, one decision and one write.
"""

import contextlib
import errno
import os
import select
from collections.abc import Callable
from dataclasses import dataclass, replace

from isolation import actions as act
from isolation.arbiter import next_timer_s, step
from isolation.cgroupfs import CgroupFs
from isolation.events import (
    Asked,
    Ended,
    Event,
    FeedsRunner,
    ReachedLease,
    SandboxEnded,
    SandboxStarted,
    Used,
    Withdrawn,
)
from isolation.ledger import Ledger, Sandbox
from isolation.settings import Settings
from isolation.state import Request, State
from isolation.tree import Limits, SandboxTree, agent_group, call_group
from nodeagent.sandboxes.pipes import PipeEnds, feeding, pipe_ends

SHORTAGE_TICK_S = 0.05
"""Interval of readings while something waits for memory; otherwise only events are waited for."""

WALL_SLACK_BYTES = 64 << 20
"""memory.max of a call above its lease: far enough that the brake catches it first, near enough for the node."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Leaf whose events are watched."""

    sandbox: str
    call: str | None
    """None: the agent's own leaf."""
    group: str
    high: int = 0
    """Braking events counted so far."""


class Enforcer:
    """Isolation of one node. Not for several threads."""

    def __init__(
        self, files: CgroupFs, budget_bytes: int, settings: Settings, clock: Callable[[], float], *, tick_s: float = 1.0
    ) -> None:
        self.tree = SandboxTree(files)
        self.state = State(Ledger(budget_bytes))
        self.settings = settings
        self._files = files
        self._clock = clock
        self._tick_s = tick_s
        self._poll = select.poll()
        self._watched: dict[int, Watched] = {}
        """Open memory.events → leaf."""
        self._populated: dict[int, Watched] = {}
        """Open cgroup.events → leaf."""
        self._ending: set[tuple[str, str]] = set()
        """Calls without processes whose memory is still to come back."""
        self._used_at_s = float("-inf")
        self._stepped_at_s = float("-inf")
        self._notices: list[act.Action] = []
        self.reactions_s: list[float] = []
        """Seconds from waking up with a braking event to its action being written."""

    def add_sandbox(self, sandbox: Sandbox) -> None:
        self.tree.add_sandbox(sandbox.name)
        self._step([SandboxStarted(sandbox)])
        self.tree.set_agent_lease(sandbox.name, self.state.ledger.sandboxes[sandbox.name].agent_bytes)
        self._watch(self._watched, "memory.events", Watched(sandbox.name, None, agent_group(sandbox.name)))

    def end_sandbox(self, name: str) -> None:
        self._unwatch(self._watched, "memory.events", agent_group(name))
        self._step([SandboxEnded(name)])

    def ask(self, request: Request) -> None:
        self._step([Asked(request)])

    def withdraw(self, call: str) -> None:
        self._step([Withdrawn(call)])

    def watch(self, descriptor: int) -> None:
        """Has `wait` return when the descriptor of another, such as a socket, can be read."""
        self._poll.register(descriptor, select.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)

    def wait(self, longest_s: float) -> tuple[list[int], list[act.Action]]:
        """Waits for an event or a timer and acts. Returns the readable descriptors of others, and all new actions."""
        now_s = self._clock()
        tick_s = SHORTAGE_TICK_S if self._is_short() else self._tick_s
        wake_s = min(now_s + longest_s, self._timer_s(), self._used_at_s + tick_s)
        ready = self._poll.poll(round(max(0.0, wake_s - now_s) * 1e3))
        woken_s = self._clock()
        events: list[Event] = []
        others: list[int] = []
        for descriptor, _ in ready:
            if descriptor in self._watched:
                events.extend(self._braked(descriptor))
            elif descriptor in self._populated:
                self._emptied(descriptor)
            else:
                others.append(descriptor)
        braked = bool(events)
        events.extend(self._gone())
        if self._clock() >= self._used_at_s + tick_s:
            events.append(self._readings())
            events.extend(self._tied())
        if events or self._timer_s() <= self._clock():
            self._step(events)
        if braked:
            self.reactions_s.append(self._clock() - woken_s)
            if self._is_short():  # the brake was answered; what others do not use may still help
                self._step([self._readings()])
        notices, self._notices = self._notices, []
        return others, notices

    def _timer_s(self) -> float:
        return next_timer_s(self.state, self.settings, self._stepped_at_s)

    def _step(self, events: list[Event]) -> None:
        self._stepped_at_s = self._clock()
        self.state, actions = step(self.state, events, self._stepped_at_s, self.settings)
        for action in actions:
            self._apply(action)
        self._notices.extend(actions)

    def _apply(self, action: act.Action) -> None:
        match action:
            case act.Admit(call, sandbox, lease_bytes):
                self._add_call(sandbox, call, lease_bytes)
            case act.SetLease(call, lease_bytes):
                self._set_lease(self._sandbox_of(call), call, lease_bytes)
            case act.Freeze(call):
                self.tree.freeze(self._sandbox_of(call), call)
            case act.Thaw(call):
                self.tree.thaw(self._sandbox_of(call), call)
            case act.SetCpuWeight(call, weight):
                self.tree.set_cpu_weight(self._sandbox_of(call), call, weight)
            case act.Reclaim(call, reclaim_bytes):
                with contextlib.suppress(OSError):  # the kernel found less: the next rung follows
                    self.tree.reclaim(self._sandbox_of(call), call, reclaim_bytes)
            case act.Kill(call):
                self.tree.kill(self._sandbox_of(call), call)
            case act.KillAgent(sandbox):
                self.tree.kill_agent(sandbox)
            case act.SetAgentLease(sandbox, lease_bytes):
                self.tree.set_agent_lease(sandbox, lease_bytes)
            case act.Queue() | act.Refuse() | act.AskToShrink():
                pass  # notices for the agent

    def _sandbox_of(self, call: str) -> str:
        return self.state.calls[call].request.sandbox

    def _add_call(self, sandbox: str, call: str, lease_bytes: int) -> None:
        group = self.tree.add_call(sandbox, call, lease_bytes, Limits(max_bytes=lease_bytes + WALL_SLACK_BYTES))
        watched = Watched(sandbox, call, group)
        self._watch(self._watched, "memory.events", watched)
        self._watch(self._populated, "cgroup.events", watched)

    def _watch(self, table: dict[int, Watched], file: str, watched: Watched) -> None:
        descriptor = self._files.file(watched.group, file)
        self._files.read(watched.group, file)  # the first poll reports changes since the last read
        table[descriptor] = watched
        self._poll.register(descriptor, select.POLLPRI)

    def _unwatch(self, table: dict[int, Watched], file: str, group: str) -> None:
        descriptor = self._files.file(group, file)
        if table.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _is_short(self) -> bool:
        """Whether something waits for memory, so that the readings are worth their cost."""
        return bool(
            self._ending
            or self.state.queue
            or self.state.agents_want
            or any(call.wants_more or call.frozen for call in self.state.calls.values())
        )

    def _set_lease(self, sandbox: str, call: str, lease_bytes: int) -> None:
        """The wall moves with the brake, always behind it."""
        group = call_group(sandbox, call)
        used_bytes = self.tree.used_bytes(group)
        self.tree.set_max(sandbox, call, max(lease_bytes, used_bytes) + WALL_SLACK_BYTES)
        self.tree.set_lease(sandbox, call, lease_bytes)

    def _braked(self, descriptor: int) -> list[Event]:
        watched = self._watched[descriptor]
        high = self.tree.events(watched.group).high
        if high <= watched.high:
            return []
        self._watched[descriptor] = replace(watched, high=high)
        used_bytes = self.tree.used_bytes(watched.group)
        if watched.call is None:
            return [Used({}, {watched.sandbox: used_bytes}, complete=False)]
        return [ReachedLease(watched.call, used_bytes)]

    def _emptied(self, descriptor: int) -> None:
        watched = self._populated[descriptor]
        if watched.call is not None and "populated 0" in self._files.read(watched.group, "cgroup.events"):
            self._ending.add((watched.sandbox, watched.call))

    def _gone(self) -> list[Event]:
        """Ends of calls whose memory came back; their leaves are removed."""
        events: list[Event] = []
        for sandbox, call in list(self._ending):
            if not self.tree.is_gone(sandbox, call):
                continue
            group = call_group(sandbox, call)
            peak_bytes = self.tree.peak_bytes(group)
            self._unwatch(self._watched, "memory.events", group)
            self._unwatch(self._populated, "cgroup.events", group)
            try:
                self.tree.remove_call(sandbox, call)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                continue  # until the last process is reaped
            self._ending.discard((sandbox, call))
            events.append(Ended(call, peak_bytes))
        return events

    def _tied(self) -> list[Event]:
        """Changes of which frozen calls hold a pipe that a running one needs."""
        feeds = self.tied_calls()
        return [
            FeedsRunner(call.name, call.name in feeds)
            for call in self.state.calls.values()
            if call.feeds_runner != (call.name in feeds)
        ]

    def tied_calls(self) -> frozenset[str]:
        """Frozen calls that hold an end of a pipe whose other end a running call holds."""
        calls = self.state.calls.values()
        if not any(call.frozen for call in calls):
            return frozenset()
        frozen = {call.name: self._pipes_of(call.name) for call in calls if call.frozen}
        running = {call.name: self._pipes_of(call.name) for call in calls if not call.frozen}
        return feeding(frozen, running)

    def _pipes_of(self, call: str) -> PipeEnds:
        group = call_group(self._sandbox_of(call), call)
        return pipe_ends(int(pid) for pid in self._files.read(group, "cgroup.procs").split())

    def _readings(self) -> Used:
        self._used_at_s = self._clock()
        calls, agents = {}, {}
        for watched in self._watched.values():
            used_bytes = self.tree.used_bytes(watched.group)
            if watched.call is None:
                agents[watched.sandbox] = used_bytes
            else:
                calls[watched.call] = used_bytes
        return Used(calls, agents)


def lower_own_risk() -> None:
    """Makes this process the kernel's last choice when memory runs out."""
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"-999")
    finally:
        os.close(descriptor)
