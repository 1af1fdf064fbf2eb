"""Background deciders: they run beside the planning of a cycle, each with its own deadline, so that no plan waits."""

from dataclasses import dataclass, field
from typing import Protocol

from cluster.plans import Plan
from cluster.snapshot import Snapshot

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
