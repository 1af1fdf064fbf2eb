"""Pool of background actors on Ray: one per slot, run on the newest snapshot whenever idle, supervised as planners are.

The latest snapshot wins: while a decider runs, newer snapshots only replace each other. Its memory is kept here and
sent with each call, so that the replacement of a lost actor continues from the same point.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cluster.clock import Clock
from cluster.frame import FrameError
from controller.brain.background_frames import SlotOutcome, memory_of
from controller.brain.on_ray.actors import hire_for_slot
from controller.brain.on_ray.shared_snapshot import HeldSnapshot
from controller.brain.on_ray.supervised_actors import Lost, Mistaken, Post, Posts, QueueFull
from controller.deciders.background import Proposer


@dataclass(slots=True)
class BackgroundPool:
    """Pool of all background actors. One thread owns it; no method waits."""

    ray: Any
    proposers: Sequence[Proposer]
    clock: Clock
    memories: dict[str, bytes] = field(default_factory=dict)
    """Memory of the last result, by slot."""
    incarnation: str = field(default_factory=lambda: secrets.token_hex(4))
    watched: Posts = field(init=False)
    _considered: list[int] = field(init=False)
    """Number of the newest snapshot that each slot's actor received."""
    _hired: int = 0

    def __post_init__(self) -> None:
        self.watched = Posts(self.ray, self.clock, self._hire)
        self._considered = [0] * len(self.proposers)

    def begin(self) -> None:
        """Starts the actors of all slots; they receive calls as soon as they answer a ping."""
        self.watched.fill(len(self.proposers))

    @property
    def up(self) -> tuple[str, ...]:
        """Slots whose actor answers pings."""
        return tuple(o.name for o, post in zip(self.proposers, self.watched.each, strict=True) if post.pid)

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(post.pid for post in self.watched.each if post.pid)

    def remember(self, slot: str, memory: bytes) -> None:
        """Sets the memory of a slot, from another brain or from a run in the controller."""
        self.memories[slot] = memory

    def turn(self, newest: HeldSnapshot | None) -> list[SlotOutcome]:
        """Outcomes that have arrived from the slots; idle actors receive the newest snapshot, each snapshot once."""
        outcomes = list(self._harvest())
        for number, why in self.watched.look_after():
            outcomes.append(SlotOutcome(self.proposers[number].name, b"", why, f"its actor was replaced: {why}"))
            if why == "silent":  # its node froze; an actor stuck on this snapshot would get stuck again
                self._considered[number] = 0
        for number, post in enumerate(self.watched.each):
            if newest is not None and post.pid and post.task is None and self._considered[number] < newest.number:
                outcomes += self._ask(number, post, newest)
        return outcomes

    def _ask(self, number: int, post: Post, newest: HeldSnapshot) -> Iterable[SlotOutcome]:
        proposer = self.proposers[number]
        memory = self.memories.get(proposer.name, b"")
        self._considered[number] = newest.number
        try:
            propose = partial(post.actor.propose.remote, newest.array, memory, proposer.within_s)
            self.watched.give(post, propose, self.clock() + proposer.within_s)
        except QueueFull:
            yield SlotOutcome(proposer.name, b"", "queue_full", "the queue of its actor is full")

    def _harvest(self) -> Iterable[SlotOutcome]:
        for proposer, post in zip(self.proposers, self.watched.each, strict=True):
            if not self.watched.is_done(post):
                continue
            is_late = post.is_overdue(self.clock())
            try:
                frame = bytes(self.watched.taken(post))
                if is_late:
                    yield SlotOutcome(proposer.name, b"", "deadline", f"it took longer than {proposer.within_s:g} s")
                    continue
                self.memories[proposer.name] = memory_of(frame)
                yield SlotOutcome(proposer.name, frame)
            except Mistaken as error:
                yield SlotOutcome(proposer.name, b"", "error", str(error).strip().rpartition("\n")[2])
            except Lost:
                yield SlotOutcome(proposer.name, b"", "lost", "its process ended during the run")
            except FrameError as error:
                yield SlotOutcome(proposer.name, b"", "garbled", str(error))

    def _hire(self, number: int) -> Any:
        self._hired += 1
        proposer = self.proposers[number]
        return hire_for_slot(self.ray, proposer, f"{proposer.name}-{self._hired} of {self.incarnation}")
