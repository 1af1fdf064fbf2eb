"""Room by moves: who leaves, where they go, what it may cost, and who never moves."""

from dataclasses import replace
from random import Random

import pulp
import pytest

from cluster.actions import Bind, HoldSeats, Move
from cluster.disruption import DisruptionBudget
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.guard import Limits, guard
from placement.engine.packer import Packer
from placement.move_price import MovePrice
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Node, Pod, node, pod, world

ANY = Limits(max_evictions_share=1.0, max_evictions_floor=1000)


def packed(seen: Snapshot, **price: float) -> Plan:
    plan = pack(seen, Packer(seen, BestFit()), moves=MovePrice(**price))
    assert guard(seen, plan, ANY).refused == ()
    return plan


def of_type(plan: Plan, kind: type) -> list[Bind | Move]:
    return [step.action for step in plan.steps() if isinstance(step.action, kind)]


def halves(names: str, **marks: object) -> list[Pod]:
    """A pod on the first device of each of these nodes."""
    return [pod(f"ns/{n}", 1, on=n, devices=(0,), **{"movable": True, **marks}) for n in names]


def pairs(names: str) -> list[Node]:
    return [node(n, gpus=2) for n in names]


def test_seats_are_held_and_then_one_phase_moves_the_fewest_and_starts_the_pod() -> None:
    """b has one pod to move and room for it is on a only; c is full."""
    pods = [*halves("ab"), pod("ns/c", 2, on="c", devices=(0, 1), movable=True), pod("ns/wide", 2)]

    first, phase = packed(world(pairs("abc"), pods)).phases

    (hold,), (move, start) = ([step.action for step in each.steps] for each in (first, phase))
    assert phase.whole
    assert isinstance(move, Move)
    assert {move.from_node, move.node} == {"a", "b"}
    assert start == Bind("ns/wide", move.from_node, (0, 1))
    assert isinstance(hold, HoldSeats)
    assert [(seat.pod, seat.node, seat.is_moved) for seat in hold.held.seats] == [
        ("ns/wide", move.from_node, False),
        (move.pod, move.node, True),
    ]
    assert move.beneficiary == "Pod/ns/wide"


@pytest.mark.parametrize(
    "marks",
    [{"movable": False}, {"settled": True}, {"strangers": True}, {"priority": 5}, {"ending": True}],
)
def test_who_may_not_be_moved_stays(marks: dict[str, object]) -> None:
    plan = packed(world(pairs("ab"), [*halves("ab", **marks), pod("ns/wide", 2)]))

    assert of_type(plan, Move) == []


def test_a_member_of_a_gang_is_not_moved_alone() -> None:
    plan = packed(world(pairs("ab"), [*halves("ab", gang="g"), pod("ns/wide", 2)], [Gang("g", 2)]))

    assert of_type(plan, Move) == []


def test_nobody_moves_where_nothing_waits_or_what_waits_would_not_fit_even_so() -> None:
    assert packed(world(pairs("ab"), halves("ab"))).actions == ()
    assert packed(world(pairs("ab"), [*halves("ab"), pod("ns/wide", 3)])).actions == ()


def test_a_budget_a_namespace_and_a_service_bound_what_moves() -> None:
    names = "abcd"
    pods = [*halves(names, owner="ns/chat"), pod("ns/w-0", 2), pod("ns/w-1", 2)]
    seen = world(pairs(names), pods)

    assert len(of_type(packed(seen), Move)) == 2
    assert len(of_type(packed(seen, most_share=0.25), Move)) == 1
    assert of_type(packed(replace(seen, moved={"ns/chat": 1}), most_share=0.25), Move) == []
    assert of_type(packed(replace(seen, moved={"ns": 1}), most_share=0.25), Move) == []
    kept = DisruptionBudget("ns/b", 1, tuple(f"ns/{n}" for n in names))
    assert len(of_type(packed(replace(seen, budgets=(kept,))), Move)) == 1


def test_the_pod_that_saved_its_work_last_moves() -> None:
    at_s, (a, b) = 10_000.0, halves("ab", started_s=1)
    seen = world(pairs("ab"), [replace(a, saved_s=9_900), replace(b, saved_s=5_000), pod("ns/wide", 2)], at_s=at_s)

    (move,) = of_type(packed(seen), Move)

    assert move.pod == "ns/a"


def test_no_pod_moves_that_costs_more_than_the_start_is_worth() -> None:
    """Two GPUs of 1 $/h for 8 h are worth $16; the only pod that could leave loses 20 h of one GPU, at 4 $/h."""
    at_s = 100_000.0
    pods = halves("ab", started_s=1, saved_s=int(at_s) - 72_000)

    assert of_type(packed(world(pairs("ab"), [*pods, pod("ns/wide", 2)], at_s=at_s)), Move) == []


def test_a_gang_gets_room_whole_in_one_domain_or_not_at_all() -> None:
    nodes = [node(n, gpus=2, labels={"rack": "r1" if n in "ab" else "r2"}) for n in "abcde"]
    gang = [pod(f"ns/g-{n}", 2, gang="g") for n in (0, 1)]
    seen = world(nodes, [*halves("abcde"), *gang], [Gang("g", 2, within="rack")])

    plan = packed(seen)

    assert {each.node for each in of_type(plan, Bind)} in ({"a", "b"}, {"c", "d"}, {"c", "e"}, {"d", "e"})
    assert len(of_type(plan, Move)) == 2
    three = world(nodes, [*halves("abcde"), *gang, pod("ns/g-2", 2, gang="g")], [Gang("g", 3, within="rack")])
    assert packed(three).actions == (), "five halves leave room for two wide pods, of which a gang needs three"


def fewest(loads: list[int], gpus: int, wide: int, width: int) -> int:
    """Fewest pods of one GPU that leave so that `wide` pods of `width` GPUs fit, by an exact model of its own."""
    model = pulp.LpProblem("fewest", pulp.LpMinimize)
    start = [model.add_variable(f"w{n}", 0, gpus // width, pulp.LpInteger) for n in range(len(loads))]
    out = [model.add_variable(f"o{n}", 0, load, pulp.LpInteger) for n, load in enumerate(loads)]
    into = [model.add_variable(f"i{n}", 0, gpus, pulp.LpInteger) for n in range(len(loads))]
    model += pulp.lpSum(out)
    model += pulp.lpSum(start) == wide
    model += pulp.lpSum(out) == pulp.lpSum(into)
    for n, load in enumerate(loads):
        model += load - out[n] + into[n] + width * start[n] <= gpus
    model.solve(pulp.HiGHS(msg=False))
    return round(pulp.value(model.objective)) if model.sol_status == pulp.LpSolutionOptimal else -1


@pytest.mark.parametrize("seed", range(25))
def test_all_start_that_can_and_as_few_move_as_by_an_exact_search(seed: int) -> None:
    """200 seeds: 356 moves, as the exact model."""
    chance = Random(seed)  # noqa: S311 - a test's
    count, width = chance.randint(4, 20), chance.choice((2, 4, 8))
    loads = [chance.randint(0, 8) for _ in range(count)]
    wide = chance.randint(1, max(1, sum(8 - load for load in loads) // width))
    seats = [(n, d) for n, load in enumerate(loads) for d in chance.sample(range(8), load)]
    pods = [pod(f"ns/p-{n}-{d}", 1, on=f"n{n}", devices=(d,), movable=True) for n, d in seats]
    pods += [pod(f"ns/w-{n}", width) for n in range(wide)]

    plan = packed(world([node(f"n{n}", gpus=8) for n in range(count)], pods))

    assert len(of_type(plan, Bind)) == wide
    assert len(of_type(plan, Move)) == fewest(loads, 8, wide, width)


def begun(seen: Snapshot) -> Snapshot:
    """The snapshot after the seats of its plan were held, and nothing more."""
    held = [action.held for action in packed(seen).actions if isinstance(action, HoldSeats)]
    taken = {each.holder for each in held}
    seats = [[replace(s, taker=s.pod if s.pod in taken else "", owner="RS/ns/x") for s in h.seats] for h in held]
    return replace(seen, held=tuple(replace(h, seats=tuple(s)) for h, s in zip(held, seats, strict=True)))


def test_the_next_leader_goes_on_with_the_same_moves_and_holds_nothing_anew() -> None:
    seen = world(pairs("abcd"), [*halves("abcd"), pod("ns/w-0", 2), pod("ns/w-1", 2)])
    first, again = packed(seen), packed(begun(seen))

    assert of_type(again, Move) == of_type(first, Move)
    assert of_type(again, Bind) == of_type(first, Bind)
    assert not [action for action in again.actions if isinstance(action, HoldSeats)]


def test_pods_that_come_between_get_no_seat_of_a_move_that_is_yet_to_be_done() -> None:
    """All four seats that are free are held: one each on two nodes for w, and two for those that move."""
    seen = begun(world(pairs("abcd"), [*halves("abcd"), pod("ns/w-0", 2), pod("ns/w-1", 2)]))
    others = world(pairs("abcd"), [*halves("abcd"), *(pod(f"ns/{n}", 2) for n in ("w-0", "w-1")), pod("ns/a-first", 1)])

    plan = packed(replace(others, held=seen.held))

    assert "ns/a-first" not in {each.pod for each in of_type(plan, Bind)}
    assert len(of_type(plan, Move)) == 2


def test_moves_that_were_refused_since_are_decided_anew() -> None:
    seen = begun(world(pairs("abc"), [*halves("ab"), *halves("c", movable=False), pod("ns/wide", 2)]))
    (move,) = of_type(packed(seen), Move)
    pods = [replace(each, settled=f"ns/{each.node}" == move.pod) for each in halves("ab")]

    again = packed(
        replace(world(pairs("abc"), [*pods, *halves("c", movable=False), pod("ns/wide", 2)]), held=seen.held)
    )

    assert move.pod not in {each.pod for each in of_type(again, Move)}
    assert [each.pod for each in of_type(again, Bind)] == ["ns/wide"]


def test_after_the_moves_nothing_moves_any_more() -> None:
    seen = world(pairs("abcd"), [*halves("abcd"), pod("ns/w-0", 2), pod("ns/w-1", 2)])

    assert packed(seen.after(packed(seen).actions)).actions == ()


@pytest.mark.parametrize("seed", range(30))
def test_strangers_and_those_that_stay_are_never_disturbed_and_budgets_hold(seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - a test's
    marks = [{}, {"movable": False}, {"strangers": True}, {"settled": True}, {"owner": "ns/chat"}, {"priority": 9}]
    pods = [
        pod(f"ns/p-{n}-{d}", 1, on=f"n{n}", devices=(d,), **{"movable": True, **chance.choice(marks)})
        for n in range(10)
        for d in range(8)
        if chance.random() < 0.5
    ]
    names = [each.name for each in pods]
    budgets = [
        DisruptionBudget(f"ns/b{n}", chance.randint(0, 3), tuple(chance.sample(names, len(names) // 4))) for n in (0, 1)
    ]
    waits = [pod(f"ns/w-{n}", chance.choice((2, 4, 8)), priority=chance.choice((0, 5))) for n in range(6)]
    seen = world([node(f"n{n}", gpus=8) for n in range(10)], [*pods, *waits], budgets=budgets)

    plan = packed(seen, most_share=0.3)  # the guard refused nothing: strangers, those that stay, budgets, devices

    moved = {each.pod for each in of_type(plan, Move)}
    of = {each.name: each for each in pods}
    assert all(of[name].movable and of[name].priority <= 5 for name in moved)
    assert len(moved) <= 0.3 * len([each for each in pods if each.movable])
