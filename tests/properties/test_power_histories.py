"""No budget is exceeded in random histories of a power tree but by devices at their limit after a boot.

`python -m tests.power_histories` runs 10,000 of them.
"""

from random import Random

import pytest

from simulator.power.agents import ROW_BREAKER, BreakerHeat
from tests.power_histories.history import Outcome, happen, history, judge
from tests.power_histories.world import world_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", range(1, 101, 25))
def test_no_budget_is_exceeded_but_by_devices_that_no_agent_limited_since_a_boot(first: int) -> None:
    found = [history(seed) for seed in range(first, first + 25)]

    assert [(each.seed, each.over_s) for each in found if each.over_s] == []
    assert all(each.heat < 0.5 for each in found), "a worst case after boots would open a cold breaker half way"
    assert sum(each.rises for each in found) > 100, "nothing rose, so nothing could exceed"


def test_a_device_that_is_lost_one_watt_above_its_lease_counts_with_it() -> None:
    """A cap that was lowered by a single watt was taken for kept, and counted without it once its device was silent."""
    assert history(6706).over_s == 0.0


def test_a_node_that_rebooted_refuses_the_controller_that_was_replaced_before() -> None:
    """Its agent forgot with the reboot that it had heard the next controller, and took the limits of both in turn."""
    assert history(31524).over_s == 0.0


def test_a_raise_that_takes_effect_late_is_taken_back_where_the_next_lease_is_lower() -> None:
    """The device still enforced what the next lease gave, so the older request for more stood."""
    assert history(41416).over_s == 0.0


def test_a_limit_that_nobody_granted_is_seen() -> None:
    """A device of 400 W, which its agent does not lower, in a world that was full."""
    world, outcome = world_of(Random(3)), Outcome(3)  # noqa: S311 - a simulated world
    heat = BreakerHeat(ROW_BREAKER, 1.0)
    for _ in range(40):
        for node in world.nodes.values():
            for gpu in node.gpus.values():
                gpu.wants_w = 400.0
        world.step()
    judge(world, outcome, heat)
    assert outcome.over_s == 0.0

    for node in world.nodes.values():
        for gpu in node.gpus.values():
            gpu.limit_w = 400.0
    judge(world, outcome, heat)
    assert outcome.over_s > 0
    assert outcome.booted_over_s == 0.0

    happen(world, "driver resets")
    assert any(gpu.since_boot_w is not None for node in world.nodes.values() for gpu in node.gpus.values())
