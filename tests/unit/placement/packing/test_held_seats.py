"""Held seats: who may take one, what is still in its way, and what becomes of it when it cannot be had."""

from dataclasses import replace

from cluster.actions import Bind, Evict, HoldSeats
from cluster.held_seats import DEADLINE_S, in_force, with_room_kept
from cluster.plans import Plan
from cluster.snapshot import HeldSeat, HeldSeats, Snapshot
from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import node, pod, world

UNTIL_S = 60.0


def seat(name: str, on: str, devices: tuple[int, ...], *, moved: bool = False, taker: str = "") -> HeldSeat:
    return HeldSeat(name, on, devices, 1000, 1000, 0, is_moved=moved, taker=taker if moved else name)


def with_held(seen: Snapshot, *seats: HeldSeat) -> Snapshot:
    return replace(seen, held=(HeldSeats(seats[0].pod, 0.0, UNTIL_S, seats),))


def packed(seen: Snapshot) -> Plan:
    return pack(seen, Packer(seen, BestFit()))


def binds(plan: Plan) -> dict[str, str]:
    return {step.action.pod: step.action.node for step in plan.steps() if isinstance(step.action, Bind)}


def test_a_free_seat_goes_to_whom_it_is_held_for_though_others_come_first() -> None:
    seen = world([node("a", gpus=1)], [pod("first", 1), pod("waits", 1)])

    assert binds(packed(seen)) == {"first": "a"}
    plan = packed(with_held(seen, seat("waits", "a", (0,))))
    assert binds(plan) == {"waits": "a"}
    assert [step.reason.code for step in plan.steps()] == ["HeldSeat"]


def test_a_higher_priority_takes_a_held_seat_as_any_other() -> None:
    seen = world([node("a", gpus=1)], [pod("urgent", 1, priority=10), pod("waits", 1)])

    assert binds(packed(with_held(seen, seat("waits", "a", (0,))))) == {"urgent": "a"}


def test_a_gang_waits_for_the_last_pod_that_ends_on_its_seats_and_holds_the_free_ones() -> None:
    gang = Gang("g", 2)
    pods = [
        pod("ends", 1, on="b", devices=(0,), ending=True),
        pod("g-0", 1, gang="g"),
        pod("g-1", 1, gang="g"),
        pod("other", 1),
    ]
    seen = with_held(
        world([node("a", gpus=1), node("b", gpus=1)], pods, [gang]), seat("g-0", "a", (0,)), seat("g-1", "b", (0,))
    )

    plan = packed(seen)

    assert plan.actions == ()
    (waits,) = [each.reason for each in plan.unplaced if each.workload == "Gang/g"]
    assert waits.code == "AwaitsEnding"
    assert (
        waits.words == "starts on b once 1 pods that are ending there are gone; its seats are held until 00:01:00 UTC"
    )
    assert "Pod/other" in {each.workload for each in plan.unplaced}


def test_a_gang_that_restarts_takes_none_of_its_held_seats_before_it_is_stopped_whole() -> None:
    pods = [pod("g-0", 1, on="a", devices=(0,), gang="g"), pod("g-1", 1, gang="g")]
    fleet = [node("a", gpus=1), node("b", gpus=1)]

    def planned(gang: Gang) -> dict[str, str]:
        return binds(packed(with_held(world(fleet, pods, [gang]), seat("g-1", "b", (0,)))))

    assert planned(Gang("g", 2)) == {"g-1": "b"}
    assert planned(Gang("g", 3, asked_members=2, must_restart=True)) == {}


def test_what_was_to_be_stopped_for_a_held_seat_is_stopped_in_the_next_plan() -> None:
    """The leader died between holding the seats and its evictions."""
    pods = [
        pod("low", 1, on="a", devices=(0,)),
        pod("g-0", 1, gang="g", priority=5),
        pod("g-1", 1, gang="g", priority=5),
    ]
    seen = with_held(
        world([node("a", gpus=1), node("b", gpus=1), node("c", gpus=1)], pods, [Gang("g", 2, priority=5)]),
        seat("g-0", "a", (0,)),
        seat("g-1", "b", (0,)),
    )

    plan = packed(seen)

    assert [step.action for step in plan.steps() if isinstance(step.action, Evict)] == [Evict("low", "a")]
    assert binds(plan)["g-0"] == "a"
    assert not [step for step in plan.steps() if isinstance(step.action, HoldSeats)], "they are held already"


def test_a_gang_gives_its_seats_up_where_one_of_them_cannot_be_had() -> None:
    """`stays` has the same priority, so the seat on a is lost; b and c are free."""
    pods = [pod("stays", 1, on="a", devices=(0,)), pod("g-0", 1, gang="g"), pod("g-1", 1, gang="g")]
    nodes = [node(name, gpus=1) for name in "abc"]
    seen = with_held(world(nodes, pods, [Gang("g", 2)]), seat("g-0", "a", (0,)), seat("g-1", "b", (0,)))

    assert set(binds(packed(seen)).values()) == {"b", "c"}


def test_the_seat_of_a_replacement_that_has_not_come_is_kept() -> None:
    seen = world([node("a", gpus=2)], [pod("other", 2), pod("small", 1)])
    seen = with_room_kept(with_held(seen, seat("moved", "a", (1,), moved=True)))

    assert binds(packed(seen)) == {"small": "a"}


def test_a_replacement_takes_the_seat_that_is_held_for_it() -> None:
    seen = world([node("a", gpus=1), node("b", gpus=1)], [pod("big", 1, priority=5), pod("app-2", 1)])
    seen = with_held(seen, seat("app-1", "a", (0,), moved=True, taker="app-2"))

    assert binds(packed(seen)) == {"app-2": "a", "big": "b"}


def test_no_seat_is_held_beyond_the_deadline_whatever_is_written() -> None:
    seats = (seat("p", "a", (0,)),)
    late, soon, ever = (HeldSeats("p", 0.0, until_s, seats) for until_s in (100.0, 101.0, 101.0 + DEADLINE_S))

    assert in_force((late, soon, ever), 100.0) == (soon,)


def test_a_gang_that_preempts_holds_its_seats_before_anything_is_stopped() -> None:
    pods = [
        *(pod(f"low-{n}", 1, on=name, devices=(0,)) for n, name in enumerate("ab")),
        pod("g-0", 1, gang="g", priority=5),
        pod("g-1", 1, gang="g", priority=5),
    ]
    seen = world([node("a", gpus=1), node("b", gpus=1)], pods, [Gang("g", 2, priority=5)], at_s=40.0)

    first = packed(seen).actions[0]

    assert isinstance(first, HoldSeats)
    assert first.held.until_s == 40.0 + DEADLINE_S
    assert {each.pod: each.node for each in first.held.seats} == binds(packed(seen))
