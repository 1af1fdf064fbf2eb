"""Brain that makes plans in this process, and its settings from those of the operator, the same for every caller."""

import time
from dataclasses import dataclass, field

from cluster.clock import Clock
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.decider import Entry
from controller.deciders.decisions import Decisions
from controller.deciders.edits import MOST_STARTS
from controller.deciders.memory import PlannerMemory
from controller.deciders.pipeline import ORDER, decide
from controller.guard import Limits
from controller.settings import OperatorSettings
from placement.mix.planner import MixSettings
from placement.move_price import MovePrice


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


def decisions_from(settings: OperatorSettings, *, awaits_pods: bool = True, explain: bool = False) -> Decisions:
    """Settings of all deciders. This is the only place that assembles them.

    awaits_pods: whether services' pods are created only after the service was scaled, as on a cluster; a plan then also
    starts only so many pods that the next one is not late. explain: whether plans report what another GPU or SLO would
    save; it changes no action.
    """
    return Decisions(
        within_s=settings.plan_deadline_s,
        policy=settings.policy,
        returns_idle_nodes=settings.returns_idle_nodes,
        mix=MixSettings(explain=explain),
        preempt=settings.preempt,
        make_room=settings.make_room,
        move_price=MovePrice(most_share=settings.limits.max_moves_share),
        autoscale=settings.autoscaler.enabled,
        gang_deadline_s=settings.gang_deadline_s,
        release_deadline_s=settings.release_deadline_s,
        isolates=True,
        awaits_pods=awaits_pods,
        most_starts=MOST_STARTS if awaits_pods else None,
    )


def limits_from(settings: OperatorSettings) -> Limits:
    """Limits of the guard on one plan."""
    return Limits(**settings.limits.model_dump())
