"""Planner: decides on frames, either the whole plan at once or the part of one of several planners."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cluster.clock import Clock
from cluster.frame import Buffer
from cluster.plans import Plan
from controller.brain.frames import plan_frame, plan_from_frame, snapshot_from_frame
from controller.deciders.decisions import Decisions
from controller.deciders.memory import Warmth
from controller.deciders.pipeline import PlanRequest, planned, stage_plans
from controller.deciders.registry import SECTIONS


@dataclass(frozen=True, slots=True)
class Planner:
    """Planner whose state may be lost: a replacement starts cold, and learns first from the pods that are present."""

    decisions: Decisions
    clock: Clock = time.monotonic
    warmth: Warmth = field(default_factory=Warmth)
    """Planner memory; without it a planner takes longer, and its plans cost about the same."""

    def plan(self, frame: Buffer, deadline_s: float) -> bytes:
        """The frame of the planners' section of the plan, for the snapshot in `frame`."""
        return plan_frame(planned(snapshot_from_frame(frame), self._asked(deadline_s)))

    def stage(
        self, number: int, frame: Buffer, so_far: Buffer, part: int, parts: int, deadline_s: float
    ) -> list[bytes]:
        """The frames of what a stage adds to the plan so far: see `stage_plans`. number: of the stage.

        Every planner divides the cluster itself: that costs less than sending each planner its share.
        """
        asked, snapshot = self._asked(deadline_s), snapshot_from_frame(frame)
        plans = stage_plans(SECTIONS.stages[number], snapshot, plan_from_frame(so_far), asked, part=part, parts=parts)
        return [plan_frame(plan) for plan in plans]

    def _asked(self, deadline_s: float) -> PlanRequest:
        return PlanRequest(self.decisions, deadline_s, self.clock, self.warmth)


def nothing_planned() -> bytes:
    """The frame of a plan before its first stage."""
    return plan_frame(Plan())


def joined(so_far: Buffer, parts: Iterable[Sequence[Buffer]]) -> bytes:
    """The plan so far with a stage's plans, joined in the order in which a single planner would have decided."""
    plan, by_planner = plan_from_frame(so_far), list(parts)
    for turn in range(max(map(len, by_planner), default=0)):
        for mine in by_planner:
            if turn < len(mine):
                plan = plan.joined(plan_from_frame(mine[turn]))
    return plan_frame(plan)
