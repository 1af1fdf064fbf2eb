"""Brains: what turns a snapshot into a plan by a deadline."""

from dataclasses import dataclass
from typing import Protocol

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.decide import Clock, Decisions, decide


class Brain(Protocol):
    """Same snapshot and seed, same plan, whoever thinks."""

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        """A plan for this snapshot, at most `deadline_s` from now."""
        ...


@dataclass(frozen=True, slots=True)
class InlineBrain:
    """Calls the deciders in this process."""

    decisions: Decisions
    clock: Clock

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        return decide(snapshot, self.decisions, deadline_s=deadline_s, clock=self.clock)
