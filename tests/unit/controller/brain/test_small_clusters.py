"""Plans of clusters that lack something: an operator is often installed before the first pod or node."""

import pytest

from cluster.snapshot import Snapshot
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service

DEADLINE_S = 10.0
CLUSTERS = {
    "nothing": world([], []),
    "no pods": world([node("a", 4)], []),
    "no nodes": world([], [pod("d/p", 2)]),
    "no nodes but a service": world([], [], services=[service()], profiles=[profile("A100", ((2.0,),))]),
    "a service without a profile": world([node("a", 4)], [], services=[service()]),
}
DECISIONS = {
    "defaults": Decisions(),
    "returns idle nodes": Decisions(returns_idle_nodes=True),
}


@pytest.mark.parametrize("decisions", DECISIONS.values(), ids=DECISIONS)
@pytest.mark.parametrize("seen", CLUSTERS.values(), ids=CLUSTERS)
def test_a_cluster_that_lacks_something_is_planned(seen: Snapshot, decisions: Decisions) -> None:
    brain = InlineBrain(decisions)

    first = brain.plan(seen, DEADLINE_S)
    second = brain.plan(seen.after(first.actions), DEADLINE_S)

    assert not second.actions
