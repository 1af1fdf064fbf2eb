"""Brains: what turns a snapshot into a plan by a deadline."""

from dataclasses import dataclass, field

from cluster.clock import Clock
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.batch import Warmth
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide


@dataclass(frozen=True, slots=True)
class InlineBrain:
    """Calls the deciders in this process."""

    decisions: Decisions
    clock: Clock
    warmth: Warmth = field(default_factory=Warmth)
    """What planning in batches keeps from one plan to the next."""

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        return decide(snapshot, self.decisions, deadline_s=deadline_s, clock=self.clock, warmth=self.warmth)
