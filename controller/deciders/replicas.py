"""Replicas: how many instances of which GPU type each model service should have now."""

from dataclasses import replace

from cluster.actions import Scale
from cluster.plans import Plan, Step
from cluster.snapshot import Snapshot
from controller.deciders.decider import Turn
from placement.budget import Budget
from placement.mix.corrections import held, with_parts
from placement.mix.planner import plan_mix

TIME_SHARE = 0.7
"""Fraction of the deadline after which time ends the mix, so that pods are placed on a busy machine, too. The mix's
limit of work takes far less time on a quiet one."""
HOLD_SHARE = 0.25
"""Fraction of the mix's work for checking whether the running instances can stay. Chosen: only services that changed
recently are checked, and the supply of the running instances answers it at once."""

PARTS_SHARE = 0.5
"""Fraction of the mix's work for parts of an expected demand that the stock does not hold. Chosen: few trials."""


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """The cheapest mix of every service, unless its running instances still serve it and were changed recently.

    Where the stock is short of a demand that the autoscaler expects, the mix serves the largest part of it.
    """
    budget, decisions = turn.budget, turn.decisions
    for_holding = Budget(HOLD_SHARE * budget.work, budget.clock, budget.over_at_s)
    for_parts = Budget(PARTS_SHARE * budget.work, budget.clock, budget.over_at_s)
    mix = plan_mix(snapshot, budget, decisions.mix, turn.memory.mix)
    mix = with_parts(snapshot, mix, _expected(snapshot, turn), for_parts, decisions.mix)
    plan = held(snapshot, mix, for_holding, hold_s=decisions.hold_s)
    return without_planned_only(snapshot, plan) if decisions.awaits_pods else plan


def without_planned_only(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without actions on services whose instances are run by other means; their mixes stay in it.

    So nothing is scaled that nobody scales, and no instances that never come take seats from other pods.
    """
    apart = {each.name for each in snapshot.services if each.is_planned_only}

    def is_ours(step: Step) -> bool:
        return not (isinstance(step.action, Scale) and step.action.service in apart)

    phases = (replace(each, steps=tuple(filter(is_ours, each.steps))) for each in plan.phases)
    return replace(plan, phases=tuple(each for each in phases if each.steps))


def _expected(snapshot: Snapshot, turn: Turn) -> set[str]:
    """Services that are planned for another demand than the observed one: the autoscaler expects it."""
    observed = {each.name: each.demand for each in turn.observed.services}
    return {each.name for each in snapshot.services if each.demand is not observed.get(each.name)}
