"""The loop on the arrivals of a replay."""

import numpy as np

from cluster.arrays import IntArray
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from placement.budget import stopped
from tests.builders.fleet import node, pod, world
from tests.rigs.packing_churn import Operated, operated

TRACE = world([node("a", gpus=4)], [pod("one", gpus=1), pod("four", gpus=4)])
ONE, FOUR = 0, 1


def run(*stream: int, per_cycle: int = 1, stay: IntArray | None = None) -> Operated:
    brain = InlineBrain(Decisions(policy="bestfit"), stopped)
    return operated(TRACE, np.array(stream), brain, stopped, per_cycle=per_cycle, stay=stay)


def test_the_allocation_is_read_after_each_cycle() -> None:
    found = run(ONE, ONE, ONE)

    assert found.arrived_pct.tolist() == [25, 50, 75]
    assert found.allocation_pct.tolist() == [25, 50, 75]
    assert found.mean_allocation_pct(from_pct=50) == 62.5


def test_a_pod_without_a_place_is_dropped_after_its_cycle() -> None:
    # Of the two that arrive together the large one is served first; the small one finds no room, then or later.
    found = run(ONE, FOUR, per_cycle=2)
    later = run(FOUR, ONE, FOUR, stay=np.array([2, 9, 9]))

    assert found.allocation_pct.tolist() == [100]
    assert later.allocation_pct.tolist() == [100, 100, 100]


def test_a_pod_leaves_after_its_number_of_further_arrivals() -> None:
    assert run(FOUR, ONE, ONE, stay=np.array([1, 9, 1])).allocation_pct.tolist() == [100, 25, 50]
