"""Moves: relocation so that one pod fits, and moves whose freed resources are worth more than the move."""

import numpy as np

from cluster.actions import Move
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.engine.policy import Policy
from placement.move_price import MovePrice
from placement.moves import defragmented, movable_rows, running_pods_of
from placement.policies.bid_price import BidPrice
from placement.policies.published import BestFit
from placement.prices.classes import kinds_of, shares_of
from simulator.packing.relocation import cheapest_relocation
from tests.builders.fleet import node, pod, shape, world

HALF, WHOLE, PAIR = shape(1, 500, cpu_milli=4000), shape(1, cpu_milli=4000), shape(2, cpu_milli=8000)
CHEAP = MovePrice(per_pod_usd=0.1, per_gpu_usd=0.1, stay_h=24)


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


def test_halves_are_put_together_where_the_freed_gpu_pays_for_the_move() -> None:
    seen = halves()

    phases = defragmented(seen, packer(seen), CHEAP, most_share=0.5)

    # The half of `a` joins the one of `b`: two GPUs of `a` together are what pairs pay for.
    [step] = [step for phase in phases for step in phase.steps]
    assert step.action == Move("half-a", "a", "b", (0,))
    assert step.reason.code == "WorthMoving"
    assert step.reason.figures["saving_usd"] > step.reason.figures["price_usd"]


def test_a_move_that_costs_more_than_it_frees_is_not_made() -> None:
    # A GPU costs 1 $/h here and is freed for a day: at most 2 * 24 $ could be saved.
    seen = halves()

    assert defragmented(seen, packer(seen), MovePrice(49.0, 0.0, stay_h=24), most_share=1) == ()


def test_no_more_pods_move_than_the_budget_allows() -> None:
    seen = halves()

    assert defragmented(seen, packer(seen), CHEAP, most_share=0.33) == ()  # a third of 3 pods, less a bit, is none


def test_gangs_and_pods_that_must_stay_are_not_moved() -> None:
    assert movable_rows(halves()) == (0, 1)
    assert movable_rows(halves(movable=False)) == ()
    assert movable_rows(halves(gang="trainers")) == ()


def test_the_plan_of_moves_can_be_applied_and_leaves_nothing_to_move() -> None:
    seen = halves()
    phases = defragmented(seen, packer(seen), CHEAP, most_share=1)

    after = seen.after(step.action for phase in phases for step in phase.steps)

    assert (after.free().gpu_milli >= 0).all()
    assert defragmented(after, packer(after), CHEAP, most_share=1) == ()
