"""Decider: a pure function of the cluster as the deciders before it leave it, in its turn or beside plans."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions
from controller.deciders.memory import ShareMemory
from placement.budget import Budget

PROPOSE_S = 5.0
"""Seconds that a background decider may take. Chosen: the loop's own deadline for a plan."""


LARGEST_MEMORY = 1 << 20
"""Largest memory of a background decider, in bytes. It is sent with every result, to the controller and back; larger
data belongs in a resource's status."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Result of one run of a background decider: a proposal, and the memory for its next run."""

    plan: Plan = field(default_factory=Plan)
    """Proposed plan. It is not applied as it is: `Proposer.adopt` first checks it against a later snapshot."""
    memory: bytes = b""
    """Memory that its next run receives."""


class Proposer(Protocol):
    """Background decider: a pure function of snapshot, memory and deadline.

    The same input gives the same result, or one marked as cut short. Its slot is the named place in which it runs.
    """

    @property
    def name(self) -> str:
        """Name of its slot, in metrics and logs."""
        ...

    @property
    def within_s(self) -> float:
        """Seconds that one run may take in its slot; `PROPOSE_S` unless it needs longer."""
        ...

    def propose(self, snapshot: Snapshot, memory: bytes, deadline_s: float) -> Proposal:
        """The proposal for this snapshot.

        memory: of its last result, empty at first; an unreadable one counts as none. deadline_s: sets the amount of
        work, and ends it where that takes longer.
        """
        ...

    def adopt(self, snapshot: Snapshot, proposed: Plan) -> Plan:
        """The part of a proposal that is still right in this later snapshot. Must be quick."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """Input of a decider besides the cluster."""

    decisions: Decisions
    budget: Budget
    """Work limit of this decider, and the time that all deciders share."""
    memory: ShareMemory
    before: Snapshot
    """Cluster, or share of it, before the decider's stage: any difference from it was started or stopped by this
    plan."""
    observed: Snapshot
    """Cluster, or share of it, as it was observed: without anything of this plan, to learn from."""


Decide = Callable[[Snapshot, Turn], Plan]
"""Function that returns the part of the plan that one decider adds, for the cluster as the deciders before it
leave it."""


@dataclass(frozen=True, slots=True)
class Decider:
    """Decider registered in the order."""

    name: str
    decide: Decide
    scope: Literal["cluster", "share"]
    """cluster: called once. share: called for each share of the cluster that competes with no other, possibly in
    parallel."""
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
class BackgroundDecider:
    """Decider that runs beside plans; at its place in the order, the plan adopts its proposal."""

    name: str
    """Name of its slot, in metrics and logs."""
    proposer: Callable[[Decisions], Proposer | None]
    """Its implementation; None where the decisions do not enable it."""
    scope: Literal["background"] = field(default="background", init=False)


@dataclass(frozen=True, slots=True)
class PlanEdit:
    """Edit of the whole plan, for decisions that need all of it."""

    name: str
    edit: Callable[[Snapshot, Plan, Decisions], Plan]
    """Function from the observed cluster and the plan so far to the edited plan."""
    scope: Literal["plan"] = field(default="plan", init=False)


Entry = Decider | BackgroundDecider | PlanEdit
