"""Pods of others in the way: who is left to kube-scheduler, and who waits for pods that end."""

from cluster.actions import Bind, Evict, Release
from cluster.disruption import DisruptionBudget
from cluster.plans import Plan, PlanLimits
from cluster.workloads import Gang
from controller.guard import guard
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world


def theirs(name: str, *devices: int, on: str = "a", **marks: object) -> Pod:
    return pod(name, len(devices), on=on, devices=devices, **{"strangers": True, **marks})  # type: ignore[arg-type]


def planned(
    *pods: Pod, nodes: str = "a", gangs: tuple[Gang, ...] = (), budgets: tuple[DisruptionBudget, ...] = ()
) -> Plan:
    seen = world([node(name, gpus=2) for name in nodes], pods, gangs, budgets=budgets)
    plan = guard(seen, pack(seen, Packer(seen, BestFit())), PlanLimits())
    assert plan.refused == ()
    return plan


def test_a_pod_that_fits_only_without_pods_of_others_is_left_to_kube_scheduler() -> None:
    plan = planned(theirs("one", 0), theirs("two", 1), pod("urgent", 2, priority=9))

    assert plan.actions == (Release("urgent", "a", (0, 1)),)
    assert plan.unplaced == ()


def test_where_a_pod_of_ones_own_suffices_that_is_stopped_and_no_stranger() -> None:
    own = pod("own", 2, on="b", devices=(0, 1), priority=5)

    plan = planned(theirs("one", 0), theirs("two", 1), own, pod("urgent", 2, priority=9), nodes="ab")

    assert plan.actions[:2] == (Evict("own", "b"), Bind("urgent", "b", (0, 1)))


def test_strangers_of_the_same_priority_are_in_nobodys_way() -> None:
    assert planned(theirs("one", 0, 1, priority=9), pod("urgent", 2, priority=9)).actions == ()


def test_one_pod_a_node_is_left_to_kube_scheduler_in_one_plan() -> None:
    others = (theirs("a0", 0, 1), theirs("b0", 0, 1, on="b"))

    plan = planned(*others, *(pod(f"urgent-{n}", 2, priority=9) for n in range(3)), nodes="ab")

    assert {(action.pod, action.node) for action in plan.actions if isinstance(action, Release)} == {
        ("urgent-0", "a"),
        ("urgent-1", "b"),
    }
    assert [each.workload for each in plan.unplaced] == ["Pod/urgent-2"]


def test_kube_scheduler_is_not_led_to_pods_that_ask_to_stay_or_have_a_budget() -> None:
    stays = planned(theirs("stays", 0, settled=True), theirs("two", 1), pod("urgent", 1, priority=9))
    covered = planned(
        theirs("one", 0, 1), pod("urgent", 1, priority=9), budgets=(DisruptionBudget("ns/b", 1, ("one",)),)
    )

    assert stays.actions == covered.actions == ()
    assert "that ask to stay" in stays.unplaced[0].reason.words


def test_a_gang_is_not_left_to_kube_scheduler_which_would_start_a_part_of_it() -> None:
    gang = Gang("g", min_members=2, priority=9)
    members = [pod(f"g-{n}", 1, gang="g", priority=9) for n in range(2)]

    plan = planned(theirs("one", 0), theirs("two", 1), *members, gangs=(gang,))

    assert plan.actions == ()
    assert "2 of other schedulers" in plan.unplaced[0].reason.words


def test_a_pod_that_needs_the_room_of_pods_that_end_waits_for_them_and_stops_no_others() -> None:
    ends = pod("ends", 2, on="a", devices=(0, 1), ending=True, strangers=True, priority=99)
    low = pod("low", 2, on="b", devices=(0, 1))

    plan = planned(ends, low, pod("urgent", 2, priority=9), nodes="ab")

    assert plan.actions == ()
    (waits,) = plan.unplaced
    assert (waits.workload, waits.reason.code) == ("Pod/urgent", "AwaitsEnding")


def test_what_must_be_stopped_beside_pods_that_end_is_stopped_at_once() -> None:
    ends = pod("ends", 1, on="a", devices=(0,), ending=True)

    plan = planned(ends, pod("low", 1, on="a", devices=(1,)), pod("urgent", 2, priority=9))

    assert plan.actions == (Evict("low", "a"),)
    assert {each.reason.code for each in plan.unplaced if each.workload == "Pod/urgent"} == {"AwaitsEnding"}


def test_a_pod_that_ends_is_not_placed_again() -> None:
    ends = pod("ends", 1, on="a", devices=(0,), ending=True)

    plan = planned(ends, pod("urgent", 2, priority=9), nodes="ab")

    assert plan.actions == (Bind("urgent", "b", (0, 1)),)
