"""Gangs start whole, near each other, and never block other pods."""

from cluster.actions import Bind, Evict
from cluster.disruption import DisruptionBudget
from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.draft import PackingDraft, effective_priority
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Node, Pod, node, pod, world

RACK = "topology.tonnage.dev/rack"


def packed(seen: Snapshot) -> Plan:
    return pack(seen, Packer(seen, BestFit()))


def members(gang: str, count: int, gpus: int, **rest: object) -> list[Pod]:
    return [pod(f"{gang}-{i}", gpus, gang=gang, **rest) for i in range(count)]


def racked(name: str, rack: str, gpus: int) -> Node:
    return node(name, gpus=gpus, labels={RACK: rack})


def test_an_8_gpu_pod_is_not_admitted_on_a_sum_of_4_and_4_and_blocks_no_other() -> None:
    # Kueue #4329: the sum of 4 + 4 free GPUs is 8, and yet no node can run it.
    gang = Gang("big", min_members=1)
    seen = world([node("a", gpus=4), node("b", gpus=4)], [*members("big", 1, gpus=8), pod("small", gpus=4)], [gang])

    plan = packed(seen)

    assert [type(a).__name__ + " " + a.pod for a in plan.actions if isinstance(a, Bind)] == ["Bind small"]
    assert [u.workload for u in plan.unplaced] == ["Gang/big"]


def test_a_gang_of_8_single_gpus_uses_4_and_4() -> None:
    gang = Gang("big", min_members=8)
    seen = world([node("a", gpus=4), node("b", gpus=4)], members("big", 8, gpus=1), [gang])

    assert len(packed(seen).actions) == 8


def test_a_gang_that_is_one_member_short_holds_nothing_and_the_next_unit_is_placed() -> None:
    gang = Gang("big", min_members=3)
    waiting = [*members("big", 3, gpus=4), pod("s", gpus=4), pod("t", gpus=4)]
    seen = world([node("a", gpus=4), node("b", gpus=4)], waiting, [gang])

    plan = packed(seen)

    assert sorted(a.pod for a in plan.actions if isinstance(a, Bind)) == ["s", "t"]
    (left,) = plan.unplaced
    assert (left.workload, left.reason.code) == ("Gang/big", "GangHeldBack")


def test_members_above_the_minimum_start_as_far_as_they_fit() -> None:
    gang = Gang("g", min_members=2)
    seen = world([node("a", gpus=3)], members("g", 4, gpus=1), [gang])

    assert len(packed(seen).actions) == 3


def test_a_gang_bound_to_one_rack_takes_the_tightest_that_holds_it_and_none_if_none_does() -> None:
    racks = [racked("x1", "x", 8), racked("x2", "x", 8), racked("y1", "y", 8), racked("z1", "z", 4)]
    gang = Gang("g", min_members=2, within=RACK)

    fits = packed(world(racks, members("g", 2, gpus=4), [gang]))
    too_big = packed(world(racks, members("g", 3, gpus=8), [Gang("g", min_members=3, within=RACK)]))

    assert {a.node for a in fits.actions if isinstance(a, Bind)} == {"y1"}
    assert too_big.actions == ()
    assert "within one " + RACK in too_big.unplaced[0].reason.words


def test_a_gang_that_prefers_one_rack_spreads_over_as_few_as_can_be() -> None:
    # Racks hold 2, 4 and 3 members. 5 members: the tightest pair (2 + 3), so that the widest rack stays whole.
    sizes = {"x": 2, "y": 4, "z": 3}
    racks = [racked(f"{rack}{i}", rack, 8) for rack, count in sizes.items() for i in range(count)]
    gang = Gang("g", min_members=5, prefer_within=RACK)

    plan = packed(world(racks, members("g", 5, gpus=8), [gang]))

    used = sorted(a.node[0] for a in plan.actions if isinstance(a, Bind))
    assert used == ["x", "x", "z", "z", "z"]


def test_a_member_that_was_lost_returns_to_the_rack_of_its_gang() -> None:
    gang = Gang("g", min_members=2, within=RACK)
    running = pod("g-0", 1, gang="g", on="x1", devices=(0,))
    seen = world([racked("x1", "x", 2), racked("y1", "y", 1)], [running, pod("g-1", 1, gang="g")], [gang])

    assert packed(seen).actions == (Bind("g-1", "x1", (1,)),)


def test_a_more_important_gang_stops_a_less_important_one_whole() -> None:
    low, high = Gang("low", min_members=2), Gang("high", min_members=1, priority=10)
    running = [pod(f"low-{i}", 4, gang="low", on=n, devices=(0, 1, 2, 3)) for i, n in enumerate("ab")]
    boss = pod("high-0", 4, gang="high", priority=10)
    seen = world([node("a", gpus=4), node("b", gpus=4)], [*running, boss], [low, high])

    plan = packed(seen)

    assert {a.pod for a in plan.actions if isinstance(a, Evict)} == {"low-0", "low-1"}
    assert (seen.after(plan.actions).pods.node != PENDING).tolist() == [False, False, True]


def test_wide_gangs_that_stop_wide_gangs_take_little_work() -> None:
    """The search tried sets of equal members one by one: ten seconds for three gangs, so that no plan ended in time."""
    nodes = [node(f"n{n:02}", gpus=8) for n in range(24)]
    low = [
        pod(f"low{n}", gpus=1, on=f"n{n // 8:02}", devices=(n % 8,), gang=f"low{n // 64}", priority=1)
        for n in range(192)
    ]
    high = [pod(f"high{n}", gpus=1, gang=f"high{n // 64}", priority=2) for n in range(192)]
    seen = world(nodes, [*low, *high], [Gang(f"{name}{n}", 64) for name in ("low", "high") for n in range(3)])

    plan = pack(seen, Packer(seen, BestFit()), Budget(800_000.0))

    assert sum(isinstance(action, Evict) for action in plan.actions) == 192
    assert {each.workload for each in plan.unplaced} == {"Gang/low0", "Gang/low1", "Gang/low2"}


def test_a_gang_that_preemption_cannot_help_preempts_no_pod() -> None:
    gang = Gang("big", min_members=3, priority=10)
    running = [pod(f"r{i}", 4, on=n, devices=(0, 1, 2, 3)) for i, n in enumerate("ab")]
    seen = world([node("a", gpus=4), node("b", gpus=4)], [*running, *members("big", 3, gpus=4, priority=10)], [gang])

    assert packed(seen).actions == ()


def test_a_pod_that_never_preempts_waits_although_less_important_ones_run() -> None:
    busy = pod("low", 1, on="a", devices=(0,))
    seen = world([node("a", gpus=1)], [busy, pod("patient", 1, priority=100, never_preempts=True)])

    plan = packed(seen)

    assert plan.actions == ()
    assert [u.workload for u in plan.unplaced] == ["Pod/patient"]


def test_a_pod_that_never_preempts_holds_up_none_of_its_shape_that_does() -> None:
    busy = pod("low", 1, on="a", devices=(0,))
    waits = [pod("patient", 1, priority=100, never_preempts=True), pod("urgent", 1, priority=100)]

    plan = packed(world([node("a", gpus=1)], [busy, *waits]))

    assert plan.actions == (Evict("low", "a"), Bind("urgent", "a", (0,)))


def test_a_waiting_gang_that_loses_its_running_member_to_a_more_important_pod_waits_whole() -> None:
    """`urgent` needs all CPU of the only node, which the launcher of the gang has; its worker waits already."""
    gang = Gang("train", min_members=2)
    launcher, worker = pod("launcher", cpu_milli=16_000, gang="train", on="a"), pod("worker", 8, gang="train")
    urgent = pod("urgent", 8, cpu_milli=16_000, priority=100)
    seen = world([node("a", gpus=8, cpu_milli=16_000)], [launcher, worker, urgent], [gang])

    plan = packed(seen)

    assert plan.actions == (Evict("launcher", "a"), Bind("urgent", "a", tuple(range(8))))
    assert [u.workload for u in plan.unplaced] == ["Gang/train"]


def test_a_gang_that_runs_in_part_is_completed_where_it_runs_even_where_another_domain_fits_tighter() -> None:
    gang = Gang("g", min_members=2, within=RACK)
    running = pod("g-0", 1, gang="g", on="x1", devices=(0,))
    seen = world([racked("x1", "x", 8), racked("y1", "y", 1)], [running, pod("g-1", 1, gang="g")], [gang])

    (bind,) = packed(seen).actions

    assert isinstance(bind, Bind)
    assert bind.node == "x1"


def test_the_start_of_a_gang_is_a_phase_that_is_done_whole_or_not_at_all() -> None:
    seen = world([node("a", gpus=4)], [*members("g", 2, gpus=1), pod("p", gpus=1)], [Gang("g", min_members=2)])

    assert {phase.name: phase.whole for phase in packed(seen).phases} == {"start g": True, "start pods": False}


def test_a_gang_is_as_important_as_its_most_important_member() -> None:
    """Else the first member would preempt the others of its own gang, and they it, cycle after cycle."""
    gang = Gang("g", min_members=2)
    running = [pod(f"g-{n}", 1, gang="g", on="a", devices=(n,)) for n in range(2)]
    late = pod("g-2", 1, gang="g", priority=10)
    seen = world([node("a", gpus=2)], [*running, late, pod("other", 1, priority=5)], [gang])

    assert packed(seen).actions == ()
    assert effective_priority(seen).tolist() == [10, 10, 10, 5]


def test_a_gang_that_falls_below_its_minimum_restarts_whole_also_where_a_member_keeps_its_seat() -> None:
    """`boss` needs rack x, so it stops g-0, which goes to rack z. g-1 gets its own seat again, and must restart."""
    gang = Gang("g", min_members=2)
    running = [pod(f"g-{i}", 4, gang="g", on=f"{rack}1", devices=(0, 1, 2, 3)) for i, rack in enumerate("xy")]
    boss = pod("boss", 4, priority=10, selector={RACK: "x"})

    plan = packed(world([racked(f"{rack}1", rack, 4) for rack in "xyz"], [*running, boss], [gang]))

    assert {a.pod for a in plan.actions if isinstance(a, Evict)} == {"g-0", "g-1"}
    seats = {a.pod: a.node for a in plan.actions if isinstance(a, Bind)}
    assert seats["boss"] == "x1"
    assert {seats["g-0"], seats["g-1"]} == {"y1", "z1"}


def test_what_is_left_of_a_gang_that_falls_below_its_minimum_is_stopped_and_started_again_where_it_was() -> None:
    gang = Gang("g", min_members=2)
    running = [pod(f"g-{i}", 1, gang="g", on="a", devices=(i,)) for i in range(3)]
    seen = world([node("a", gpus=4)], running, [gang])

    one, two = (PackingDraft(seen, Packer(seen, BestFit())) for _ in range(2))
    one.unseat(0)
    for row in (0, 1):
        two.unseat(row)

    assert one.changed() == ([0], []), "two of three still run"
    assert two.changed() == ([0, 1, 2], [2])


def test_a_member_above_the_minimum_that_fits_nowhere_waits_and_the_plan_ends() -> None:
    """By the count of what could be stopped it would fit, but the budget allows to stop only one of the two."""
    gang = Gang("g", min_members=1, priority=9)
    low = [pod(f"low-{n}", 1, on="a", devices=(n,)) for n in range(2)]
    runs = pod("g-0", 1, on="a", devices=(2,), gang="g", priority=9)
    budget = DisruptionBudget("ns/b", 1, ("low-0", "low-1"))
    more = pod("g-1", 2, gang="g", priority=9)
    seen = world([node("a", gpus=3)], [*low, runs, more], [gang], budgets=(budget,))

    plan = pack(seen, Packer(seen, BestFit()))

    assert plan.actions == ()
    assert [each.workload for each in plan.unplaced] == ["Gang/g"]
