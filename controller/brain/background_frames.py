"""Slots: places in the brain for deciders that think beside the plan, each by a deadline of its own.

A plan never waits for one. Who sits in a slot is a plain class that is given the newest snapshot and what it remembered
the last time; what it thinks comes back when it is done, and the loop takes it up with the next plan. All that an
occupant knows is in what it is given, so one that was lost is replaced by another that goes on where it was.
"""

from dataclasses import dataclass

from controller.brain.frames import Buffer, FrameError, plan_frame, plan_from_frame, snapshot_from_frame
from controller.deciders.background import LARGEST_MEMORY, Occupant, Thought

_LENGTH = 8
"""Bytes that say how long the memory is, before a thought's plan."""


@dataclass(frozen=True, slots=True)
class Idea:
    """What came out of a slot: a thought's frame, or the reason why there is none."""

    slot: str
    frame: bytes = b""
    reason: str = ""
    """`deadline`, `error`, `garbled`, `queue_full`, or why its actor was replaced (`supervised_actors.Useless`)."""
    words: str = ""


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
