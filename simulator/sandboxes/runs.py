"""Runs of agents under one policy, and what became of them: the same for the guest kernel and for the model."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from simulator.sandboxes.traces import AgentTrace, trace_from

Policy = Literal[
    "unlimited", "none", "static", "high-rule", "pressure", "pressure-brake", "whole-claims", "growing-leases"
]
PRESSURE: tuple[Policy, ...] = ("pressure", "pressure-brake")
"""Those that kill by pressure, which a kernel without it cannot run."""
OURS: tuple[Policy, ...] = ("whole-claims", "growing-leases")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: agents, policy, budget. Memory in unscaled MiB, times in unscaled seconds."""

    policy: Policy
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
class Result:
    """What became of one run."""

    policy: Policy
    agents: tuple[AgentResult, ...]
    kernel_kills: int
    """Processes that the kernel killed for want of memory."""
    freezes: int
    queued: int
    peak_mib: float
    controller_cpu_s: float
    reactions_ms: tuple[float, ...]
    reasons: dict[str, int]


def as_json(run: Run) -> dict[str, Any]:
    return {**asdict(run), "agents": [agent.as_json() for agent in run.agents]}


def run_from(content: dict[str, Any]) -> Run:
    """Inverse of `as_json`, after JSON made lists of tuples."""
    agents = tuple(trace_from(agent) for agent in content["agents"])
    hints = tuple(tuple(row) for row in content["hints"])
    others = {key: _tuple(value) for key, value in content.items() if key not in ("agents", "hints")}
    return Run(agents=agents, hints=hints, **others)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
