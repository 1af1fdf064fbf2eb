"""A planner that is sent frames plans batches as the brain in the operator's process does, warm or cold, whole or in
shares."""

import pytest
from hypothesis import given, settings

from cluster.snapshot import Snapshot
from controller.brain.frames import plan_from_frame, snapshot_frame
from controller.brain.inline import InlineBrain
from controller.brain.on_ray.actors import Planner
from controller.deciders.decisions import Decisions
from tests.builders.planners import plan_apart
from tests.properties.batches import batches

WHOLE = Decisions(planner="columns", policy="bestfit")
IN_SHARES = Decisions(planner="columns", policy="bestfit", shares=3)


@settings(max_examples=25)
@given(batches(), batches())
def test_a_planner_makes_the_plans_that_the_brain_makes_inline(first: Snapshot, second: Snapshot) -> None:
    brain, planner = InlineBrain(WHOLE, lambda: 0.0), Planner(WHOLE, lambda: 0.0)

    for seen in (first, second, first):
        assert plan_from_frame(planner.plan(snapshot_frame(seen), 9.0)).actions == brain.plan(seen, 9.0).actions


@pytest.mark.slow
@settings(max_examples=25)
@given(batches(), batches())
def test_planners_of_shares_make_the_plans_that_the_brain_makes_inline(first: Snapshot, second: Snapshot) -> None:
    brain = InlineBrain(IN_SHARES, lambda: 0.0)
    planners = [Planner(IN_SHARES, lambda: 0.0) for _ in range(2)]

    for seen in (first, second, first):
        assert plan_apart(planners, seen, 9.0).actions == brain.plan(seen, 9.0).actions
