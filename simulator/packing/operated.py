"""The operator's own loop on the arrivals of a replay: what ships, beside what a policy alone attains."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray, Names
from cluster.clock import Clock
from cluster.snapshot import PENDING, PodTable, Snapshot
from controller.cycle import run_cycle
from controller.guard import Limits
from controller.ports import Brain
from simulator.packing.replay import gpu_milli_of
from simulator.world import SimulatedWorld


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
    `Conditions`.
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
