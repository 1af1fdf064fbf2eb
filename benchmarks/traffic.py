"""Traffic of gangs over a tree of switches: what the order of ranks saves. Simulated."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.cases import Row, case, numbers
from cluster import actions, plans
from controller.deciders import edits
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import ORDER, decide
from placement.network_tree import natural
from tests.rigs.traffic import GPUS, NODES_PER_LEAF, fleet_of

ORDERS = ("random", "as packed", "rank order")
UNORDERED = tuple(each for each in ORDER if each.name != "rank_order")
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
        packed = decide(fleet.snapshot, Decisions(), deadline_s=600.0, clock=float, order=UNORDERED)
        ordered = edits.order_ranks(fleet.snapshot, packed, Decisions())
        shuffled = {gang: list(rng.permutation(nodes)) for gang, nodes in rings_of(packed).items()}
        for name, rings in zip(ORDERS, (shuffled, rings_of(packed), rings_of(ordered)), strict=True):
            leaves = {gang: [fleet.leaf[node] for node in ring] for gang, ring in rings.items()}
            crossing = {
                gang: Counter(one for one, other in zip(own, (*own[1:], own[0]), strict=True) if one != other)
                for gang, own in leaves.items()
            }
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
