"""Brain: makes plans in this process, from the memory of the plans before."""

import time
from dataclasses import dataclass, field

from cluster.clock import Clock
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.decider import Entry
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PlannerMemory
from controller.deciders.pipeline import ORDER, decide


@dataclass(frozen=True, slots=True)
class InlineBrain:
    """Brain that calls the deciders, in this order."""

    decisions: Decisions
    clock: Clock = time.monotonic
    memory: PlannerMemory = field(default_factory=PlannerMemory)
    """Kept from one plan to the next."""
    order: tuple[Entry, ...] = ORDER

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        return decide(
            snapshot, self.decisions, deadline_s=deadline_s, clock=self.clock, memory=self.memory, order=self.order
        )
