"""Comparison of policies: a replay of the same arrivals for each policy and seed, and their summary."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster import errors, snapshot
from cluster.arrays import FloatArray
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import POLICIES, policy_named
from placement.prices.allocation_bound import allocation_bound
from placement.prices.classes import class_of, kinds_of
from simulator.packing import replay as one
from simulator.packing.replay import Curve, Replay, gpu_milli_of, published_stream
from simulator.sweep.runner import PolicyRun

QUANTILES: FloatArray = np.array([0.001, 0.01, *np.arange(0.05, 0.951, 0.05), 0.99, 0.999, 1.0])
"""Quantiles at which decision times are kept: enough to draw their distribution, whatever the number of pods."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over seeds; the deviation is NaN for a single seed."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: FloatArray) -> "Spread":
        if not len(values):
            return cls(float("nan"), float("nan"))
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan"))


@dataclass(frozen=True, slots=True, eq=False)
class PolicySummary:
    """Results of one policy on one trace. Arrays by replay have one row per seed, in the order of `seeds`."""

    trace: str
    policy: str
    seeds: tuple[int, ...]
    arrived_pct: FloatArray
    """Shape (points,): GPU requested until then, percent of the fleet's GPUs; ascending."""
    allocation_pct: FloatArray
    """Shape (seeds, points): allocated GPU, percent of the fleet's GPUs."""
    fragmentation_pct: FloatArray
    """Shape (seeds, points): part of the idle GPU that the expected next pod cannot use, percent of the idle GPU."""
    stranded_pct: FloatArray
    """Shape (seeds, points): that same part, percent of the fleet's GPUs."""
    allocated_per_hour: FloatArray
    """Shape (seeds, points): price of the allocated GPU, dollars per hour; NaN where GPUs have no prices."""
    stranded_per_hour: FloatArray
    """Shape (seeds, points): price of the idle GPU that the expected next pod cannot use, dollars per hour."""
    decision_ms: FloatArray
    """Shape (seeds, len(QUANTILES)): decision time by quantile."""
    decision_mean_ms: FloatArray
    """Shape (seeds,)."""
    upkeep_s: FloatArray
    """Shape (seeds,): total work between decisions (new prices), which a cluster leaves to another process."""
    unplaced: Mapping[str, FloatArray]
    """Why pods found no place → their number, shape (seeds,)."""

    def at(self, rows: FloatArray, arrived_pct: float) -> FloatArray:
        """Values at the last point with at most that percentage arrived; NaN before the first point. Shape (seeds,)."""
        point = int(np.searchsorted(self.arrived_pct, arrived_pct + 1e-6, side="right")) - 1
        return rows[:, point] if point >= 0 else np.full(len(rows), np.nan)

    def quantile_ms(self, quantile: float) -> FloatArray:
        """Decision time at one of QUANTILES. Shape (seeds,)."""
        return self.decision_ms[:, int(np.argmin(np.abs(QUANTILES - quantile)))]

    @property
    def unplaced_pods(self) -> FloatArray:
        """Number of all pods that found no place. Shape (seeds,)."""
        return np.sum(list(self.unplaced.values()), axis=0) if self.unplaced else np.zeros(len(self.seeds))


def summarise(done: Sequence[tuple[PolicyRun, Replay]], *, priced: bool) -> tuple[PolicySummary, ...]:
    """One summary for each trace and policy of a sweep, in the order of their first occurrence.

    priced: whether the trace's GPUs have prices; if not, the columns of dollars are NaN.
    """
    groups: dict[tuple[str, str], list[tuple[PolicyRun, Replay]]] = {}
    for run, replay in done:
        groups.setdefault((run.trace, run.policy), []).append((run, replay))
    return tuple(
        _summary(trace, policy, [run.seed for run, _ in group], [replay for _, replay in group], priced=priced)
        for (trace, policy), group in groups.items()
    )


def _summary(
    trace: str, policy: str, seeds: Sequence[int], replays: Sequence[Replay], *, priced: bool
) -> PolicySummary:
    # Streams stop just before the pod that would pass their limit: half a point is tolerated, as in Curve.at.
    last_pct = int(min(float(replay.curve.arrived_pct[-1]) for replay in replays) + 0.5)
    points = np.arange(1.0, max(last_pct, 1) + 1)

    def rows(values: Callable[[Curve], FloatArray]) -> FloatArray:
        return np.array([_at_points(replay.curve.arrived_pct, values(replay.curve), points) for replay in replays])

    dollars = 1.0 if priced else np.nan
    reasons = dict.fromkeys(reason for replay in replays for reason in replay.shortages)
    return PolicySummary(
        trace=trace,
        policy=policy,
        seeds=tuple(seeds),
        arrived_pct=points,
        allocation_pct=rows(lambda curve: curve.allocation_pct),
        fragmentation_pct=rows(lambda curve: curve.fragmentation_pct),
        stranded_pct=rows(lambda curve: curve.stranded_pct),
        allocated_per_hour=rows(lambda curve: dollars * curve.allocated_cost_per_hour),
        stranded_per_hour=rows(lambda curve: dollars * curve.stranded_cost_per_hour),
        decision_ms=np.array([1000 * np.quantile(replay.decision_s, QUANTILES) for replay in replays]),
        decision_mean_ms=np.array([1000 * replay.decision_s.mean() for replay in replays]),
        upkeep_s=np.array([replay.upkeep_s for replay in replays]),
        unplaced={reason: np.array([float(r.shortages.get(reason, 0)) for r in replays]) for reason in reasons},
    )


def _at_points(arrived_pct: FloatArray, values: FloatArray, points: FloatArray) -> FloatArray:
    """Values when each of the points was first reached; the last value where the stream ended just before."""
    first = np.minimum(np.searchsorted(arrived_pct, points - 1e-9), len(arrived_pct) - 1)
    return np.asarray(values[first])


def bound_pct(trace: snapshot.Snapshot, seed: int) -> float:
    """Proven bound on allocation for the published arrivals that request the whole fleet, in percent of its GPUs.

    It also holds for policies that know the arrivals beforehand and
    move pods.
    """
    kinds = kinds_of(trace.nodes, trace.gpu_type_names)
    _, total = gpu_milli_of(trace.pods)
    stream = published_stream(trace, seed)
    upto = int(np.searchsorted(np.cumsum(total[stream]), 1000.0 * kinds.capacity_gpus)) + 1
    demand = Counter(class_of(trace.pods.shapes[index]) for index in stream[:upto])
    classes = sorted(demand)
    bound = allocation_bound(classes, np.array([float(demand[kind]) for kind in classes]), kinds)
    return 100.0 * bound.gpus / kinds.capacity_gpus


def play(run: PolicyRun, traces: Mapping[str, snapshot.Snapshot]) -> one.Replay:
    """One replay. It depends on its arguments alone, except for the measured times."""
    trace = traces[run.trace]
    # As in the published runs, a policy may know the pods of the trace; one that learns will not look.
    expected = tuple(trace.pods.shapes[index] for index in trace.pods.shape)
    policy = policy_named(run.policy, Knowledge(trace, expected, run.seed))
    stream = published_stream(trace, run.seed)
    # Equal nodes are taken in an order dealt by the seed, as in the published runs: names decide nothing.
    packer = Packer(trace, policy, content_rank(trace, run.seed))
    return one.replay(trace, stream, packer, time.perf_counter, run.seed)


def bounds_of(runs: Sequence[PolicyRun], traces: Mapping[str, snapshot.Snapshot]) -> Mapping[str, float]:
    """Upper bounds on allocation at 100 % arrived, % of the GPUs, by trace, mean over seeds."""
    # openb, 1,213 nodes: 0.3 s a seed.
    arrivals = {(run.trace, run.seed) for run in runs}
    by_trace: dict[str, list[float]] = {}
    for name, seed in sorted(arrivals):
        by_trace.setdefault(name, []).append(bound_pct(traces[name], seed))
    return {name: sum(found) / len(found) for name, found in by_trace.items()}


def check_contest(traces: Mapping[str, snapshot.Snapshot], policies: tuple[str, ...]) -> None:
    """Raises ConfigError with everything that would make a replay meaningless, before any time is spent on it."""
    mistakes = [
        errors.Mistake(f"policy {name!r}", "there is no such policy", f"choose from {', '.join(POLICIES)}")
        for name in policies
        if name not in POLICIES
    ]
    for name, trace in traces.items():
        if not trace.nodes.gpus.sum():
            mistakes.append(errors.Mistake(f"trace {name}", "the fleet has no GPU", "add nodes that have some"))
        if not any(trace.pods.shapes[index].gpus for index in trace.pods.shape):
            mistakes.append(
                errors.Mistake(f"trace {name}", "no pod requests a GPU", "demand is counted in GPUs: add such pods")
            )
    if mistakes:
        raise errors.ConfigError(tuple(mistakes))
