"""Comparison of policies: the same arrivals on the same fleet, one replay for each policy and seed."""

import io
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np

from cluster.errors import ConfigError, Mistake
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import POLICIES, policy_named
from simulator.packing import replay as one
from simulator.packing.relocation import cheapest_relocation
from simulator.packing.replay import Curve, Replay, published_stream, with_renamed_nodes
from simulator.packing.summary import bound_pct
from simulator.sweep.runner import PolicyRun


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """Rules of every replay of a comparison."""

    rename_nodes: bool = False
    """Whether nodes change names at random, by the seed, so that a policy cannot profit from a lucky order of names."""
    move_share: float = 0.0
    """Maximum fraction of running pods that may be moved, one at a time, when a pod fits nowhere."""


def play(run: PolicyRun, traces: Mapping[str, Snapshot], rules: ReplayRules) -> one.Replay:
    """One replay. It depends on its arguments alone, except for the measured times."""
    trace = traces[run.trace]
    if rules.rename_nodes:
        trace = with_renamed_nodes(trace, run.seed)
    # As in the published runs, a policy may know the pods of the trace; one that learns will not look.
    expected = tuple(trace.pods.shapes[index] for index in trace.pods.shape)
    policy = policy_named(run.policy, Knowledge(trace, expected, run.seed))
    stream = published_stream(trace, run.seed)
    # Equal nodes are taken in an order dealt by the seed, as in the published runs: names decide nothing.
    packer = Packer.of(trace, policy, content_rank(trace, run.seed))
    conditions = one.Conditions(relocate=cheapest_relocation, move_share=rules.move_share)
    return one.replay(trace, stream, packer, time.perf_counter, run.seed, conditions)


def bounds_of(runs: Sequence[PolicyRun], traces: Mapping[str, Snapshot]) -> Mapping[str, float]:
    """Upper bounds on allocation at 100 % arrived, % of the GPUs, by trace, mean over seeds."""
    # openb, 1,213 nodes: 0.3 s a seed.
    arrivals = {(run.trace, run.seed) for run in runs}
    by_trace: dict[str, list[float]] = {}
    for name, seed in sorted(arrivals):
        by_trace.setdefault(name, []).append(bound_pct(traces[name], published_stream(traces[name], seed)))
    return {name: sum(found) / len(found) for name, found in by_trace.items()}


def check_contest(traces: Mapping[str, Snapshot], policies: tuple[str, ...]) -> None:
    """Raises ConfigError with everything that would make a replay meaningless, before any time is spent on it."""
    mistakes = [
        Mistake(f"policy {name!r}", "there is no such policy", f"choose from {', '.join(POLICIES)}")
        for name in policies
        if name not in POLICIES
    ]
    for name, trace in traces.items():
        if not trace.nodes.gpus.sum():
            mistakes.append(Mistake(f"trace {name}", "the fleet has no GPU", "add nodes that have some"))
        if not any(trace.pods.shapes[index].gpus for index in trace.pods.shape):
            mistakes.append(
                Mistake(f"trace {name}", "no pod requests a GPU", "demand is counted in GPUs: add such pods")
            )
    if mistakes:
        raise ConfigError(tuple(mistakes))


COLUMNS = tuple(field.name for field in fields(Curve))


class _Rest(msgspec.Struct):
    """Fields that are not arrays."""

    policy: str
    seed: int
    unplaced: list[tuple[PodShape, int]]
    shortages: dict[str, int]
    moved: int
    upkeep_s: float


def to_bytes(replay: Replay) -> bytes:
    """Content of an `.npz` file that `numpy.load` opens."""
    rest = _Rest(
        replay.policy,
        replay.seed,
        list(replay.unplaced.items()),
        dict(replay.shortages),
        replay.moved,
        replay.upkeep_s,
    )
    arrays: dict[str, Any] = {name: getattr(replay.curve, name) for name in COLUMNS}
    file = io.BytesIO()
    written = np.frombuffer(msgspec.json.encode(rest), dtype=np.uint8)
    np.savez_compressed(file, decision_s=replay.decision_s, rest=written, **arrays)
    return file.getvalue()


def from_bytes(data: bytes) -> Replay:
    """Replay from such a file. Raises ValueError for anything else."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            rest = msgspec.json.decode(archive["rest"].tobytes(), type=_Rest)
            curve = Curve(**{name: archive[name] for name in COLUMNS})
            decision_s = archive["decision_s"]
    except (zipfile.BadZipFile, KeyError, EOFError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a replay: {error}") from error
    return Replay(
        policy=rest.policy,
        seed=rest.seed,
        curve=curve,
        decision_s=decision_s,
        unplaced=dict(rest.unplaced),
        shortages=rest.shortages,
        moved=rest.moved,
        upkeep_s=rest.upkeep_s,
    )
