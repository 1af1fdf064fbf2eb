"""Every brain plans clusters that lack something: an operator is often installed before the first pod or node."""

import time

import pytest

from cluster.snapshot import Snapshot
from controller.brain.from_settings import inline_brain
from controller.brain.link import Link
from controller.brain.remote import RayBrain
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import proposers_of
from tests.builders.fake_brain import FakeBrain, NoChance
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
    "columns": Decisions(planner="columns"),
    "in shares": Decisions(shares=3),
    "fits": Decisions(fit_slots=2),
    "no moves": Decisions(move_share=0.0),
}


@pytest.mark.parametrize("decisions", DECISIONS.values(), ids=DECISIONS)
@pytest.mark.parametrize("seen", CLUSTERS.values(), ids=CLUSTERS)
def test_a_brain_plans_a_cluster_that_lacks_something(seen: Snapshot, decisions: Decisions) -> None:
    brain = inline_brain(decisions)
    assert [proposer.name for proposer in brain.background.proposers] == [each.name for each in proposers_of(decisions)]

    first = brain.plan(seen, DEADLINE_S)
    second = brain.plan(seen.after(first.actions), DEADLINE_S)

    assert not second.actions


@pytest.mark.parametrize("seen", CLUSTERS.values(), ids=CLUSTERS)
def test_a_brain_without_its_planners_plans_it_too(seen: Snapshot) -> None:
    link = Link(FakeBrain(is_reachable=False), Decisions(), NoChance())
    try:
        plan = RayBrain(link, Decisions(), time.monotonic).plan(seen, DEADLINE_S)
    finally:
        link.close()

    assert plan.actions == inline_brain(Decisions()).plan(seen, DEADLINE_S).actions
