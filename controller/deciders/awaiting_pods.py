"""Plan edit that drops binds of pods which do not exist yet, until their owner has created them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from cluster.actions import Bind, Evict, RestartGang
from cluster.plans import Phase, Plan, Reason, Step, Unplaced
from cluster.snapshot import Snapshot

if TYPE_CHECKING:  # readers of a plan need the code alone, not what makes decisions
    from controller.deciders.decisions import Decisions

AWAITS_POD = "AwaitsPod"
"""Reason code of a pod whose service is scaled in this same plan."""


def edit(snapshot: Snapshot, plan: Plan, decisions: "Decisions") -> Plan:
    """The plan for a cluster in which a service's pods are created only after it was scaled."""
    return without_pods_to_come(snapshot, plan) if decisions.awaits_pods else plan


def without_pods_to_come(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without binds of pods that do not exist yet: their owner has to create them first.

    Deciders plan on instances as soon as a Scale asks for them, under made-up names, and on the members of a gang that
    is restarted under the names that they had. Nothing is evicted for them
    either: a whole phase that starts one of them waits with all its steps. Outside whole phases the plan does not
    record which eviction makes room for which pod, so all of those wait for the next cycle.
    """

    restarts = (step.action for step in plan.steps() if isinstance(step.action, RestartGang))
    restarted = {pod for action in restarts for pod, _, _ in action.pods}

    def is_to_come(step: Step) -> bool:
        if not isinstance(step.action, Bind):
            return False
        return step.action.pod not in snapshot.pods.names or step.action.pod in restarted

    waiting = [step.action.pod for step in plan.steps() if is_to_come(step) and isinstance(step.action, Bind)]
    if not waiting:
        return plan
    phases = []
    for phase in plan.phases:
        if phase.whole:
            kept = () if any(map(is_to_come, phase.steps)) else phase.steps
        else:
            kept = tuple(step for step in phase.steps if not is_to_come(step) and not isinstance(step.action, Evict))
        if kept:
            phases.append(Phase(phase.name, kept, phase.whole))
    why = Reason(AWAITS_POD, "it was asked for in this cycle; it is placed as soon as its owner has made it")
    unplaced = tuple(Unplaced(f"Pod/{pod}", why) for pod in waiting)
    return replace(plan, phases=tuple(phases), unplaced=plan.unplaced + unplaced)
