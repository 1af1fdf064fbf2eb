"""Replay of agents in the guest under one policy: its cgroups, its processes, and what became of every agent."""

import json
import os
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from isolation import state as act
from isolation.admission import claim_bytes
from isolation.cgroupfs import CgroupFs
from isolation.ledger import MIB, Sandbox
from isolation.settings import Settings
from isolation.state import CallDemand
from isolation.tree import CONTROLLERS
from nodeagent.sandboxes.enforcer import Enforcer, lower_own_risk
from tests.rigs.launcher import run_in
from tests.rigs.sandboxes.runs import (
    OURS,
    PRESSURE,
    AgentResult,
    PressureRule,
    PressureWatch,
    ReplayScale,
    SandboxPolicyName,
    SandboxResult,
    SandboxRun,
    close_inherited,
    pressure_of,
    run_agent,
    run_call,
    run_from,
    set_oom_score,
)
from tests.rigs.sandboxes.traces import AgentTrace, CallTrace

ROOT = Path("/sys/fs/cgroup")
FOLDER = "replay"

HIGH_RULE_SHARE = 0.985
"""memory.high of the low agents as a share of their known peak: AgentCgroup's setting (400 of 406 MiB)."""

PROCESS_MIB = 3.0
"""What an agent's and a call's process take by themselves: forked Python."""


PRESSURE_RULES: Mapping[SandboxPolicyName, PressureRule] = {
    "pressure": PressureRule(full_share=0.6, for_s=30.0, window_s=10.0, rest_s=15.0),
    "pressure-brake": PressureRule(full_share=0.1, for_s=1.0, window_s=10.0, rest_s=15.0),
}
"""In unscaled time. `pressure`: systemd-oomd's defaults (src/oom/oomd-manager.h). `pressure-brake`: the shortest
duration that it takes, and a low limit."""
PRESSURE_BRAKE_SHARE = 0.95
"""memory.high of all agents together as a share of the node's limit, so that memory runs short before it runs out:
without swap, processes die at the limit before any has waited. Chosen."""


class Arena:
    """Cgroups of one run. This process becomes the kernel's last choice, and the first to run."""

    def __init__(self, run: SandboxRun) -> None:
        self.run = run
        self.scale = ReplayScale(run.memory_scale, run.time_scale)
        self.files = CgroupFs(ROOT)
        self.files.make(FOLDER)
        self.files.write(FOLDER, "cgroup.subtree_control", " ".join(f"+{one}" for one in CONTROLLERS))
        self.below = CgroupFs(ROOT / FOLDER)
        # What the replay's processes take by themselves: an agent and one call each, at most.
        self.budget = self.scale.bytes_of(run.budget_mib) + round(len(run.agents) * 2 * PROCESS_MIB * MIB)
        if run.policy != "unlimited":
            self.files.write(FOLDER, "memory.max", str(self.budget))
        self.pressure: PressureWatch | None = None
        if run.policy in PRESSURE:
            rule, speed = PRESSURE_RULES[run.policy], run.time_scale
            scaled = PressureRule(rule.full_share, rule.for_s * speed, rule.window_s * speed, rule.rest_s * speed)
            self.pressure = PressureWatch(scaled)
        if run.policy == "pressure-brake":
            self.files.write(FOLDER, "memory.high", str(round(PRESSURE_BRAKE_SHARE * self.budget)))
        self.enforcer = Enforcer(self.below, self.budget, self._settings(), time.monotonic)
        self.enforcer.tree.prepare()
        lower_own_risk()
        os.setpriority(os.PRIO_PROCESS, 0, -20)

    def _settings(self) -> Settings:
        """The defaults, at the run's scale of memory and time."""
        memory, real = self.run.memory_scale, Settings()
        speed = self.run.time_scale
        return replace(
            real,
            lease_step_bytes=round(real.lease_step_bytes * memory),
            agent_slack_bytes=round(real.agent_slack_bytes * memory),
            frozen_s=real.frozen_s * max(speed, 0.1),
            starvation_s=real.starvation_s * max(speed, 0.1),
            longest_wait_s=real.longest_wait_s * max(speed, 0.1),
        )

    def add_sandbox(self, index: int, name: str, trace: AgentTrace) -> None:
        """The sandbox's groups with the policy's limits; the kubelet sets memory.oom.group on containers."""
        policy = self.run.policy
        if policy == OURS:
            base_bytes = self.scale.bytes_of(trace.base_mib * self.run.base_hint) + round(2 * PROCESS_MIB * MIB)
            kept_bytes = base_bytes + self._largest_claim(index, trace) if self.run.priorities[index] else 0
            self.enforcer.add_sandbox(Sandbox(name, self.budget, self.run.priorities[index], kept_bytes, base_bytes))
            return
        self.enforcer.tree.add_sandbox(name)
        self.below.write(name, "memory.oom.group", "1")
        if policy == "static":
            self.below.write(name, "memory.max", str(self.budget // len(self.run.agents)))
        if policy == "high-rule" and self.run.priorities[index] == 0:
            high = HIGH_RULE_SHARE * self.scale.bytes_of(trace.peak_mib) + 2 * PROCESS_MIB * MIB
            self.below.write(name, "memory.high", str(round(high)))

    def _largest_claim(self, index: int, trace: AgentTrace) -> int:
        """Largest declared need of the agent's calls, which is guaranteed to agents of a higher priority; little more
        than the true one, since an operator guarantees it, and no call."""
        hints = zip(self.run.hints[index], trace.phases, strict=True)
        largest = max(
            (min(hint, 1.3) * phase.call.peak_mib for hint, phase in hints if phase.call is not None), default=0.0
        )
        return self.scale.bytes_of(largest) + round(PROCESS_MIB * MIB)

    def relieve(self) -> str:
        """Kills the sandbox that holds most where pressure is due; its name, or none.

        A group with memory.oom.group goes as a whole, as under systemd-oomd. That takes the one that reclaims most,
        which says nothing of anonymous memory without swap.
        """
        pressure = pressure_of(self.files.read(FOLDER, "memory.pressure"))
        if self.pressure is None or not self.pressure.is_due(time.monotonic(), pressure):
            return ""
        held = {name: int(self.below.read(name, "memory.current")) for name in self.below.children("")}
        victim = max(held, key=held.__getitem__)
        self.below.write(victim, "cgroup.kill", "1")
        return victim

    def events(self) -> Mapping[str, int]:
        """Counts of the kernel, such as `oom_kill`."""
        lines = self.files.read(FOLDER, "memory.events").splitlines()
        return {name: int(count) for name, count in (line.split() for line in lines)}

    def peak_mib(self) -> float:
        """Most that all held together, unscaled."""
        return int(self.files.read(FOLDER, "memory.peak")) / MIB / self.run.memory_scale

    def clear(self) -> None:
        """Kills what is left and removes all groups, so that the next run finds none."""
        self.files.write(FOLDER, "cgroup.kill", "1")
        for _ in range(500):
            _reap()
            if "populated 0" in self.files.read(FOLDER, "cgroup.events"):
                break
            select.select([], [], [], 0.01)
        for sandbox in self.below.children(""):
            for leaf in self.below.children(sandbox):
                self.below.remove(f"{sandbox}/{leaf}")
            self.below.remove(sandbox)
        self.below.close()
        self.files.remove(FOLDER)
        self.files.close()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


PRESSURE_TICK_S = 0.02
"""Between looks of a killer by pressure: systemd-oomd's second at a fiftieth of the time."""

TIMEOUT_FACTOR, SHORTEST_TIMEOUT_S = 8.0, 200.0
"""Times the longest trace, and seconds at least, after which a run is given up: something is stuck."""


def run_in_guest(content: dict[str, Any]) -> dict[str, Any]:
    """Called in the guest: replays, result as JSON."""
    return asdict(SandboxReplay(run_from(content)).result())


@dataclass
class _Agent:
    trace: AgentTrace
    priority: int
    hints: tuple[float, ...]
    name: str
    line: socket.socket
    pid: int
    pidfd: int
    began_s: float
    pending: bytes = b""
    result: AgentResult | None = None
    calls: int = 0
    killed: int = 0
    refused: int = 0


@dataclass
class _Call:
    agent: _Agent
    number: int
    name: str
    group: str = ""
    pidfd: int = -1
    pid: int = 0


@dataclass
class SandboxReplay:
    """One run. The process is the node agent: it starts the calls, and enforces where the policy is ours."""

    run: SandboxRun
    agents: dict[int, _Agent] = field(default_factory=dict)
    """By the descriptor of their line."""
    calls: dict[str, _Call] = field(default_factory=dict)
    by_pidfd: dict[int, _Call | _Agent] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arena = Arena(self.run)
        self.scale, self.enforcer = self.arena.scale, self.arena.enforcer

    def result(self) -> SandboxResult:
        try:
            self._start_agents()
            cpu_s = time.process_time()
            longest_s = self.scale.time * max(
                agent.for_s + delay for agent, delay in zip(self.run.agents, self.run.delays_s, strict=True)
            )
            give_up_s = time.monotonic() + max(SHORTEST_TIMEOUT_S, TIMEOUT_FACTOR * longest_s)
            while any(agent.result is None for agent in self.agents.values()):
                if time.monotonic() > give_up_s:
                    self.reasons["GIVEN_UP"] = 1
                    break
                if self.arena.pressure is not None and self.arena.relieve():
                    self._count("PRESSURE")
                ready, notices = self.enforcer.wait(PRESSURE_TICK_S if self.arena.pressure is not None else 0.1)
                for action in notices:
                    kind = type(action).__name__
                    self.counts[kind] = self.counts.get(kind, 0) + 1
                    match action:
                        case act.Admit(call):
                            self._start_call(self.calls[call])
                        case act.Refuse(call, _, reason):
                            self._count(reason)
                            self.calls[call].agent.refused += 1
                            self._answer(self.calls.pop(call), "refused")
                        case act.Kill(_, reason) | act.KillAgent(_, reason) | act.Freeze(_, reason):
                            self._count(reason)
                for descriptor in ready:
                    if descriptor in self.agents:
                        self._receive(descriptor)
                    elif descriptor in self.by_pidfd:
                        self._exited(descriptor)
            return self._summary(time.process_time() - cpu_s)
        finally:
            for agent in self.agents.values():
                agent.line.close()
            self.arena.clear()

    def _start_agents(self) -> None:
        for index, trace in enumerate(self.run.agents):
            name = f"agent-{index}"
            self.arena.add_sandbox(index, name, trace)
            ours, theirs = socket.socketpair()
            delay_s = self.run.delays_s[index] * self.scale.time

            def program(trace: AgentTrace = trace, line: socket.socket = theirs, delay_s: float = delay_s) -> int:
                close_inherited({line.fileno()})
                set_oom_score(-500 if self.run.policy == OURS else 0)
                return run_agent(trace, line, self.scale, delay_s, PROCESS_MIB)

            pid, pidfd = run_in(self.arena.below.folder(f"{name}/agent"), program)
            theirs.close()
            agent = _Agent(
                trace,
                self.run.priorities[index],
                self.run.hints[index],
                name,
                ours,
                pid,
                pidfd,
                time.monotonic() + delay_s,
            )
            self.agents[ours.fileno()] = agent
            self.by_pidfd[pidfd] = agent
            self.enforcer.watch(ours.fileno())
            self.enforcer.watch(pidfd)

    def _count(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def _receive(self, descriptor: int) -> None:
        agent = self.agents[descriptor]
        try:
            chunk = agent.line.recv(65536)
        except ConnectionResetError:  # killed with an answer unread
            chunk = b""
        if not chunk:
            self.enforcer.unwatch(descriptor)
            return
        *lines, agent.pending = (agent.pending + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message.get("done"):
                self._finished(agent, message["for_s"], message["stalled_s"], survived=True)
            else:
                self._asked(agent, int(message["call"]))

    def _asked(self, agent: _Agent, number: int) -> None:
        agent.calls += 1
        call = _Call(agent, number, f"{agent.name}-{number}")
        self.calls[call.name] = call
        if self.run.policy != OURS:
            call.group = f"{agent.name}/call-{call.name}"
            self.arena.below.make(call.group)
            self._start_call(call)
            return
        trace = _call_of(agent, number)
        hint = agent.hints[number]
        hinted = self.scale.bytes_of(trace.peak_mib * (hint or 1.0)) + round(PROCESS_MIB * MIB)
        state, kind = self.enforcer.state, trace.command_class
        sandbox, fraction = state.ledger.sandboxes[agent.name], self.enforcer.settings.learned_fraction
        claim = claim_bytes(hinted, kind, sandbox, state.learned, fraction)
        self.enforcer.ask(CallDemand(call.name, agent.name, time.monotonic(), max(MIB, claim), kind))

    def _start_call(self, call: _Call) -> None:
        trace = _call_of(call.agent, call.number)
        call.group = f"{call.agent.name}/call-{call.name}"

        def program() -> int:
            close_inherited(set())
            set_oom_score(500 if self.run.policy == OURS else 0)
            return run_call(trace.samples, self.scale)

        call.pid, call.pidfd = run_in(self.arena.below.folder(call.group), program)
        self.by_pidfd[call.pidfd] = call
        self.enforcer.watch(call.pidfd)

    def _exited(self, pidfd: int) -> None:
        ended = self.by_pidfd.pop(pidfd)
        self.enforcer.unwatch(pidfd)
        _, status = os.waitpid(ended.pid, 0)
        os.close(pidfd)
        if isinstance(ended, _Agent):
            if ended.result is None and status:
                self._finished(ended, time.monotonic() - ended.began_s, 0.0, survived=False)
            return
        del self.calls[ended.name]
        if self.run.policy != OURS:
            self.arena.below.remove(ended.group)
        if status:
            ended.agent.killed += 1
        self._answer(ended, "killed" if status else "done")

    def _answer(self, call: _Call, how: str) -> None:
        try:
            call.agent.line.sendall(f"{how}\n".encode())
        except OSError:
            return  # its agent is gone

    def _finished(self, agent: _Agent, for_s: float, stalled_s: float, *, survived: bool) -> None:
        real = 1 / self.scale.time
        agent.result = AgentResult(
            agent.trace.name,
            agent.priority,
            survived,
            for_s * real,
            stalled_s * real,
            agent.calls,
            agent.killed,
            agent.refused,
        )
        if self.run.policy == OURS:
            self.enforcer.forget(agent.name)

    def _summary(self, cpu_s: float) -> SandboxResult:
        for agent in self.agents.values():
            if agent.result is None:
                self._finished(agent, time.monotonic() - agent.began_s, 0.0, survived=False)
        results = [agent.result for agent in self.agents.values() if agent.result is not None]
        return SandboxResult(
            self.run.policy,
            tuple(results),
            self.arena.events()["oom_kill"],
            self.counts.get("Freeze", 0),
            self.counts.get("Queue", 0),
            self.arena.peak_mib(),
            cpu_s,
            tuple(reaction * 1e3 for reaction in self.enforcer.reactions_s),
            self.reasons,
        )


def _call_of(agent: _Agent, number: int) -> CallTrace:
    trace = agent.trace.phases[number].call
    if trace is None:
        raise ValueError(f"{agent.name} has no call in phase {number}")
    return trace
