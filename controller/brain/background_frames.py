"""Frames of background results: what a background decider proposes and remembers, as bytes between processes.

A slot is the named place in the brain in which one background decider runs beside planning, with its own deadline; a
plan never waits for it. It receives the newest snapshot and the memory of its last result, and the loop adopts a
finished proposal with the next plan. Its input holds all that it knows, so a replacement of a lost one continues from
the same point.
"""

from dataclasses import dataclass

from cluster.frame import Buffer, FrameError
from controller.brain.frames import plan_frame, plan_from_frame, snapshot_from_frame
from controller.deciders.background import LARGEST_MEMORY, Proposal, Proposer

_LENGTH = 8
"""Size of the memory's length, in bytes, at the start of a result's frame."""


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """Outcome of one run in a slot: the result's frame, or the reason why there is none."""

    slot: str
    frame: bytes = b""
    reason: str = ""
    """`deadline`, `error`, `garbled`, `queue_full`, or why its actor was replaced (`supervised_actors.Useless`)."""
    words: str = ""


def proposal_over(proposer: Proposer, frame: Buffer, memory: bytes, deadline_s: float) -> bytes:
    """The frame of a background decider's result. Raises ValueError when its memory is too large.

    frame: a snapshot's.
    """
    proposal = proposer.propose(snapshot_from_frame(frame), memory, deadline_s)
    if len(proposal.memory) > LARGEST_MEMORY:
        raise ValueError(
            f"the memory of {proposer.name} has {len(proposal.memory):,} bytes; at most {LARGEST_MEMORY:,} are allowed"
        )
    return proposal_frame(proposal)


def proposal_frame(proposal: Proposal) -> bytes:
    """The frame of a result, to be read by `proposal_from_frame`."""
    return len(proposal.memory).to_bytes(_LENGTH, "little") + proposal.memory + plan_frame(proposal.plan)


def memory_of(frame: Buffer) -> bytes:
    """The memory in a result's frame. Raises FrameError."""
    view = memoryview(frame)
    end = _LENGTH + int.from_bytes(view[:_LENGTH], "little")
    if len(view) < end or end > _LENGTH + LARGEST_MEMORY:
        raise FrameError("a background result that is cut off")
    return bytes(view[_LENGTH:end])


def proposal_from_frame(frame: Buffer) -> Proposal:
    """The result in a frame. Raises FrameError."""
    memory = memory_of(frame)
    return Proposal(plan_from_frame(memoryview(frame)[_LENGTH + len(memory) :]), memory)
