"""The cgroup contract where two CPUs run a group's processes at once: what one CPU can show by order of turns alone."""

from tests.contracts.cgroups.test_cgroups import (
    test_a_frozen_call_can_be_killed_and_its_memory_comes_back,
    test_a_frozen_call_does_not_grow_until_it_is_thawed,
    test_the_wall_behind_the_brake_kills_the_whole_call_and_counts_it,
    tree,
)

__all__ = [
    "test_a_frozen_call_can_be_killed_and_its_memory_comes_back",
    "test_a_frozen_call_does_not_grow_until_it_is_thawed",
    "test_the_wall_behind_the_brake_kills_the_whole_call_and_counts_it",
    "tree",
]
