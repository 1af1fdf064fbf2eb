"""Traces of coding agents: memory of the agent's own processes, and tool calls with theirs over time."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import ConfigError, Mistake

MIB = 1 << 20

SHELLS = frozenset({"Bash"})
"""Tools whose calls run programs; the others read and write files in the agent's own process."""


@dataclass(frozen=True, slots=True)
class CallTrace:
    """One tool call."""

    command_class: str
    samples: tuple[tuple[float, float], ...]
    """(seconds since its start, MiB), rising in time; the last sample is its end."""

    @property
    def for_s(self) -> float:
        return self.samples[-1][0]

    @property
    def peak_mib(self) -> float:
        return max(mib for _, mib in self.samples)


@dataclass(frozen=True, slots=True)
class AgentPhase:
    """The agent thinks, then runs a call, or ends."""

    think_s: float
    base_mib: float
    """Memory of the agent's own processes from its start on."""
    call: CallTrace | None


@dataclass(frozen=True, slots=True)
class AgentTrace:
    """One agent's run."""

    name: str
    phases: tuple[AgentPhase, ...]

    @property
    def peak_mib(self) -> float:
        return max(phase.base_mib + (phase.call.peak_mib if phase.call else 0.0) for phase in self.phases)

    @property
    def base_mib(self) -> float:
        return max(phase.base_mib for phase in self.phases)

    @property
    def for_s(self) -> float:
        return sum(phase.think_s + (phase.call.for_s if phase.call else 0.0) for phase in self.phases)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def trace_from(content: dict[str, Any]) -> AgentTrace:
    """Inverse of `as_json`."""
    return AgentTrace(
        content["name"],
        tuple(
            AgentPhase(
                phase["think_s"],
                phase["base_mib"],
                CallTrace(phase["call"]["command_class"], tuple((s, mib) for s, mib in phase["call"]["samples"]))
                if phase["call"]
                else None,
            )
            for phase in content["phases"]
        ),
    )


# Of 8,110 published calls: share among calls with programs, median and 95th percentile of the rise in MiB, and median
# seconds. Log-normal: sigma = ln(p95 / median) / 1.645.
CLASSES = {
    "test": (0.40, 11.0, 120.0, 4.0),
    "install": (0.12, 9.0, 105.0, 6.0),
    "python": (0.38, 3.0, 34.0, 2.0),
    "build": (0.10, 8.0, 131.0, 8.0),
}
THINK_S = 5.0
"""Median between calls: two thirds of a run are without a call."""
LARGEST_MIB = 2000.0
"""Largest rise of a published call is 1797 MiB."""


def generated(name: str, seed: int, *, calls: int = 24) -> AgentTrace:
    """Trace of the published shape: a base near 185 MiB that grows slowly, and bursts by command class."""
    chance = np.random.default_rng(seed)
    base_mib = chance.uniform(150, 190)
    names = list(CLASSES)
    weights = np.array([CLASSES[one][0] for one in names])
    phases = []
    for _ in range(calls):
        command_class = names[chance.choice(len(names), p=weights / weights.sum())]
        think_s = float(THINK_S * chance.lognormal(0.0, 0.6))
        phases.append(AgentPhase(think_s, float(base_mib), _burst(command_class, chance)))
        base_mib += chance.exponential(1.5)
    phases.append(AgentPhase(float(THINK_S), float(base_mib), None))
    return AgentTrace(name, tuple(phases))


def _burst(command_class: str, chance: np.random.Generator) -> CallTrace:
    """A call that loads for a third of its time, works at its peak, and drops a part before its end."""
    _, median, high, median_s = CLASSES[command_class]
    peak_mib = min(LARGEST_MIB, float(median * chance.lognormal(0.0, np.log(high / median) / 1.645)))
    for_s = float(np.clip(median_s * chance.lognormal(0.0, 0.9), 0.5, 120.0))
    points = [(0.0, 0.1), (0.1, 0.4), (0.33, 0.8), (0.5, 1.0), (0.8, 1.0), (0.95, 0.5), (1.0, 0.5)]
    samples = tuple((share * for_s, max(0.5, fraction * peak_mib)) for share, fraction in points)
    return CallTrace(command_class, samples)


def paper_trio(seed: int, *, rounds: int = 2) -> tuple[AgentTrace, ...]:
    """Three agents in the manner of AgentCgroup's evaluation: peaks of 421, 406 and 406 MiB, and bursts that collide.

    Each has a base of 100 MiB, and heavy test runs among light ones. All three run the tests at the same times, but
    for seconds: the case in which their peaks meet.
    """
    chance = np.random.default_rng(seed)
    pauses_s = chance.uniform(4, 10, size=rounds)
    agents = []
    for name, peak_mib in (("high", 421.0), ("low-1", 406.0), ("low-2", 406.0)):
        phases = []
        for pause_s in pauses_s:
            light = CallTrace("python", ((0.0, 1.0), (0.5, float(chance.uniform(2, 20))), (1.0, 1.0)))
            phases.append(AgentPhase(float(pause_s), 100.0, light))
            heavy_s = float(chance.uniform(14, 18))
            burst = peak_mib - 100.0
            points = [(0.0, 0.05), (0.2, 0.4), (0.4, 0.9), (0.5, 1.0), (0.85, 1.0), (1.0, 0.6)]
            samples = tuple((share * heavy_s, fraction * burst) for share, fraction in points)
            phases.append(AgentPhase(float(chance.uniform(2, 4)), 100.0, CallTrace("test", samples)))
        phases.append(AgentPhase(2.0, 100.0, None))
        agents.append(AgentTrace(name, tuple(phases)))
    return tuple(agents)


def published(path: Path) -> tuple[AgentTrace, ...]:
    """Traces of `tool_call_traces.json.gz`. Raises ConfigError."""
    try:
        runs = json.loads(gzip.decompress(path.read_bytes()))["runs"]
        return tuple(_from_run(run) for run in runs)
    except (OSError, ValueError, KeyError) as error:
        problem = f"it cannot be read as agent traces: {error}"
        raise ConfigError(Mistake(str(path), problem, "docs/benchmarks.md names its origin")) from error


def _from_run(run: dict[str, Any]) -> AgentTrace:
    """Splits the container's memory: what rises during a program's call is the call's, all else the agent's."""
    times, memory = np.array([(sample[0], sample[1]) for sample in run["samples"]]).T
    phases = []
    at_s = 0.0
    for start_s, end_s, command_class in _merged_calls(run["tool_calls"]):
        base_mib = float(np.interp(start_s, times, memory))
        inside = [(t, m) for t, m in zip(times, memory, strict=True) if start_s < t < end_s]
        rise = [(float(t - start_s), max(0.5, float(m - base_mib))) for t, m in inside]
        last = float(np.interp(end_s, times, memory))
        samples = ((0.0, 0.5), *rise, (end_s - start_s, max(0.5, last - base_mib)))
        phases.append(AgentPhase(max(0.0, start_s - at_s), base_mib, CallTrace(command_class, samples)))
        at_s = end_s
    end_mib = float(memory[-1])
    phases.append(AgentPhase(max(0.0, float(times[-1]) - at_s), end_mib, None))
    return AgentTrace(run["id"], tuple(phases))


def _merged_calls(calls: Sequence[Sequence[Any]]) -> list[tuple[float, float, str]]:
    """Calls that run programs, in time; overlapping ones count as one."""
    merged: list[tuple[float, float, str]] = []
    for start_s, end_s, tool, command_class in sorted(calls, key=lambda call: float(call[0])):
        if tool not in SHELLS or end_s <= start_s:
            continue
        if merged and start_s < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_s, merged[-1][1]), merged[-1][2])
        else:
            merged.append((float(start_s), float(end_s), command_class or "other:"))
    return merged
