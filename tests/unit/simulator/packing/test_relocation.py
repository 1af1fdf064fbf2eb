"""Relocation: one pod moves so that another fits."""

import numpy as np

from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.engine.policy import Policy
from placement.policies.bid_price import BidPrice
from placement.policies.published import BestFit
from placement.prices.classes import kinds_of, shares_of
from tests.builders.fleet import node, pod, shape, world
from tests.builders.running import running_pods_of
from tests.rigs.packing_moves import cheapest_relocation

HALF, WHOLE, PAIR = shape(1, 500, cpu_milli=4000), shape(1, cpu_milli=4000), shape(2, cpu_milli=8000)


def halves(movable: bool = True, gang: str = "") -> Snapshot:
    """Two nodes with two GPUs each; on each node a half sits alone on a GPU, and a whole pod on the other of `b`."""
    return world(
        [node("a", gpus=2), node("b", gpus=2)],
        [
            pod("half-a", 1, gpu_milli=500, cpu_milli=4000, on="a", devices=(0,), movable=movable, gang=gang),
            pod("half-b", 1, gpu_milli=500, cpu_milli=4000, on="b", devices=(0,), movable=movable, gang=gang),
            pod("whole-b", 1, cpu_milli=4000, on="b", devices=(1,), movable=False),
        ],
        [Gang(gang, 1)] if gang else [],
    )


def told(seen: Snapshot) -> BidPrice:
    return BidPrice(kinds_of(seen.nodes, seen.gpu_type_names), shares_of([HALF, WHOLE, PAIR, PAIR]))


def packer(seen: Snapshot, policy: Policy | None = None) -> Packer:
    return Packer(seen, policy or told(seen))


def test_one_move_lets_a_pod_fit_that_fits_nowhere() -> None:
    seen = halves()
    engine = packer(seen)

    room = cheapest_relocation(engine, running_pods_of(seen), PAIR)

    # Only `a` can have two idle GPUs, once its half has joined the one on device 0 of `b`.
    assert room is not None
    assert (seen.pods.names[room.pod], room.to.node, room.to.devices) == ("half-a", 1, 0b01)
    assert (room.choice.node, room.choice.devices) == (0, 0b11)


def test_searching_for_a_relocation_changes_nothing() -> None:
    seen = halves()
    engine, running = packer(seen), running_pods_of(seen)
    before = engine.ledger.gpu_milli.copy(), engine.ledger.cpu_milli.copy(), dict(running)

    cheapest_relocation(engine, running, PAIR)

    assert np.array_equal(engine.ledger.gpu_milli, before[0])
    assert np.array_equal(engine.ledger.cpu_milli, before[1])
    assert dict(running) == before[2]


def test_room_is_made_under_a_policy_that_knows_no_worth_too() -> None:
    seen = halves()

    assert cheapest_relocation(packer(seen, BestFit()), running_pods_of(seen), PAIR) is not None
