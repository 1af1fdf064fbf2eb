"""Moves in a whole plan: every pod is touched once."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from cluster.snapshot import PENDING, Snapshot
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from controller.guard import Limits, guard
from placement.budget import stopped
from placement.move_price import MovePrice
from tests.builders.arbitrary_fleets import fleets, with_importance_shuffled

FREE = MovePrice(per_pod_usd=0.0, per_gpu_usd=0.0)


@st.composite
def half_running(draw: st.DrawFn) -> Snapshot:
    """A fleet in which a plan placed some pods and others arrived since; any of them may be moved."""
    seen = draw(fleets())
    placed = seen.after(decide(seen, Decisions(policy="bestfit"), deadline_s=1.0, clock=stopped).actions)
    stays = np.array(draw(st.lists(st.booleans(), min_size=len(seen.pods), max_size=len(seen.pods))), dtype=np.bool_)
    stays |= (seen.pods.node != PENDING) | (placed.pods.gang >= 0)
    pods = replace(
        placed.pods,
        node=np.where(stays, placed.pods.node, PENDING),
        devices=np.where(stays, placed.pods.devices, 0),
        movable=np.ones(len(stays), dtype=np.bool_),
    )
    return with_importance_shuffled(replace(placed, pods=pods), draw(st.integers(0, 2**32 - 1)))


@given(half_running(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_no_pod_is_started_and_moved_or_moved_and_stopped_in_one_plan(seen: Snapshot, returns: bool) -> None:
    decisions = Decisions(returns_idle_nodes=returns, move_price=FREE)

    plan = decide(seen, decisions, deadline_s=60.0, clock=stopped)

    kinds = Counter((change.pod, type(action).__name__) for action in plan.actions for change in action.seat_changes)
    moved = {pod for pod, kind in kinds if kind == "Move"}
    assert not moved & {pod for pod, kind in kinds if kind != "Move"}
    assert all(count == 1 for count in kinds.values())
    assert guard(seen, plan, Limits(max_evictions_share=1.0, max_evictions_floor=100)).refused == ()
