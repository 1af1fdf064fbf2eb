"""Pods that leave together: a gang that falls below its minimum as a whole, and every other pod by itself."""

import pytest

from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.packing.draft import PackingDraft
from placement.packing.preemption import stopped_together
from placement.policies.published import BestFit
from tests.builders.fleet import node, pod, world


@pytest.mark.parametrize(
    ("leaving", "groups"), [((0, 3), [(3,), (0,)]), ((0, 1), [(0, 1)]), ((0, 1, 2, 3), [(3,), (0, 1, 2)])]
)
def test_members_of_a_gang_leave_one_by_one_only_while_enough_of_it_stay(
    leaving: tuple[int, ...], groups: list[tuple[int, ...]]
) -> None:
    """Three members run and two must; a pod of no gang runs beside them."""
    members = [pod(f"g-{n}", 1, gang="g", on="a", devices=(n,)) for n in range(3)]
    seen = world([node("a", gpus=4)], [*members, pod("p", 1, on="a", devices=(3,))], [Gang("g", min_members=2)])

    assert stopped_together(PackingDraft(seen, Packer(seen, BestFit())), leaving) == groups
