"""Situation of remediation: with how few pods a job goes on, and which places are as good as free ones."""

from cluster.workloads import Gang, MemberGroup
from controller.loops.health.situation import highest_on, sizes_below
from tests.builders.fleet import node, pod, world


def test_a_gang_with_a_minimum_below_its_size_goes_on_with_every_size_between() -> None:
    assert sizes_below(Gang("ns/g", 6), 8) == (6, 7)
    assert sizes_below(Gang("ns/g", 8), 8) == ()


def test_a_gang_of_replicas_shrinks_by_whole_ones() -> None:
    replicas = tuple(MemberGroup(f"r{n}", 4, tuple(f"ns/{n}-{m}" for m in range(4))) for n in range(5))

    assert sizes_below(Gang("ns/g", 8, groups=replicas, least_groups=2), 20) == (8, 12, 16)


def test_a_node_is_lent_by_work_of_lower_priority_only_where_all_of_it_may_be_stopped() -> None:
    seen = world(
        [node(name, gpus=2) for name in "abcd"],
        [
            pod("ns/low", 1, on="a", devices=(0,), priority=1),
            pod("ns/cpu", on="a", priority=9),
            pod("ns/stays", 1, on="b", devices=(0,), priority=1, settled=True),
            pod("ns/low-2", 1, on="c", devices=(0,), priority=1),
            pod("ns/high", 1, on="c", devices=(1,), priority=7),
        ],
    )

    assert highest_on(seen) == [1.0, float("inf"), 7.0, float("-inf")]
