"""Slots: places in the brain for deciders that think beside the plan, each by a deadline of its own.

A plan never waits for one. Who sits in a slot is a plain class that is given the newest snapshot and what it remembered
the last time; what it thinks comes back when it is done, and the loop takes it up with the next plan. All that an
occupant knows is in what it is given, so one that was lost is replaced by another that goes on where it was.
"""

from dataclasses import dataclass, field
from typing import Protocol

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.brain.frames import Buffer, FrameError, plan_frame, plan_from_frame, snapshot_from_frame

THINK_S = 5.0
"""What an occupant may take. Chosen: the loop's own deadline for a plan."""
LARGEST_MEMORY = 1 << 20
"""Bytes. It travels with every thought, to the controller and back: what is larger belongs into a resource's status."""
_LENGTH = 8
"""Bytes that say how long the memory is, before a thought's plan."""


@dataclass(frozen=True, slots=True, eq=False)
class Thought:
    """What an occupant makes of a snapshot."""

    plan: Plan = field(default_factory=Plan)
    """What it proposes. Nothing is carried out for having been proposed: see `Occupant.adopt`."""
    memory: bytes = b""
    """What it wants to be given the next time."""


@dataclass(frozen=True, slots=True)
class Idea:
    """What came out of a slot: a thought's frame, or the reason why there is none."""

    slot: str
    frame: bytes = b""
    reason: str = ""
    """`deadline`, `error`, `garbled`, `queue_full`, or why its actor was replaced (`supervised_actors.Useless`)."""
    words: str = ""


class Occupant(Protocol):
    """Who sits in a slot. Pure: same snapshot and memory, same thought, as long as the deadline cuts nothing short."""

    @property
    def name(self) -> str:
        """The slot's, in metrics and logs."""
        ...

    def think(self, snapshot: Snapshot, memory: bytes, deadline_s: float) -> Thought:
        """memory: of its last thought, empty at first; one that it cannot read is to be taken for none."""
        ...

    def adopt(self, snapshot: Snapshot, proposed: Plan) -> Plan:
        """What of a proposal is still right in this snapshot, which is a later one than it was made for. Quick."""
        ...


def thought_over(occupant: Occupant, frame: Buffer, memory: bytes, deadline_s: float) -> bytes:
    """The frame of an occupant's thought. Raises ValueError when it wants to remember too much.

    frame: a snapshot's.
    """
    thought = occupant.think(snapshot_from_frame(frame), memory, deadline_s)
    if len(thought.memory) > LARGEST_MEMORY:
        raise ValueError(
            f"{occupant.name} would remember {len(thought.memory):,} bytes; {LARGEST_MEMORY:,} may be kept"
        )
    return thought_frame(thought)


def thought_frame(thought: Thought) -> bytes:
    """The thought, to be read by `thought_from_frame`."""
    return len(thought.memory).to_bytes(_LENGTH, "little") + thought.memory + plan_frame(thought.plan)


def memory_of(frame: Buffer) -> bytes:
    """What a thought's frame remembers. Raises FrameError."""
    view = memoryview(frame)
    end = _LENGTH + int.from_bytes(view[:_LENGTH], "little")
    if len(view) < end or end > _LENGTH + LARGEST_MEMORY:
        raise FrameError("a thought that is not whole")
    return bytes(view[_LENGTH:end])


def thought_from_frame(frame: Buffer) -> Thought:
    """Raises FrameError."""
    memory = memory_of(frame)
    return Thought(plan_from_frame(memoryview(frame)[_LENGTH + len(memory) :]), memory)
