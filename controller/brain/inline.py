"""Inline brain, which plans in this process."""

from dataclasses import dataclass, field

from cluster.clock import Clock
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.brain.with_background import Background, no_background
from controller.deciders.decisions import Decisions
from controller.deciders.memory import Warmth
from controller.deciders.pipeline import PlanRequest, planned, whole_plan
from controller.deciders.registry import SECTIONS, Sections


@dataclass(frozen=True, slots=True)
class InlineBrain:
    """Brain that calls the deciders in this process."""

    decisions: Decisions
    clock: Clock
    warmth: Warmth = field(default_factory=Warmth)
    """Planner memory, kept from one plan to the next."""
    background: Background = field(default_factory=no_background)
    sections: Sections = SECTIONS

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        asked = PlanRequest(self.decisions, deadline_s, self.clock, self.warmth)
        adopt = self.background.beside(asked.over_at_s)
        return whole_plan(
            snapshot, self.decisions, lambda seen: planned(seen, asked, self.sections), adopt, self.sections
        )
