"""Replay: a stream of pods placed one after another under one policy, with the allocation over time."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.clock import Clock
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.packer import Choice, Packer
from placement.moves import RunningPods
from placement.policies.fgd import Fragmentation, typical_pods
from simulator.packing.arrivals import gpu_milli_of
from simulator.packing.relocation import Relocation
from simulator.packing.shortage import scarcest

Relocate = Callable[[Packer, RunningPods, PodShape, int], Relocation | None]
"""Finds a relocation for a shape that fits nowhere, with a maximum number of moves. Leaves the packer unchanged."""
POINTS_PCT = (80, 90, 100, 110, 130)
"""Points at which the published tables are read: GPU requested until then, in percent of the fleet's."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """State of the fleet each time another percent of its GPU capacity had been requested."""

    arrived_pct: FloatArray
    """Shape (samples,), ascending: GPU requested until then, placed or not, in percent of capacity. The others
    likewise."""
    allocation_pct: FloatArray
    """Allocated GPU, percent of capacity."""
    fragmentation_pct: FloatArray
    """Expected fragment F in percent of the idle GPU: the part of the idle GPU that the next pod cannot use."""
    stranded_pct: FloatArray
    """The same F in percent of capacity."""
    allocated_cost_per_hour: FloatArray
    """Price of the allocated GPUs (and fractions of GPUs), $ per hour; 0 where the types have no prices."""
    stranded_cost_per_hour: FloatArray
    """Price of the F above, $ per hour: each node's expected fragment at the price of its type."""

    def at(self, arrived_pct: float, values: FloatArray) -> float:
        """Value of a column when this percentage had arrived; NaN when the stream ended earlier.

        Half a point is tolerated: a stream stops before the pod that would pass its limit.
        """
        reached = np.flatnonzero(self.arrived_pct >= arrived_pct - (0.5 if arrived_pct > self.arrived_pct[-1] else 0.0))
        return float(values[reached[0]]) if len(reached) else float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Measurements of one replay."""

    policy: str
    seed: int
    curve: Curve
    decision_s: FloatArray
    """Shape (pods,), in order of arrival: time to learn, choose, relocate and charge."""
    unplaced: Mapping[PodShape, int] = field(default_factory=dict)
    """Number of pods of each shape that fitted nowhere when they arrived; none is tried again."""
    shortages: Mapping[str, int] = field(default_factory=dict)
    """The same pods by what was short when they arrived (simulator/packing/shortage.py)."""
    moved: int = 0
    """Number of moves of running pods for others."""
    upkeep_s: float = 0.0
    """Total time of the policy between decisions (new prices): a cluster does that in another process."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """Events that may happen in a replay besides arrivals."""

    relocate: Relocate | None = None
    move_share: float = 0.0
    """Maximum fraction of the pods placed until then that may be moved."""
    stay: IntArray | None = None
    """Shape (pods,): number of further arrivals after which each pod leaves; None: all stay, as published."""


def replay(
    trace: Snapshot,
    stream: IntArray,
    packer: Packer,
    clock: Clock,
    seed: int,
    conditions: Conditions | None = None,
    progress: Callable[[float], None] | None = None,
) -> Replay:
    """Offers the stream's pods to the packer one by one; a pod that does not fit is dropped, as published.

    stream: indices into `trace.pods.shapes`. seed: copied into the result. progress: called with the finished fraction
    whenever another percent of the capacity has arrived.
    """
    under = conditions or Conditions()
    gauge = _Gauge(trace, packer)
    floor = _Floor(packer, under)
    _, gpu_milli = gpu_milli_of(trace.pods)
    arrived_milli, upkeep_s = 0, 0.0
    decision_s = np.zeros(len(stream))
    unplaced: Counter[PodShape] = Counter()
    shortages: Counter[str] = Counter()
    for position, index in enumerate(stream):
        shape = trace.pods.shapes[index]
        floor.let_leave(position)
        began = clock()
        packer.policy.arrived(shape)
        placed = floor.place(position, shape)
        ended = clock()
        packer.policy.upkeep(packer.ledger)
        upkeep_s += clock() - ended
        decision_s[position] = ended - began
        if not placed:
            unplaced[shape] += 1
            shortages[scarcest(packer, shape)] += 1
        arrived_milli += int(gpu_milli[index])
        if gauge.is_due(arrived_milli, last=position + 1 == len(stream)):
            gauge.read(arrived_milli)
            if progress is not None:
                progress((position + 1) / len(stream))
    return Replay(
        policy=packer.policy.name,
        seed=seed,
        curve=gauge.curve(),
        decision_s=decision_s,
        unplaced=dict(unplaced),
        shortages=dict(shortages),
        moved=floor.moved,
        upkeep_s=upkeep_s,
    )


class _Floor:
    """Running pods of a replay: they arrive, move and leave."""

    def __init__(self, packer: Packer, under: Conditions) -> None:
        self.packer = packer
        self.under = under
        self.running = RunningPods()
        self.leaving: dict[int, list[int]] = {}
        self.placed = 0
        self.moved = 0

    def place(self, pod: int, shape: PodShape) -> bool:
        choice = self.packer.choose(shape) or self._make_room(shape)
        if choice is None:
            return False
        self._start(pod, shape, choice)
        self.placed += 1
        if self.under.stay is not None:
            self.leaving.setdefault(pod + int(self.under.stay[pod]), []).append(pod)
        return True

    def let_leave(self, position: int) -> None:
        self.packer.policy.departed(*(self._stop(pod) for pod in self.leaving.pop(position, ())))

    def _make_room(self, shape: PodShape) -> Choice | None:
        most = int(self.under.move_share * self.placed) - self.moved
        if self.under.relocate is None or most <= 0:
            return None
        room = self.under.relocate(self.packer, self.running, shape, most)
        if room is None:
            return None
        for pod, choice in room.moves:
            self._start(pod, self._stop(pod), choice)
        self.moved += len(room.moves)
        return room.choice

    def _start(self, pod: int, shape: PodShape, choice: Choice) -> None:
        self.packer.place(shape, choice)
        self.running.start(pod, shape, choice)

    def _stop(self, pod: int) -> PodShape:
        was = self.running.stop(pod)
        self.packer.remove(was.shape, was.node, was.devices)
        return was.shape


class _Gauge:
    """Measures the fleet each time another percent of its GPU capacity has arrived."""

    def __init__(self, trace: Snapshot, packer: Packer) -> None:
        self.ledger = packer.ledger
        self.capacity_milli = 1000 * int(trace.nodes.gpus.sum())
        shapes = [trace.pods.shapes[index] for index in trace.pods.shape]
        self.fragment = Fragmentation(typical_pods(shapes), trace.gpu_type_names)
        self.price = np.array([*(kind.price_per_hour for kind in trace.gpu_types), 0.0])[trace.nodes.gpu_type]
        self.gpus = trace.nodes.gpus
        self.samples: list[tuple[float, ...]] = []
        self.next_pct = 1.0

    def is_due(self, arrived_milli: int, *, last: bool) -> bool:
        return last or 100.0 * arrived_milli >= self.next_pct * self.capacity_milli

    def read(self, arrived_milli: int) -> None:
        ledger, per_pct = self.ledger, max(self.capacity_milli, 1) / 100.0
        idle = ledger.gpu_milli.clip(min=0).sum(axis=1)
        everywhere = np.arange(len(ledger.gpus))
        fragment = self.fragment.of_nodes(ledger, everywhere)
        fragment_milli = float(fragment.sum())
        used = 1000 * self.gpus - idle
        self.samples.append(
            (
                arrived_milli / per_pct,
                float(used.sum()) / per_pct,
                100.0 * fragment_milli / max(float(idle.sum()), 1.0),
                fragment_milli / per_pct,
                float((used * self.price).sum()) / 1000.0,
                float((fragment * self.price).sum()) / 1000.0,
            )
        )
        self.next_pct = np.floor(arrived_milli / per_pct) + 1.0

    def curve(self) -> Curve:
        columns = np.array(self.samples).reshape(-1, 6).T
        return Curve(*columns)
