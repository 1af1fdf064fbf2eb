"""Comparison of policies: the same arrivals on the same fleet, one replay for each policy and seed."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.errors import ConfigError, Mistake
from cluster.snapshot import Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import POLICIES, policy_named
from simulator.packing import replay as one
from simulator.packing.arrivals import published_stream
from simulator.packing.bounds import bound_pct
from simulator.packing.node_permutation import with_renamed_nodes
from simulator.packing.relocation import cheapest_relocation
from simulator.sweep.runner import Run


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of every replay of a comparison."""

    rename_nodes: bool = False
    """Whether nodes change names at random, by the seed, so that a policy cannot profit from a lucky order of names."""
    move_share: float = 0.0
    """Maximum fraction of running pods that may be moved, one at a time, when a pod fits nowhere."""


def play(run: Run, traces: Mapping[str, Snapshot], rules: Rules) -> one.Replay:
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


def bounds_of(runs: Sequence[Run], traces: Mapping[str, Snapshot]) -> Mapping[str, float]:
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
