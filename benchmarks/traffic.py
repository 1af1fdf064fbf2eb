"""Traffic of gangs over a tree of switches: what rank order saves, and what gangs that come and go share. Simulated."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.cases import Row, case, numbers
from cluster.actions import Bind
from cluster.arrays import FloatArray, IntArray, Names
from cluster.nodes import NodeTable
from cluster.plans import Plan
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, Gang, GpuType, PodShape
from controller.deciders import edits
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import PlanRequest, planned
from placement.engine.packer import Packer
from placement.network_tree import natural
from placement.packing.planner import pack
from placement.policies.published import BestFit

SPINE, LEAF = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"
LEAVES, NODES_PER_LEAF, GPUS = 16, 16, 8
LEAVES_PER_SPINE = 4
GIB = 2**30
SIZES, WIDTHS = (8, 16, 24, 32, 64), (1, 2, 4, 8)
"""Members of a gang, and GPUs of a member."""
ORDERS = ("random", "as packed", "rank order")
Order = list[str]
"""Node of each rank of a gang."""


@dataclass(frozen=True, slots=True)
class Fleet:
    snapshot: Snapshot
    leaf: Mapping[str, str]
    """Leaf of each node."""
    gpus: Mapping[str, int]
    """GPUs of a member of each gang."""


@case(
    "traffic",
    "Uplinks that rings of gangs cross, by order of ranks (simulated).",
    quick={"seeds": (1,), "gangs": 6},
    by=("order",),
)
def traffic(
    *,
    seeds: Sequence[int] = numbers("1-10"),
    gangs: int = 20,
    near: float = 0.5,
    held: float = 0.4,
    oversubscribed: float = 4.0,
) -> Iterator[Row]:
    """One row a seed and order.

    Each gang reduces over rings through its ranks, one for each GPU of a member, each with a NIC of its own. An edge of
    a ring between two leaves crosses both their uplinks, where all edges share alike, and a ring is as fast as its
    slowest edge, at most one NIC. Nodes are named without regard to leaves, as where machines came one after another.

    near: share of gangs that prefer to share a leaf. held: of nodes that hold other pods. oversubscribed: NICs of a
    leaf over its uplinks.
    """
    for seed in seeds:
        rng = np.random.default_rng(seed)
        fleet = fleet_of(rng, gangs, near, held)
        asked = PlanRequest(Decisions(), 600.0, float)
        packed = planned(fleet.snapshot, asked)
        ordered = edits.order_ranks(fleet.snapshot, packed, asked.decisions)
        shuffled = {gang: list(rng.permutation(nodes)) for gang, nodes in rings_of(packed).items()}
        for name, rings in zip(ORDERS, (shuffled, rings_of(packed), rings_of(ordered)), strict=True):
            leaves = {gang: [fleet.leaf[node] for node in ring] for gang, ring in rings.items()}
            crossing = {gang: _uplinks(own) for gang, own in leaves.items()}
            load = Counter[str]()
            for gang, own in crossing.items():
                load.update({leaf: edges * fleet.gpus[gang] for leaf, edges in own.items()})
            capacity = NODES_PER_LEAF * GPUS / oversubscribed
            speeds = [min([1.0, *(capacity / load[leaf] for leaf in own)]) for own in crossing.values()]
            # A ring through several leaves crosses the uplink of each once at least.
            least = [len(set(own)) if len(set(own)) > 1 else 0 for own in leaves.values()]
            yield {
                "seed": seed,
                "order": name,
                "gangs": len(rings),
                "uplinks_per_gang": round(float(np.mean([own.total() for own in crossing.values()])), 2),
                "uplinks_at_least": round(float(np.mean(least)), 2),
                "busiest_uplink": max(load.values(), default=0),
                "ring_speed": round(float(np.mean(speeds)), 3),
                "slowest_ring": round(min(speeds), 3),
            }


def fleet_of(rng: np.random.Generator, gangs: int, near: float, held: float) -> Fleet:
    """Nodes below leaves below spines, some of which hold a pod of one to eight GPUs, and gangs that wait."""
    count = LEAVES * NODES_PER_LEAF
    leaves = rng.permutation(np.repeat(np.arange(LEAVES), NODES_PER_LEAF))
    names = [f"node-{n}" for n in range(count)]
    shapes = tuple(
        PodShape(cpu_milli=1000, memory_bytes=GIB, gpus=gpus, gpu_milli=WHOLE_GPU_MILLI) for gpus in range(1, GPUS + 1)
    )
    others = np.flatnonzero(rng.random(count) < held).tolist()
    # Name, GPUs, node and gang of each pod.
    rows = [(f"d/other-{node}", int(rng.integers(1, GPUS + 1)), node, -1) for node in others]
    made, widths = [], {}
    for number in range(gangs):
        size, gpus = int(rng.choice(SIZES)), int(rng.choice(WIDTHS))
        prefers = LEAF if rng.random() < near else None
        widths[f"d/gang-{number}"] = gpus
        made.append(Gang(f"d/gang-{number}", size, prefer_within=prefers))
        rows += [(f"d/gang-{number}-{rank}", gpus, PENDING, number) for rank in range(size)]
    nodes = NodeTable(
        names=Names(names),
        cpu_milli=np.full(count, 192_000),
        memory_bytes=np.full(count, 2048 * GIB),
        gpus=np.full(count, GPUS),
        gpu_type=np.zeros(count, dtype=np.int64),
        schedulable=np.ones(count, dtype=np.bool_),
        labels=tuple({LEAF: f"leaf-{n}", SPINE: f"spine-{n // LEAVES_PER_SPINE}"} for n in leaves.tolist()),
        taints=((),) * count,
    )
    pods = PodTable(
        names=Names(name for name, *_ in rows),
        shape=np.array([gpus - 1 for _, gpus, _, _ in rows]),
        shapes=shapes,
        node=np.array([node for _, _, node, _ in rows]),
        devices=np.array([2**gpus - 1 if node != PENDING else 0 for _, gpus, node, _ in rows]),
        priority=np.zeros(len(rows), dtype=np.int64),
        gang=np.array([gang for *_, gang in rows]),
        owner=("",) * len(rows),
        movable=np.zeros(len(rows), dtype=np.bool_),
    )
    types = (GpuType("h100", 80 * GIB, 1.0),)
    snapshot = Snapshot(at_s=0.0, gpu_types=types, nodes=nodes, pods=pods, gangs=tuple(made))
    return Fleet(snapshot, {name: f"leaf-{leaf}" for name, leaf in zip(names, leaves.tolist(), strict=True)}, widths)


def rings_of(plan: Plan) -> dict[str, Order]:
    """Rings of the gangs that a plan starts: the nodes of their ranks in order."""
    node_of = {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}
    rings: dict[str, Order] = {}
    for pod in sorted(node_of, key=natural):
        rings.setdefault(pod.rpartition("-")[0], []).append(node_of[pod])
    return rings


def _uplinks(leaves: Sequence[str]) -> Counter[str]:
    """Edges of one ring over the uplink of each leaf, out of it. leaves: of the ranks in order."""
    return Counter(one for one, other in zip(leaves, (*leaves[1:], leaves[0]), strict=True) if one != other)


CHURNED_SIZES = (1, 2, 4, 8, 12, 20, 24, 40)
"""Members of a gang. A leaf has 16 nodes, so three sizes in eight cannot but span leaves."""
OVERSUBSCRIBED = (4, 8, 16)
"""NICs of a leaf over its uplinks."""
WARM_UP_SHARE = 0.25
"""Fraction of the arrivals before the measurement."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Gangs in the order in which they come; times in mean stays. Each of shape (gangs,)."""

    at: FloatArray
    stay: FloatArray
    size: IntArray
    gpus: IntArray
    """GPUs of a member."""


@dataclass(slots=True)
class Tally:
    """Sums over time, and over the gangs that started, after the warm-up."""

    time: float = 0.0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    leaves: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


@case(
    "traffic-churn",
    "Uplinks that large gangs share while gangs come and go (simulated).",
    quick={"seeds": (201,), "gangs": 30, "loads": (0.8,)},
    by=("load",),
)
def traffic_churn(
    *,
    seeds: Sequence[int] = numbers("201-232"),
    gangs: int = 500,
    loads: Sequence[float] = (0.7, 0.8, 0.9),
    gpus: Sequence[int] = (8,),
) -> Iterator[Row]:
    """One row a load and seed: means over time, or over the gangs that started, after a quarter of the arrivals.

    All prefer to share a leaf; those that fit nowhere wait. Ranks are in the order of the network, so a ring crosses
    the uplink of each of its leaves once, and a gang has a ring for each GPU of a member. Rings are those of gangs that
    span leaves, beside leaves with 4, 8 or 16 NICs an uplink. gpus: of a member, drawn from these.
    """
    for load in loads:
        for seed in seeds:
            rng = np.random.default_rng(seed)
            nodes = fleet_of(rng, gangs=0, near=0.0, held=0.0).snapshot
            yield {"seed": seed, "load": load, **figures_of(played(nodes, arrivals_of(rng, gangs, load, gpus)))}


def arrivals_of(rng: np.random.Generator, gangs: int, load: float, gpus: Sequence[int]) -> Arrivals:
    """Poisson arrivals at an offered load, with exponential stays."""
    size, width = rng.choice(CHURNED_SIZES, gangs), rng.choice(gpus, gangs)
    stay = rng.exponential(1.0, gangs)
    gap = float(np.mean(size * width)) / (load * LEAVES * NODES_PER_LEAF * GPUS)
    return Arrivals(np.cumsum(rng.exponential(gap, gangs)), stay, size, width)


def played(fleet: Snapshot, coming: Arrivals) -> Tally:
    """Plans after each arrival and each end, until the last of them before the last arrival."""
    leaf, tally = fleet.nodes.domain(LEAF), Tally()
    running: dict[int, tuple[IntArray, IntArray]] = {}  # nodes and devices of the members
    waiting: list[int] = []
    events = [(at, "comes", gang) for gang, at in enumerate(coming.at.tolist())]
    now = measured_from = float(coming.at[int(WARM_UP_SHARE * len(coming.at))])
    while events[0][0] < coming.at[-1]:
        at, what, gang = heapq.heappop(events)
        if at > now:
            _count(tally, coming, {each: leaf[nodes] for each, (nodes, _) in running.items()}, at - now)
            now = at
        if what == "comes":
            waiting.append(gang)
        else:
            del running[gang]
        if not waiting:
            continue
        for each, seat in _started(fleet, coming, running, waiting).items():
            running[each] = seat
            waiting.remove(each)
            heapq.heappush(events, (at + float(coming.stay[each]), "ends", each))
            if at > measured_from:
                tally.leaves.append(len(np.unique(leaf[seat[0]])))
                tally.waits.append(at - float(coming.at[each]))
    return tally


def _started(
    fleet: Snapshot,
    coming: Arrivals,
    running: dict[int, tuple[IntArray, IntArray]],
    waiting: Sequence[int],
) -> dict[int, tuple[IntArray, IntArray]]:
    """The waiting gangs that a plan starts, with nodes and devices of their members."""
    gangs = [*running, *waiting]
    sizes = coming.size[gangs]
    idle = [(np.full(coming.size[gang], PENDING), np.zeros(coming.size[gang], dtype=np.int64)) for gang in waiting]
    nodes, devices = zip(*running.values(), *idle, strict=True)
    pods = PodTable(
        names=Names(f"gang-{gang}-{rank}" for gang in gangs for rank in range(coming.size[gang])),
        shape=np.repeat(coming.gpus[gangs] - 1, sizes),
        shapes=fleet.pods.shapes,
        node=np.concatenate(nodes),
        devices=np.concatenate(devices),
        priority=np.zeros(sizes.sum(), dtype=np.int64),
        gang=np.repeat(np.arange(len(gangs)), sizes),
        owner=("",) * int(sizes.sum()),
        movable=np.zeros(sizes.sum(), dtype=np.bool_),
    )
    wanted = tuple(Gang(f"gang-{gang}", int(coming.size[gang]), prefer_within=LEAF) for gang in gangs)
    seen = Snapshot(0.0, fleet.gpu_types, fleet.nodes, pods, wanted)
    after = seen.after(pack(seen, Packer.of(seen, BestFit())).actions).pods
    members = {gang: pods.gang == number for number, gang in enumerate(gangs) if gang not in running}
    return {gang: (after.node[own], after.devices[own]) for gang, own in members.items() if after.node[own][0] >= 0}


def _count(tally: Tally, coming: Arrivals, leaves: dict[int, IntArray], for_time: float) -> None:
    """Adds what the running gangs did in this time. leaves: of each member."""
    parts = {gang: set(own.tolist()) for gang, own in leaves.items()}
    spanning = {gang: own for gang, own in parts.items() if len(own) > 1}
    gangs_on = Counter(leaf for own in spanning.values() for leaf in own)
    edges = Counter[int]()
    for gang, own in spanning.items():
        edges.update(dict.fromkeys(own, int(coming.gpus[gang])))
    sums: dict[str, float] = {
        "spanning": len(spanning),
        "uplinks": gangs_on.total(),
        "shared": sum(gangs for gangs in gangs_on.values() if gangs > 1),
        "busiest": max(edges.values(), default=0),
    }
    for ratio in OVERSUBSCRIBED:
        capacity = NODES_PER_LEAF * GPUS / ratio
        speeds = [min(1.0, *(capacity / edges[leaf] for leaf in own)) for own in spanning.values()]
        sums |= {f"speed_{ratio}": sum(speeds), f"slowest_{ratio}": min(speeds, default=1.0)}
    tally.time += for_time
    for key, value in sums.items():
        tally.sums[key] += value * for_time


def figures_of(tally: Tally) -> Row:
    """Means over time and over the gangs that started."""
    sums, time = tally.sums, tally.time
    return {
        "started": len(tally.leaves),
        "wait": float(np.mean(tally.waits)),
        "leaves_per_gang": float(np.mean(tally.leaves)),
        "spanning_gangs": sums["spanning"] / time,
        "shared_uplinks_share": sums["shared"] / max(sums["uplinks"], 1e-9),
        "busiest_uplink": sums["busiest"] / time,
        **{f"ring_speed_{ratio}": sums[f"speed_{ratio}"] / max(sums["spanning"], 1e-9) for ratio in OVERSUBSCRIBED},
        **{f"slowest_ring_{ratio}": sums[f"slowest_{ratio}"] / time for ratio in OVERSUBSCRIBED},
    }
