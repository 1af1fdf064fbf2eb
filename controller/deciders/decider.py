"""Decider: a pure function of the cluster as the deciders before it leave it."""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PlannerMemory
from placement.budget import Budget


@dataclass(frozen=True, slots=True)
class Turn:
    """Input of a decider besides the cluster."""

    decisions: Decisions
    budget: Budget
    """Work limit of this decider, and the time that all deciders share."""
    memory: PlannerMemory
    observed: Snapshot
    """Cluster as it was observed: without anything of this plan, to learn from."""


Decide = Callable[[Snapshot, Turn], Plan]
"""Function that returns the part of the plan that one decider adds, for the cluster as the deciders before it
leave it."""


@dataclass(frozen=True, slots=True)
class Decider:
    """Decider registered in the order."""

    name: str
    decide: Decide
    work_of: Callable[[float], float] | None = None
    """Work for a given number of seconds of deciding, in the decider's own units; None: it is always quick."""
    time_share: float = 1.0
    """Fraction of the deadline after which time ends it."""
    assured_share: float = 0.0
    """Fraction of its work that it does although time is up, so that deciders before it cannot keep it from its turn
    plan after plan."""
    needs: str = ""
    """Field of the snapshot without which it has nothing to do, and is not asked; empty: it is always asked."""


@dataclass(frozen=True, slots=True)
class PlanEdit:
    """Edit of the whole plan, for decisions that need all of it."""

    name: str
    edit: Callable[[Snapshot, Plan, Decisions], Plan]
    """Function from the observed cluster and the plan so far to the edited plan."""


Entry = Decider | PlanEdit
