"""Preemption: only less important pods are stopped, no more of them than must be, and none for nothing."""

from dataclasses import replace

from cluster.actions import Action, Bind, Evict
from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world


def planned(*pods: Pod, gpus: int = 4, nodes: str = "a", gangs: tuple[Gang, ...] = ()) -> tuple[Action, ...]:
    seen = world([node(name, gpus=gpus) for name in nodes], pods, gangs)
    return pack(seen, Packer(seen, BestFit())).actions


def runs(name: str, *devices: int, on: str = "a", priority: int = 0, gang: str = "") -> Pod:
    return pod(name, len(devices), on=on, devices=devices, priority=priority, gang=gang)


def test_only_pods_of_lower_priority_are_stopped() -> None:
    assert planned(runs("equal", 0, 1, 2, 3, priority=5), pod("wants", 4, priority=5)) == ()
    assert planned(runs("higher", 0, 1, 2, 3, priority=6), pod("wants", 4, priority=5)) == ()
    assert planned(runs("lower", 0, 1, 2, 3, priority=4), pod("wants", 4, priority=5)) == (
        Evict("lower", "a"),
        Bind("wants", "a", (0, 1, 2, 3)),
    )


def test_pods_of_equal_priority_are_not_stopped_together_with_lower_ones() -> None:
    assert planned(runs("equal", 0, 1, priority=5), runs("low", 2, 3), pod("wants", 4, priority=5)) == ()


def test_a_pod_of_equal_priority_beside_a_lower_one_is_spared() -> None:
    actions = planned(runs("equal", 0, 1, priority=5), runs("low", 2, 3), pod("wants", 2, priority=5))

    assert actions == (Evict("low", "a"), Bind("wants", "a", (2, 3)))


def test_no_more_pods_are_stopped_than_must_be_and_the_least_important_first() -> None:
    actions = planned(
        runs("p", 0, priority=3), runs("q", 1, priority=1), runs("r", 2, priority=2), runs("s", 3, priority=3),
        pod("wants", 1, priority=5),
    )  # fmt: skip

    assert actions == (Evict("q", "a"), Bind("wants", "a", (1,)))


def test_where_stopping_all_lower_pods_does_not_suffice_none_is_stopped() -> None:
    assert planned(runs("low", 0, 1), runs("high", 2, 3, priority=9), pod("wants", 4, priority=5)) == ()


def test_a_gang_that_a_victim_leaves_below_its_minimum_is_stopped_whole() -> None:
    gang = Gang("g", min_members=2)
    members = (runs("g-0", 0, 1, 2, 3, on="a", gang="g"), runs("g-1", 0, 1, 2, 3, on="b", gang="g"))

    actions = planned(*members, pod("wants", 4, priority=5), nodes="ab", gangs=(gang,))

    assert {each.pod for each in actions if isinstance(each, Evict)} == {"g-0", "g-1"}
    assert [each.pod for each in actions if isinstance(each, Bind)] == ["wants"]


def test_among_equals_the_youngest_is_stopped_on_a_node_and_between_nodes() -> None:
    old, young = (replace(runs(name, d), started_s=at_s) for name, d, at_s in (("old", 0, 100), ("young", 1, 900)))
    newest = replace(runs("newest", 0, on="b"), started_s=950)

    on_one_node = planned(old, young, pod("urgent", 1, priority=9), gpus=2)
    on_two_nodes = planned(replace(old, devices=(0,)), newest, pod("urgent", 1, priority=9), gpus=1, nodes="ab")

    assert [each.subject for each in on_one_node if isinstance(each, Evict)] == ["Pod/young"]
    assert [each.subject for each in on_two_nodes if isinstance(each, Evict)] == ["Pod/newest"]
