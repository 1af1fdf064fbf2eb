"""What a decider is: a pure function of the cluster as earlier deciders want it, and where in a plan it is asked."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.background import Occupant
from controller.deciders.decisions import Decisions
from controller.deciders.memory import Memory
from placement.budget import Budget


@dataclass(frozen=True, slots=True)
class Turn:
    """What a decider is given besides the cluster."""

    decisions: Decisions
    budget: Budget
    """Work of its own, and the time that all deciders share."""
    memory: Memory
    before: Snapshot
    """The cluster, or the share, before its stage: what differs from it was started or stopped by this plan."""


Decide = Callable[[Snapshot, Turn], Plan]
"""The part of the plan that one decider adds, for the cluster as the deciders before it want it."""


def unbounded(_: float) -> float:
    """The work of a decider that is quick whatever it is asked."""
    return math.inf


@dataclass(frozen=True, slots=True)
class Decider:
    """One decider in its place."""

    name: str
    decide: Decide
    scope: Literal["cluster", "share"]
    """cluster: asked once. share: asked for each share of the cluster that competes with no other, also in parallel."""
    work_of: Callable[[float], float] = unbounded
    """Work that belongs to so many seconds of deciding, in the decider's own units."""
    time_share: float = 1.0
    """Share of the deadline after which time ends it."""


@dataclass(frozen=True, slots=True)
class BackgroundDecider:
    """A decider that thinks beside plans; in its place the plan adopts what it found."""

    name: str
    """The slot's, in metrics and logs."""
    occupant: Callable[[Decisions], Occupant | None]
    """What thinks; None where the decisions do not ask for it."""
    scope: Literal["background"] = field(default="background", init=False)


@dataclass(frozen=True, slots=True)
class PlanEdit:
    """A change of the plan as a whole: for what can only be told of all of it."""

    name: str
    edit: Callable[[Snapshot, Plan, Decisions], Plan]
    """From the cluster as it was observed and the plan so far, the plan as it shall be."""
    scope: Literal["plan"] = field(default="plan", init=False)


Entry = Decider | BackgroundDecider | PlanEdit
