"""Several planners that make one plan, as those on Ray do."""

from collections.abc import Sequence

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.brain.frames import plan_from_frame, snapshot_frame
from controller.brain.on_ray.actors import Planner, joined, nothing_planned
from controller.deciders.pipeline import SECTIONS


def plan_apart(planners: Sequence[Planner], seen: Snapshot, deadline_s: float) -> Plan:
    """The planners' section of a plan: the first decides on the cluster, all of them on its shares."""
    frame, plan = snapshot_frame(seen), nothing_planned()
    for number, stage in enumerate(SECTIONS.stages):
        these = planners[:1] if stage.scope == "cluster" else planners
        plan = joined(plan, [p.stage(number, frame, plan, n, len(these), deadline_s) for n, p in enumerate(these)])
    return plan_from_frame(plan)
