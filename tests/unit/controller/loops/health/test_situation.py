"""Situation of remediation: which places are as good as free ones."""

from controller.loops.health.situation import highest_on
from tests.builders.fleet import node, pod, world


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
