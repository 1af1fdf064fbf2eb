"""One run of the packing benchmark (policy, seed, trace), as a pure function that any process can execute."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from cluster.snapshot import Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.openb.trace_reader import read_trace
from simulator.packing.policy_comparison import bound_pct
from simulator.packing.relocation import cheapest_relocation
from simulator.packing.replay import POINTS_PCT, Conditions, Replay, published_stream, replay, with_renamed_nodes
from simulator.sweep.runner import PolicyRun

Record = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Setup:
    """Parameters of all runs."""

    nodes: Path
    traces: tuple[tuple[str, Path], ...]
    """Name and pod CSV of each trace."""
    prices: tuple[tuple[str, float], ...] = ()
    tell_shares: bool = True
    """Whether policies know the trace's class fractions in advance, as in the published runs, or learn them."""
    rename_nodes: bool = False
    move_share: float = 0.0
    with_bound: bool = True
    jobs: int = 1
    """Number of processes, recorded because they share CPU caches and memory, which affects decision times."""


def play(run: PolicyRun, setup: Setup) -> Record:
    """Replay a run; returns its JSON line."""
    trace = _trace(setup.nodes, dict(setup.traces)[run.trace], setup.prices)
    stream = published_stream(trace, run.seed)
    fleet = with_renamed_nodes(trace, run.seed) if setup.rename_nodes else trace
    expected = tuple(trace.pods.shapes[index] for index in trace.pods.shape) if setup.tell_shares else ()
    policy = policy_named(run.policy, Knowledge(fleet, expected, run.seed))
    # The published runs order equal nodes at random for every seed.
    packer = Packer.of(fleet, policy, content_rank(fleet, run.seed))
    played = replay(fleet, stream, packer, time.perf_counter, run.seed, _conditions(setup))
    bound = _bound_pct(setup.nodes, dict(setup.traces)[run.trace], run.seed) if setup.with_bound else None
    return record_of(run, played, setup, bound)


def record_of(run: PolicyRun, played: Replay, setup: Setup, bound_pct: float | None) -> Record:
    curve, times_ms = played.curve, played.decision_s * 1000.0

    def points(values: "np.typing.NDArray[np.float64]", digits: int = 3) -> dict[str, float]:
        return {str(pct): round(curve.at(pct, values), digits) for pct in POINTS_PCT}

    return {
        "pods": run.trace,
        "policy": run.policy,
        "seed": run.seed,
        "allocation_pct": points(curve.allocation_pct),
        "fragmentation_pct": points(curve.fragmentation_pct),
        "stranded_pct": points(curve.stranded_pct),
        "decision_ms": {
            "mean": round(float(times_ms.mean()), 4),
            "p50": round(float(np.quantile(times_ms, 0.5)), 4),
            "p99": round(float(np.quantile(times_ms, 0.99)), 4),
        },
        "moved": played.moved,
        "unplaced": sum(played.unplaced.values()),
        "upkeep_s": round(played.upkeep_s, 3),
        "bound_pct": {"100": round(bound_pct, 3)} if bound_pct is not None else None,
        "allocated_cost_per_hour": points(curve.allocated_cost_per_hour, 2) if setup.prices else None,
        "shares": "trace" if setup.tell_shares else "learned",
        "renamed": setup.rename_nodes,
        "jobs": setup.jobs,
    }


def _conditions(setup: Setup) -> Conditions:
    return Conditions(cheapest_relocation if setup.move_share else None, setup.move_share)


@lru_cache(maxsize=4)
def _trace(nodes: Path, pods: Path, prices: tuple[tuple[str, float], ...]) -> Snapshot:
    return read_trace(nodes, pods, dict(prices))


@lru_cache(maxsize=64)
def _bound_pct(nodes: Path, pods: Path, seed: int) -> float:
    """Upper bound of the allocation when 100 % have arrived, percent of the GPU capacity."""
    trace = _trace(nodes, pods, ())
    return bound_pct(trace, published_stream(trace, seed))
