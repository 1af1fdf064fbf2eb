"""Replay: a stream of pods placed one after another under one policy, with the allocation over time."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.clock import Clock
from cluster.snapshot import PodTable, Snapshot
from cluster.workloads import PodShape
from placement.engine.packer import Choice, Packer
from placement.policies.fgd import Fragmentation, typical_pods


def published_stream(trace: Snapshot, seed: int, until_share: float = 1.3) -> IntArray:
    """Arrivals of the FGD paper: every pod of the trace once, shuffled, then more of them drawn with replacement.

    trace: its pending pods arrive, its nodes are the capacity.
    until_share: fraction of the fleet's GPU capacity at which it stops; the pod that would pass it is not taken.
    Returns indices into `trace.pods.shapes`, in order of arrival.
    Source: USENIX ATC'23 (FGD), section 6.1, and its simulator, whose stop test counts one device of each pod, so that
    pods with several devices overshoot a little. A trace that requests more than the limit is cut off at it here. The
    simulator thins it by drawing pods to leave out, which is the same for a shuffled trace.
    """
    chance = np.random.default_rng(seed)
    shape = trace.pods.shape[trace.pods.pending]
    per_device, total = gpu_milli_of(trace.pods)
    limit = until_share * 1000.0 * float(trace.nodes.gpus.sum())
    first = chance.permutation(shape)
    arrived = np.cumsum(total[first])
    if len(first) and arrived[-1] > limit:
        return np.asarray(first[arrived <= limit], dtype=np.int64)
    stream = first.tolist()
    requested = int(arrived[-1]) if len(first) else 0
    while requested and requested + per_device[more := int(shape[chance.integers(len(shape))])] <= limit:
        stream.append(more)
        requested += int(total[more])
    return np.array(stream, dtype=np.int64)


def gpu_milli_of(pods: PodTable) -> tuple[IntArray, IntArray]:
    """Thousandths of a GPU that each of the table's shapes requests: of one device, and of all its devices together."""
    per_device = np.array([shape.gpu_milli for shape in pods.shapes], dtype=np.int64)
    total = np.array([shape.total_gpu_milli for shape in pods.shapes], dtype=np.int64)
    return per_device, total


NO_SUCH_NODE = "no node of a kind that it accepts"
CPU = "CPU"
MEMORY = "memory"
CPU_BESIDE_GPUS = "CPU on the nodes whose GPUs were free"
MEMORY_BESIDE_GPUS = "memory on the nodes whose GPUs were free"
OTHER_MODELS_ONLY = "GPUs of a model that it accepts (others were free)"
GPUS_TOGETHER = "enough whole GPUs on one node"
WHOLE_GPU = "a whole GPU"
PART_OF_GPU = "a GPU with a large enough fraction free"


def scarcest(packer: Packer, shape: PodShape) -> str:
    """Resource that a pod of this shape, which fits nowhere now, lacks: the first of the above that explains it.

    A node may be short of several resources. GPU is named before CPU, and CPU before memory, the scarcer first. A pod
    therefore counts as short of CPU only where some node has all the GPU that it requests.
    """
    eligible = packer.eligible(shape)
    if not eligible.any():
        return NO_SUCH_NODE
    free = packer.ledger.free
    with_gpu = free.fits(replace(shape, cpu_milli=0, memory_bytes=0))
    with_cpu = free.fits(replace(shape, memory_bytes=0))
    if (eligible & with_cpu).any():
        return MEMORY_BESIDE_GPUS if shape.gpus else MEMORY
    if (eligible & with_gpu).any():
        return CPU_BESIDE_GPUS if shape.gpus else CPU
    if free.fits(shape).any():
        return OTHER_MODELS_ONLY
    if shape.gpus > 1:
        return GPUS_TOGETHER
    return WHOLE_GPU if shape.is_whole_gpu else PART_OF_GPU


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
    """Shape (pods,), in order of arrival: time to learn, choose and charge."""
    shortages: Mapping[str, int] = field(default_factory=dict)
    """Number of pods that fitted nowhere when they arrived, by what was short (`scarcest`); none is tried again."""
    upkeep_s: float = 0.0
    """Total time of the policy between decisions (new prices): a cluster does that in another process."""


def replay(
    trace: Snapshot,
    stream: IntArray,
    packer: Packer,
    clock: Clock,
    seed: int,
    stay: IntArray | None = None,
) -> Replay:
    """Offers the stream's pods to the packer one by one; a pod that does not fit is dropped, as published.

    stream: indices into `trace.pods.shapes`. seed: copied into the result. stay: shape (pods,), number of further
    arrivals after which each pod leaves; None: all stay, as published.
    """
    gauge = _Gauge(trace, packer)
    leaving: defaultdict[int, list[tuple[PodShape, Choice]]] = defaultdict(list)
    _, gpu_milli = gpu_milli_of(trace.pods)
    arrived_milli, upkeep_s = 0, 0.0
    decision_s = np.zeros(len(stream))
    shortages: Counter[str] = Counter()
    for position, index in enumerate(stream):
        shape = trace.pods.shapes[index]
        over = leaving.pop(position, [])
        for gone, was in over:
            packer.remove(gone, was.node, was.devices)
        packer.policy.departed(*(gone for gone, _ in over))
        began = clock()
        packer.policy.arrived(shape)
        choice = packer.choose(shape)
        if choice is not None:
            packer.place(shape, choice)
        ended = clock()
        packer.policy.upkeep(packer.ledger)
        upkeep_s += clock() - ended
        decision_s[position] = ended - began
        if choice is None:
            shortages[scarcest(packer, shape)] += 1
        elif stay is not None:
            leaving[position + int(stay[position])].append((shape, choice))
        arrived_milli += int(gpu_milli[index])
        if gauge.is_due(arrived_milli, last=position + 1 == len(stream)):
            gauge.read(arrived_milli)
    return Replay(
        policy=packer.policy.name,
        seed=seed,
        curve=gauge.curve(),
        decision_s=decision_s,
        shortages=dict(shortages),
        upkeep_s=upkeep_s,
    )


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
