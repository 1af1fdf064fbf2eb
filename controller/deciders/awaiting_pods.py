"""Binds of pods that do not exist yet, taken out of a plan until their owner has made them."""

from dataclasses import replace

from cluster.actions import Bind, Evict
from cluster.plans import Phase, Plan, Reason, Step, Unplaced
from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions

AWAITS_POD = "AwaitsPod"
"""Code of a pod's reason: its service was scaled in this very plan."""


def edit(snapshot: Snapshot, plan: Plan, decisions: Decisions) -> Plan:
    """The plan of a world in which a service's pods come into being only after it was scaled."""
    return without_pods_to_come(snapshot, plan) if decisions.awaits_pods else plan


def without_pods_to_come(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without binds of pods that do not exist yet: whoever owns them has to make them first.

    Deciders plan on instances as soon as a Scale asks for them, under names that they make up. Nothing is stopped for
    them either: which eviction makes room for whom is not told, so all of them wait for the next cycle.
    """

    def is_to_come(step: Step) -> bool:
        return isinstance(step.action, Bind) and step.action.pod not in snapshot.pods.names

    waiting = [step.action.pod for step in plan.steps() if is_to_come(step) and isinstance(step.action, Bind)]
    if not waiting:
        return plan
    phases = []
    for phase in plan.phases:
        kept = tuple(step for step in phase.steps if not is_to_come(step) and not isinstance(step.action, Evict))
        if kept:
            phases.append(Phase(phase.name, kept, phase.whole))
    why = Reason(AWAITS_POD, "it was asked for in this cycle; it is placed as soon as its owner has made it")
    unplaced = tuple(Unplaced(f"Pod/{pod}", why) for pod in waiting)
    return replace(plan, phases=tuple(phases), unplaced=plan.unplaced + unplaced)
