"""A planner: decides on frames, the whole plan at once or the part of it that falls to one of several planners."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.clock import Clock
from controller.brain.frames import Buffer, plan_frame, plan_from_frame, snapshot_from_frame
from controller.deciders.batch import Warmth
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide, pack_share, packing_budgets, scale
from placement.partition import shares_of


@dataclass(frozen=True, slots=True)
class Planner:
    """Plain, and with no past that matters: a new one in place of one that was lost only begins cold."""

    decisions: Decisions
    clock: Clock = time.monotonic
    warmth: Warmth = field(default_factory=Warmth)
    """What planning in batches keeps; a planner without it takes longer, and its plans cost about the same."""

    def plan(self, frame: Buffer, deadline_s: float) -> bytes:
        """The frame of the whole plan for the snapshot in `frame`."""
        plan = decide(
            snapshot_from_frame(frame), self.decisions, deadline_s=deadline_s, clock=self.clock, warmth=self.warmth
        )
        return plan_frame(plan)

    def scale(self, frame: Buffer, deadline_s: float) -> bytes:
        """The first part of the plan: instances of each service."""
        return plan_frame(scale(snapshot_from_frame(frame), self.decisions, deadline_s=deadline_s, clock=self.clock))

    def pack(self, frame: Buffer, scaled: Buffer, part: int, parts: int, deadline_s: float) -> list[bytes]:
        """The plans of shares `part`, `part + parts`, ... of the snapshot after the plan in `scaled`, in this order.

        Every planner divides the cluster for itself: that costs less than sending each its share.
        """
        over_at_s = self.clock() + deadline_s
        snapshot = snapshot_from_frame(frame)
        shares = shares_of(snapshot.after(plan_from_frame(scaled).actions), self.decisions.shares)
        budgets = packing_budgets(shares, self.decisions, over_at_s=over_at_s, clock=self.clock)
        mine = list(enumerate(zip(shares, budgets, strict=True)))[part::parts]
        return [
            plan_frame(pack_share(share, self.decisions, self.warmth, number, budget))
            for number, (share, budget) in mine
        ]


def joined(scaled: Buffer, packed: Sequence[Sequence[Buffer]]) -> bytes:
    """The whole plan from its parts, shares in the order in which one planner alone would have packed them.

    packed: by planner, as `Planner.pack` gave it.
    """
    plan = plan_from_frame(scaled)
    for turn in range(max(map(len, packed), default=0)):
        for mine in packed:
            if turn < len(mine):
                plan = plan.joined(plan_from_frame(mine[turn]))
    return plan_frame(plan)
