"""One run of the churn benchmark (policy, seed, trace, load), as a pure function that any process can execute."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

from cluster.snapshot import Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.openb.trace_reader import read_trace
from simulator.packing.churn import Churn, churning_stream, mean_allocation_pct
from simulator.packing.replay import Conditions, replay

Record = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ChurnRun:
    """One replay of a trace whose pods leave."""

    trace: str
    load: float
    seed: int
    policy: str


@dataclass(frozen=True, slots=True)
class ChurnSetup:
    """Parameters of all runs."""

    nodes: Path
    traces: tuple[tuple[str, Path], ...]
    """Name and pod CSV of each trace."""
    stays: str
    warm_up: float
    measured: float

    def churn(self, load: float) -> Churn:
        return Churn(load, self.stays, self.warm_up, self.measured)


def churn_runs(
    traces: Sequence[str], loads: Sequence[float], seeds: Sequence[int], policies: Sequence[str]
) -> tuple[ChurnRun, ...]:
    """Every combination. Seed by seed, so that an interrupted benchmark has about as many seeds of each policy."""
    return tuple(ChurnRun(*parts) for parts in product(traces, loads, seeds, policies))


def play(run: ChurnRun, setup: ChurnSetup) -> Record:
    """Replays a run; returns its JSON line. Arrivals and stays depend on trace, load and seed alone."""
    trace = _trace(setup.nodes, dict(setup.traces)[run.trace])
    expected = tuple(trace.pods.shapes[index] for index in trace.pods.shape)
    # FGD knows the pods of the list, as in the published runs; `tonnage-learning` knows only past arrivals.
    policy = policy_named(run.policy, Knowledge(trace, expected, run.seed))
    stream = churning_stream(trace, run.seed, setup.churn(run.load))
    packer = Packer.of(trace, policy, content_rank(trace, run.seed))
    played = replay(trace, stream.pods, packer, time.process_time, run.seed, Conditions(stay=stream.stay))
    return {
        "pods": run.trace,
        "load": run.load,
        "stays": setup.stays,
        "policy": run.policy,
        "seed": run.seed,
        "allocation_pct": round(mean_allocation_pct(played, stream), 4),
        "arrivals": len(stream.pods),
        "unplaced": sum(played.unplaced.values()),
        "decision_cpu_ms": round(float(played.decision_s.mean()) * 1000.0, 4),
        "upkeep_cpu_s": round(played.upkeep_s, 3),
    }


@lru_cache(maxsize=4)
def _trace(nodes: Path, pods: Path) -> Snapshot:
    return read_trace(nodes, pods)
