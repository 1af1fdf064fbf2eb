"""What holds of bounds, prices and moves in every fleet."""

from collections import Counter

import numpy as np
from hypothesis import given, settings, strategies as st

from cluster.snapshot import Snapshot
from placement.engine.packer import Packer
from placement.engine.policy import Knowledge
from placement.policies import POLICIES
from placement.policies.bid_price import BidPrice
from placement.prices.allocation_bound import allocation_bound
from placement.prices.classes import class_of, kinds_of, shares_of
from tests.builders.fleet import Node, Pod, node, shape, world
from tests.rigs.packing_rivals import RIVALS

ASKS = ((0, 0), (1, 200), (1, 500), (1, 810), (1, 1000), (2, 1000), (4, 1000))


@st.composite
def fleets(draw: st.DrawFn) -> Snapshot:
    """A few nodes, and pods that a policy has seated on them as far as they fit; the others are pending."""
    nodes: list[Node] = [
        node(
            f"n{i}",
            gpus=draw(st.sampled_from((0, 1, 2, 4))),
            gpu_type=draw(st.sampled_from(("A100", "L4"))),
            cpu_milli=draw(st.sampled_from((8_000, 32_000))),
        )
        for i in range(draw(st.integers(1, 5)))
    ]
    pods: list[Pod] = []
    for i in range(draw(st.integers(1, 14))):
        gpus, milli = draw(st.sampled_from(ASKS))
        types = draw(st.sampled_from(((), (), ("A100",)))) if gpus else ()
        asked = shape(gpus, milli, cpu_milli=draw(st.sampled_from((500, 4_000))), gpu_types=types)
        pods.append(Pod(f"p{i}", asked, movable=draw(st.booleans())))
    return seated(world(nodes, pods), draw(st.sampled_from(("random", "bestfit", "tonnage"))))


def seated(seen: Snapshot, policy: str) -> Snapshot:
    engine = Packer(seen, {**POLICIES, **RIVALS}[policy](Knowledge(seen, seen.pods.shapes)))
    node_of, devices = seen.pods.node.copy(), seen.pods.devices.copy()
    for row in seen.pods.pending:
        asked = seen.pods.shapes[seen.pods.shape[row]]
        if choice := engine.choose(asked):
            engine.place(asked, choice)
            node_of[row], devices[row] = choice.node, choice.devices
    pods = type(seen.pods)(
        seen.pods.names,
        seen.pods.shape,
        seen.pods.shapes,
        node_of,
        devices,
        seen.pods.priority,
        seen.pods.gang,
        seen.pods.owner,
        seen.pods.movable,
    )
    return Snapshot(seen.at_s, seen.gpu_types, seen.nodes, pods)


def allocated_gpus(seen: Snapshot) -> float:
    return float((1000 * seen.nodes.gpus - seen.free().gpu_milli.sum(axis=1)).sum()) / 1000


def bid_price(seen: Snapshot) -> BidPrice:
    shapes = [seen.pods.shapes[row] for row in seen.pods.shape]
    return BidPrice(kinds_of(seen.nodes, seen.gpu_type_names), shares_of(shapes))


@given(fleets())
@settings(max_examples=60, deadline=None)
def test_no_policy_allocates_more_than_the_bound(seen: Snapshot) -> None:
    asked = Counter(class_of(seen.pods.shapes[row]) for row in seen.pods.shape)
    demand = np.array(list(asked.values()), dtype=np.float64)

    bound = allocation_bound(list(asked), demand, kinds_of(seen.nodes, seen.gpu_type_names))

    assert bound.gpus >= allocated_gpus(seen) - 1e-6


@given(fleets())
@settings(max_examples=60, deadline=None)
def test_a_class_is_worth_at_most_what_it_asks_for(seen: Snapshot) -> None:
    book = bid_price(seen).book

    assert (book.class_worth >= 0).all()
    assert (book.class_worth <= book.shares.gpu_demand + 1e-9).all()
