"""Traffic of gangs over a tree of switches: what rank order saves, and what gangs that come and go share. Simulated."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.cases import Row, case, numbers
from cluster import actions, arrays, plans, snapshot
from controller.deciders import edits
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import PlanRequest, planned
from placement.network_tree import natural
from tests.rigs.traffic import GPUS, LEAF, NODES_PER_LEAF, Arrivals, arrivals_of, fleet_of, started

ORDERS = ("random", "as packed", "rank order")
Order = list[str]
"""Node of each rank of a gang."""


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


def rings_of(plan: plans.Plan) -> dict[str, Order]:
    """Rings of the gangs that a plan starts: the nodes of their ranks in order."""
    node_of = {action.pod: action.node for action in plan.actions if isinstance(action, actions.Bind)}
    rings: dict[str, Order] = {}
    for pod in sorted(node_of, key=natural):
        rings.setdefault(pod.rpartition("-")[0], []).append(node_of[pod])
    return rings


def _uplinks(leaves: Sequence[str]) -> Counter[str]:
    """Edges of one ring over the uplink of each leaf, out of it. leaves: of the ranks in order."""
    return Counter(one for one, other in zip(leaves, (*leaves[1:], leaves[0]), strict=True) if one != other)


OVERSUBSCRIBED = (4, 8, 16)
"""NICs of a leaf over its uplinks."""
WARM_UP_SHARE = 0.25
"""Fraction of the arrivals before the measurement."""


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


def played(fleet: snapshot.Snapshot, coming: Arrivals) -> Tally:
    """Plans after each arrival and each end, until the last of them before the last arrival."""
    leaf, tally = fleet.nodes.domain(LEAF), Tally()
    running: dict[int, tuple[arrays.IntArray, arrays.IntArray]] = {}  # nodes and devices of the members
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
        for each, seat in started(fleet, coming, running, waiting).items():
            running[each] = seat
            waiting.remove(each)
            heapq.heappush(events, (at + float(coming.stay[each]), "ends", each))
            if at > measured_from:
                tally.leaves.append(len(np.unique(leaf[seat[0]])))
                tally.waits.append(at - float(coming.at[each]))
    return tally


def _count(tally: Tally, coming: Arrivals, leaves: dict[int, arrays.IntArray], for_time: float) -> None:
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
