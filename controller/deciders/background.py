"""Background deciders: they decide beside the plan, each by a deadline of its own, so that no plan waits for them."""

from dataclasses import dataclass, field
from typing import Protocol

from cluster.plans import Plan
from cluster.snapshot import Snapshot

THINK_S = 5.0
"""What an occupant may take. Chosen: the loop's own deadline for a plan."""


LARGEST_MEMORY = 1 << 20
"""Bytes. It travels with every thought, to the controller and back: what is larger belongs into a resource's status."""


@dataclass(frozen=True, slots=True, eq=False)
class Thought:
    """What an occupant makes of a snapshot."""

    plan: Plan = field(default_factory=Plan)
    """What it proposes. Nothing is carried out for having been proposed: see `Occupant.adopt`."""
    memory: bytes = b""
    """What it wants to be given the next time."""


class Occupant(Protocol):
    """Who sits in a slot. Pure: same snapshot, memory and deadline, same thought, or one that says it was cut short."""

    @property
    def name(self) -> str:
        """The slot's, in metrics and logs."""
        ...

    def think(self, snapshot: Snapshot, memory: bytes, deadline_s: float) -> Thought:
        """What to propose.

        memory: of its last thought, empty at first; one that it cannot read is to be taken for none.
        deadline_s: measures out the work, and ends it where that takes longer.
        """
        ...

    def adopt(self, snapshot: Snapshot, proposed: Plan) -> Plan:
        """What of a proposal is still right in this snapshot, which is a later one than it was made for. Quick."""
        ...
