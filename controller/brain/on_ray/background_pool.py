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
from controller.brain.background_frames import Idea, memory_of
from controller.brain.frames import FrameError
from controller.brain.on_ray.actors import hire_for_slot
from controller.brain.on_ray.shared_snapshot import Held
from controller.brain.on_ray.supervised_actors import Lost, Mistaken, Post, Posts, QueueFull
from controller.deciders.background import THINK_S, Occupant


@dataclass(slots=True)
class SlotCrew:
    """Pool of all background actors. One thread owns it; no method waits."""

    ray: Any
    occupants: Sequence[Occupant]
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
        self._considered = [0] * len(self.occupants)

    def begin(self) -> None:
        """Starts the actors of all slots; they receive calls as soon as they answer a ping."""
        self.watched.fill(len(self.occupants))

    @property
    def up(self) -> tuple[str, ...]:
        """Slots whose actor answers pings."""
        return tuple(o.name for o, post in zip(self.occupants, self.watched.each, strict=True) if post.pid)

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(post.pid for post in self.watched.each if post.pid)

    def remember(self, slot: str, memory: bytes) -> None:
        """Sets the memory of a slot, from another brain or from a run in the controller."""
        self.memories[slot] = memory

    def turn(self, newest: Held | None) -> list[Idea]:
        """Outcomes that have arrived from the slots; idle actors receive the newest snapshot, each snapshot once."""
        ideas = list(self._harvest())
        for number, why in self.watched.look_after():
            ideas.append(Idea(self.occupants[number].name, b"", why, f"its actor was replaced: {why}"))
            if why == "silent":  # its node froze; an actor stuck on this snapshot would get stuck again
                self._considered[number] = 0
        for number, post in enumerate(self.watched.each):
            if newest is not None and post.pid and post.task is None and self._considered[number] < newest.number:
                ideas += self._ask(number, post, newest)
        return ideas

    def _ask(self, number: int, post: Post, newest: Held) -> Iterable[Idea]:
        occupant = self.occupants[number]
        memory = self.memories.get(occupant.name, b"")
        self._considered[number] = newest.number
        try:
            think = partial(post.actor.think.remote, newest.array, memory, THINK_S)
            self.watched.give(post, think, self.clock() + THINK_S)
        except QueueFull:
            yield Idea(occupant.name, b"", "queue_full", "the queue of its actor is full")

    def _harvest(self) -> Iterable[Idea]:
        for occupant, post in zip(self.occupants, self.watched.each, strict=True):
            if not self.watched.is_done(post):
                continue
            is_late = post.is_overdue(self.clock())
            try:
                frame = bytes(self.watched.taken(post))
                if is_late:
                    yield Idea(occupant.name, b"", "deadline", f"it took longer than {THINK_S:g} s")
                    continue
                self.memories[occupant.name] = memory_of(frame)
                yield Idea(occupant.name, frame)
            except Mistaken as error:
                yield Idea(occupant.name, b"", "error", str(error).strip().rpartition("\n")[2])
            except Lost:
                yield Idea(occupant.name, b"", "lost", "its process ended during the run")
            except FrameError as error:
                yield Idea(occupant.name, b"", "garbled", str(error))

    def _hire(self, number: int) -> Any:
        self._hired += 1
        occupant = self.occupants[number]
        return hire_for_slot(self.ray, occupant, f"{occupant.name}-{self._hired} of {self.incarnation}")
