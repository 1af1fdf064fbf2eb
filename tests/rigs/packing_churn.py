"""Churn: arrivals and departures of a fleet in steady state, placed by a policy alone or by the operator's own loop."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray, Names
from cluster.clock import Clock
from cluster.snapshot import PENDING, PodTable, Snapshot
from controller.cycle import run_cycle
from controller.guard import Limits
from controller.ports import Brain
from simulator.packing.replay import Replay, gpu_milli_of
from simulator.world import SimulatedWorld

HEAVY_TAIL_SIGMA = 1.5
"""Standard deviation of the logarithm of heavy-tailed stays. Chosen: the mean is then three times the median, and a
tenth of the pods makes up two thirds of the load."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Distribution of stays with mean 1, and of the rest of a stay at a random moment."""

    fresh: Callable[[np.random.Generator, int], FloatArray]
    """Stays of that many arriving pods."""
    residual: Callable[[np.random.Generator, int], FloatArray]
    """Remaining stays of that many pods that already run in a steady state."""


def _lognormal(chance: np.random.Generator, count: int) -> FloatArray:
    return chance.lognormal(-(HEAVY_TAIL_SIGMA**2) / 2, HEAVY_TAIL_SIGMA, count)


def _lognormal_residual(chance: np.random.Generator, count: int) -> FloatArray:
    # A running pod's stay is drawn with a chance in proportion to its length, of which a uniform part is left.
    stay = chance.lognormal(HEAVY_TAIL_SIGMA**2 / 2, HEAVY_TAIL_SIGMA, count)
    left: FloatArray = chance.random(count) * stay
    return left


STAYS: Mapping[str, Stays] = {
    "exponential": Stays(lambda chance, n: chance.exponential(size=n), lambda chance, n: chance.exponential(size=n)),
    "lognormal": Stays(_lognormal, _lognormal_residual),
}


@dataclass(frozen=True, slots=True)
class Churn:
    """Demand on a fleet whose pods leave. Times are in mean stays."""

    load: float
    """Offered load: mean GPUs that pods would hold if all found a place, as a fraction of the fleet's."""
    stays: str
    """Name in STAYS."""
    warm_up: float
    """Time that is not measured after the steady state's pods are placed on the empty fleet."""
    measured: float
    """Time over which the allocation is averaged."""


@dataclass(frozen=True, slots=True, eq=False)
class ChurningStream:
    """Pods of one run: first those that already run in the steady state, then the arrivals."""

    pods: IntArray
    """Indices into `trace.pods.shapes`, in order of arrival."""
    stay: IntArray
    """Shape (pods,): further arrivals after which each pod leaves."""
    measured_from_pct: float
    """GPUs requested when the measurement begins, percent of the fleet's."""


def churning_stream(trace: Snapshot, seed: int, churn: Churn) -> ChurningStream:
    """Pods drawn from the trace with replacement, with their stays; the same for every policy.

    Time is counted in arrivals: the mean stay is the number of pods that run in the mean when none is refused. As many
    pods are placed at first, in random order, with the rest of their stays; none leaves before all of them are placed.
    """
    chance = np.random.default_rng(seed)
    listed = trace.pods.shape[trace.pods.pending]
    _, total_milli = gpu_milli_of(trace.pods)
    capacity_milli = 1000.0 * float(trace.nodes.gpus.sum())
    mean_stay = churn.load * capacity_milli / float(total_milli[listed].mean())
    first, more = round(mean_stay), round((churn.warm_up + churn.measured) * mean_stay)
    pods = listed[chance.integers(len(listed), size=first + more)]
    kind = STAYS[churn.stays]
    stays = np.concatenate([kind.residual(chance, first), kind.fresh(chance, more)]) * mean_stay
    stays[:first] += np.arange(first, 0, -1)  # counted from the moment when the first arrival comes
    begins = first + round(churn.warm_up * mean_stay)
    measured_from_pct = 100.0 * float(total_milli[pods[:begins]].sum()) / capacity_milli
    return ChurningStream(pods.astype(np.int64), np.ceil(stays).astype(np.int64), measured_from_pct)


def mean_allocation_pct(played: Replay, stream: ChurningStream) -> float:
    """Mean of the allocated GPU, percent of the fleet's, read each time another percent had been requested."""
    measured = played.curve.arrived_pct > stream.measured_from_pct
    return float(played.curve.allocation_pct[measured].mean())


@dataclass(frozen=True, slots=True, eq=False)
class Operated:
    """State of the fleet after each cycle of the loop."""

    arrived_pct: FloatArray
    """Shape (cycles,): GPU requested until then, placed or not, in percent of capacity. The others likewise."""
    allocation_pct: FloatArray
    """Allocated GPU, percent of capacity."""
    plan_s: FloatArray
    """Seconds for the plan, on the caller's clock."""

    def mean_allocation_pct(self, from_pct: float = 0.0) -> float:
        """Mean over the cycles after this percentage had arrived."""
        return float(self.allocation_pct[self.arrived_pct >= from_pct].mean())


def operated(
    trace: Snapshot,
    stream: IntArray,
    brain: Brain,
    clock: Clock,
    *,
    per_cycle: int = 1,
    stay: IntArray | None = None,
    deadline_s: float = 600.0,
) -> Operated:
    """Runs cycles of the loop, each after some more arrivals. A pod without a place after its cycle is dropped.

    stream: indices into `trace.pods.shapes`. per_cycle: arrivals between two cycles. stay: shape (pods,), as in
    `replay`.
    """
    world = SimulatedWorld(replace(trace, pods=_pods(trace.pods, stream[:0], 0)))
    _, gpu_milli = gpu_milli_of(trace.pods)
    capacity_milli = 1000 * int(trace.nodes.gpus.sum())
    leaving: dict[int, list[str]] = {}
    readings: list[tuple[float, float, float]] = []
    arrived_milli = 0
    for first in range(0, len(stream), per_cycle):
        group = range(first, min(first + per_cycle, len(stream)))
        world.depart(name for position in group for name in leaving.pop(position, ()))
        world.arrive(_pods(trace.pods, stream[group], first))
        cycle = run_cycle(world, brain, Limits(), deadline_s, clock)
        now = world.observe()
        world.depart(now.pods.names[row] for row in now.pods.pending.tolist())
        if stay is not None:
            for position, name in _started(now, group):
                leaving.setdefault(max(position + int(stay[position]), group[-1] + 1), []).append(name)
        arrived_milli += int(gpu_milli[stream[group]].sum())
        free_milli = float(world.observe().free().gpu_milli.sum())
        allocation_pct = 100.0 * (capacity_milli - free_milli) / capacity_milli
        readings.append((100.0 * arrived_milli / capacity_milli, allocation_pct, cycle.stage_s["plan"]))
    return Operated(*np.array(readings).reshape(-1, 3).T)


def _started(now: Snapshot, group: range) -> Iterator[tuple[int, str]]:
    """Position in the stream, and name, of the pods of this group that have a place."""
    for position in group:
        row = now.pods.names.row(_name(position))
        if row is not None and now.pods.node[row] != PENDING:
            yield position, _name(position)


def _pods(of: PodTable, shapes: IntArray, first: int) -> PodTable:
    """Waiting pods of these shapes, named by their position in the stream."""
    count = len(shapes)
    return PodTable(
        names=Names(_name(first + number) for number in range(count)),
        shape=shapes.astype(np.int64),
        shapes=of.shapes,
        node=np.full(count, PENDING),
        devices=np.zeros(count, dtype=np.int64),
        priority=np.zeros(count, dtype=np.int64),
        gang=np.full(count, -1),
        owner=("",) * count,
        movable=np.ones(count, dtype=np.bool_),
    )


def _name(position: int) -> str:
    return f"arrivals/pod-{position}"
