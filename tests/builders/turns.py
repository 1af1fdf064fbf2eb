"""A decider's turn, for tests that ask one decider alone."""

import math

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.decider import Decide, Turn
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PlannerMemory
from placement.budget import Budget


def turn(observed: Snapshot, decisions: Decisions | None = None) -> Turn:
    return Turn(decisions or Decisions(), Budget(math.inf), PlannerMemory(), observed)


def asked(decide: Decide, seen: Snapshot, decisions: Decisions | None = None, plan: Plan | None = None) -> Plan:
    """What a decider adds to a plan, by itself an empty one."""
    now = seen if plan is None else seen.after(plan.actions)
    return decide(now, turn(seen, decisions))
