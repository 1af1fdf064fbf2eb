"""Replicas: how many instances of which GPU type each model service should have now."""

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.decider import Turn
from placement.budget import Budget
from placement.mix.planner import plan_mix
from placement.mix.stabilization import held

TIME_SHARE = 0.7
"""Fraction of the deadline after which time ends the mix, so that pods are placed on a busy machine, too. The mix's
limit of work takes far less time on a quiet one."""
HOLD_SHARE = 0.25
"""Fraction of the mix's work for checking whether the running instances can stay. Chosen: only services that changed
recently are checked, and the supply of the running instances answers it at once."""


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """The cheapest mix of every service, unless its running instances still serve it and were changed recently."""
    budget, decisions = turn.budget, turn.decisions
    for_holding = Budget(HOLD_SHARE * budget.work, budget.clock, budget.over_at_s)
    mix = plan_mix(snapshot, budget, decisions.mix, turn.memory.mix)
    return held(snapshot, mix, for_holding, hold_s=decisions.hold_s)
