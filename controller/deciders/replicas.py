"""Replicas: how many instances of which GPU type each model service should have now."""

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.decider import Turn
from placement.budget import Budget
from placement.mix.planner import plan_mix
from placement.mix.stabilization import held

TIME_SHARE = 0.7
"""Share of the deadline after which time ends the mix, so that pods have their turn on a busy machine, too. The work
that the mix is given takes far less of it on a quiet one."""
HOLD_SHARE = 0.25
"""Work for whether what runs can be left alone, of the work for the mix. Chosen: the question is asked of services that
changed a moment ago, and the stock of what runs answers it at once."""


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """The cheapest mix of every service, unless what runs still serves and was changed a moment ago."""
    budget, decisions = turn.budget, turn.decisions
    for_holding = Budget(HOLD_SHARE * budget.work, budget.clock, budget.over_at_s)
    mix = plan_mix(snapshot, budget, decisions.mix)
    return held(snapshot, mix, for_holding, hold_s=decisions.hold_s)
