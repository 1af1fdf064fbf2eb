"""Runs of agents on a node that is too small: cases, policies, the processes of a run, and what became of them."""

import json
import math
import mmap
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tests.rigs.sandboxes.traces import AgentTrace, generated, paper_trio, trace_from

SandboxPolicyName = Literal["unlimited", "none", "static", "high-rule", "pressure", "pressure-brake", "whole-claims"]
OURS: SandboxPolicyName = "whole-claims"
PRESSURE: tuple[SandboxPolicyName, ...] = ("pressure", "pressure-brake")
"""Those that kill by pressure, which a kernel without it cannot run."""


@dataclass(frozen=True, slots=True)
class SandboxRun:
    """One run: agents, policy, budget. Memory in unscaled MiB, times in unscaled seconds."""

    policy: SandboxPolicyName
    agents: tuple[AgentTrace, ...]
    priorities: tuple[int, ...]
    delays_s: tuple[float, ...]
    budget_mib: float
    hints: tuple[tuple[float, ...], ...]
    """Hint over true peak of every phase's call, agent by agent; 0: no hint."""
    memory_scale: float
    time_scale: float
    base_hint: float = 1.0
    """Declared over true memory of the agents' own processes."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What became of one agent."""

    name: str
    priority: int
    survived: bool
    for_s: float
    """Time to its end, unscaled; of a dead one, until it died."""
    stalled_s: float
    calls: int
    killed_calls: int
    refused_calls: int


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What became of one run."""

    policy: SandboxPolicyName
    agents: tuple[AgentResult, ...]
    kernel_kills: int
    """Processes that the kernel killed for want of memory."""
    freezes: int
    queued: int
    peak_mib: float
    controller_cpu_s: float
    reactions_ms: tuple[float, ...]
    reasons: dict[str, int]


def as_json(run: SandboxRun) -> dict[str, Any]:
    return {**asdict(run), "agents": [agent.as_json() for agent in run.agents]}


def run_from(content: dict[str, Any]) -> SandboxRun:
    """Inverse of `as_json`, after JSON made lists of tuples."""
    agents = tuple(trace_from(agent) for agent in content["agents"])
    hints = tuple(tuple(row) for row in content["hints"])
    others: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in content.items()
        if key not in ("agents", "hints")
    }
    return SandboxRun(agents=agents, hints=hints, **others)


BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class ReplayScale:
    """Replayed memory and time as fractions of the trace's."""

    memory: float
    time: float

    def bytes_of(self, mib: float) -> int:
        return round(mib * self.memory * BLOCK)


class HeldMemory:
    """Anonymous memory of this process, written to page by page."""

    def __init__(self) -> None:
        self._blocks: list[mmap.mmap] = []

    def hold(self, total_bytes: int) -> None:
        blocks = round(total_bytes / BLOCK)
        while len(self._blocks) > blocks:
            self._blocks.pop().close()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        while len(self._blocks) < blocks:
            self._blocks.append(mmap.mmap(-1, BLOCK, flags=flags))


def run_agent(trace: AgentTrace, line: socket.socket, scale: ReplayScale, delay_s: float, first_base_mib: float) -> int:
    """The agent: closed loop, so that a call that waits delays all that follows. Asks for calls over the line.

    first_base_mib: what this process takes by itself already, unscaled MiB.
    """
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    memory = HeldMemory()
    reader = line.makefile("r", encoding="utf-8")
    time.sleep(delay_s)
    began_s = time.monotonic()
    stalled_s = 0.0
    for number, phase in enumerate(trace.phases):
        memory.hold(max(0, scale.bytes_of(phase.base_mib) - round(first_base_mib * BLOCK)))
        time.sleep(phase.think_s * scale.time)
        if phase.call is None:
            continue
        asked_s = time.monotonic()
        line.sendall(json.dumps({"call": number}).encode() + b"\n")
        reader.readline()
        stalled_s += max(0.0, time.monotonic() - asked_s - phase.call.for_s * scale.time)
    done = {"done": True, "for_s": time.monotonic() - began_s, "stalled_s": stalled_s}
    line.sendall(json.dumps(done).encode() + b"\n")
    return 0


def run_call(samples: Sequence[tuple[float, float]], scale: ReplayScale) -> int:
    """The tool call: holds what its trace held; a stall delays the rest."""
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    memory = HeldMemory()
    at_s = 0.0
    late_s = 0.0
    for sample_s, mib in samples:
        # A stall in an allocation is not caught up with by sleeping less: work takes as long as it takes.
        time.sleep(max(0.0, (sample_s - at_s) * scale.time - late_s))
        at_s = sample_s
        began_s = time.monotonic()
        memory.hold(scale.bytes_of(mib))
        took_s = time.monotonic() - began_s
        late_s = min(took_s, 0.002)  # the guest's slow page faults are no part of the trace
    return 0


def set_oom_score(score: int) -> None:
    Path("/proc/self/oom_score_adj").write_text(str(score), encoding="ascii")


def close_inherited(keep: set[int]) -> None:
    """Closes descriptors of the parent, so that an end of a line is seen when its owner ends."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:
                continue


@dataclass(frozen=True, slots=True)
class Pressure:
    """Time since the group was made in which processes waited for memory."""

    some_stall_s: float
    """At least one of them did."""
    full_stall_s: float
    """All that could have run did."""


def pressure_of(text: str) -> Pressure:
    """Content of a `memory.pressure` file (Documentation/accounting/psi.rst)."""
    totals = {kind: int(fields[-1].removeprefix("total=")) for kind, *fields in map(str.split, text.splitlines())}
    return Pressure(totals["some"] / 1e6, totals["full"] / 1e6)


@dataclass(frozen=True, slots=True)
class PressureRule:
    """Limits beyond which something is killed. Times are of the replay, the kernel's divided by its speed."""

    full_share: float
    """Limit of the share of time in which all wait."""
    for_s: float
    """Time that the share must stay above it."""
    window_s: float
    """Time constant of the average: 10 s for the kernel's avg10."""
    rest_s: float
    """Time after a kill in which nothing is: the average still remembers what it relieved."""


@dataclass(slots=True)
class PressureWatch:
    """Average of the pressure and since when it is too high.

    The kernel's avg10 cannot run faster with a replay, so that the average is made anew of the total, as the kernel
    makes it: exponentially weighted.
    """

    rule: PressureRule
    average: float = 0.0
    _read_at_s: float = -math.inf
    _stall_s: float = 0.0
    _above_since_s: float | None = None
    _killed_at_s: float = -math.inf

    def is_due(self, now_s: float, pressure: Pressure) -> bool:
        """Whether something is to be killed now."""
        since_s = now_s - self._read_at_s
        stall_s, self._stall_s, self._read_at_s = pressure.full_stall_s - self._stall_s, pressure.full_stall_s, now_s
        if not math.isfinite(since_s) or since_s <= 0:
            return False
        kept = math.exp(-since_s / self.rule.window_s)
        self.average = kept * self.average + (1 - kept) * min(1.0, stall_s / since_s)
        if self.average <= self.rule.full_share:
            self._above_since_s = None
            return False
        if self._above_since_s is None:
            self._above_since_s = now_s
        if now_s < max(self._above_since_s + self.rule.for_s, self._killed_at_s + self.rule.rest_s):
            return False
        self._killed_at_s = now_s
        return True


Case = Literal["trio", "infeasible", "mixed"]
HINT_ERROR = 0.3


def agents_of(
    case: Case,
    seed: int,
    chance: np.random.Generator,
    known: Sequence[AgentTrace],
    count: int,
    density: float,
) -> tuple[tuple[AgentTrace, ...], float]:
    """Agents of a case, the first of high priority, and the node's budget in MiB."""
    if case == "mixed":
        pool = known or [generated(f"generated-{index}", 1000 * seed + index) for index in range(count)]
        chosen = tuple(pool[index] for index in chance.permutation(len(pool))[:count])
        # A static limit must hold the largest peak of the set: which task comes next is not known.
        return chosen, count * max(agent.peak_mib for agent in pool) / density
    trio = paper_trio(seed)
    share = {"trio": 0.87, "infeasible": 0.55}[case]
    return trio, share * sum(agent.peak_mib for agent in trio)


def runs_of(
    policies: Sequence[str],
    agents: tuple[AgentTrace, ...],
    budget_mib: float,
    memory_scale: float,
    time_scale: float,
    chance: np.random.Generator,
) -> Iterator[SandboxRun]:
    delays_s = tuple(float(delay) for delay in chance.uniform(0, 3 if len(agents) == 3 else 60, len(agents)))
    hints = tuple(
        tuple(float(hint) for hint in chance.uniform(1 - HINT_ERROR, 1 + HINT_ERROR, len(agent.phases)))
        for agent in agents
    )
    priorities = tuple(int(index % 4 == 0) for index in range(len(agents)))
    for policy in get_args(SandboxPolicyName):
        if policy in policies:
            yield SandboxRun(policy, agents, priorities, delays_s, budget_mib, hints, memory_scale, time_scale)
