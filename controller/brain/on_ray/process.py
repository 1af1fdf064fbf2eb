"""Brain process: drives Ray for a controller that must not do so itself, and talks to it over a socket.

When a Ray driver loses its cluster, Ray's native code ends its process without an exception. So the driver is a process
of its own, which may die at any moment and is restarted. It ends when the controller is gone.
"""

import argparse
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread, Timer
from typing import Any

import msgspec
import numpy as np

from cluster.clock import Clock
from cluster.errors import TonnageError
from cluster.frame import Buffer, FrameError
from cluster.version import VERSION
from controller.brain import wire
from controller.brain.frames import SlotOutcome, memory_of
from controller.brain.on_ray import actors
from controller.brain.on_ray.ray_start import RayStart, connect
from controller.deciders.decider import Proposer
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import SECTIONS, proposers_of


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """Snapshot in the object store."""

    number: int
    """Increasing number: a larger one is newer."""
    array: Any
    """Reference to its frame, for calls of actors."""


@dataclass(slots=True)
class SnapshotHolder:
    """Holder of the newest snapshot; earlier ones are freed when their last reader is done."""

    ray: Any
    newest: HeldSnapshot | None = None

    def hold(self, frame: Buffer) -> HeldSnapshot:
        number = self.newest.number + 1 if self.newest else 1
        self.newest = HeldSnapshot(number, self.ray.put(np.frombuffer(frame, np.uint8)))
        return self.newest


PLANNING_SHARE = 0.8
"""Fraction of the remaining deadline for planning itself: the rest is for sending plans."""


class NoPlan(Exception):  # noqa: N818 - an ordinary outcome with a reason
    """Error for a request that gets no plan, with the reason."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason = reason


@dataclass(slots=True)
class PlannerPool:
    """Pool of planners, with their state."""

    ray: Any
    decisions: Decisions
    clock: Clock
    sleep: Callable[[float], None] = time.sleep
    watched: actors.ActorPosts = field(init=False)
    holder: SnapshotHolder = field(init=False)

    def __post_init__(self) -> None:
        self.watched, self.holder = actors.ActorPosts(self.ray, self.clock), SnapshotHolder(self.ray)

    def begin(self, planners: int, within_s: float) -> None:
        """Starts this many planners and waits for them.

        Raises TimeoutError; RuntimeError when they run another version.
        """
        self.watched.fill([actors.Hiring(actors.PlannerActor, self.decisions, "planner")] * planners)
        over_at_s = self.clock() + within_s
        while self.up < planners:
            if self.clock() > over_at_s:
                raise TimeoutError(f"{self.up} of {planners} planners came up in {within_s:.0f} s")
            self.watched.look_after()
            self._rest()

    @property
    def posts(self) -> list[actors.ActorPost]:
        return self.watched.each

    @property
    def up(self) -> int:
        """Number of planners that answer pings."""
        return self.watched.up

    @property
    def restarts(self) -> int:
        return self.watched.restarts

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(post.pid for post in self.posts if post.pid)

    def plan(self, frame: bytes | bytearray, deadline_s: float) -> bytes:
        """The plan's frame. Raises NoPlan."""
        over_at_s = self.clock() + deadline_s
        array = self.holder.hold(frame).array
        if self.decisions.shares <= 1 or len(self.posts) == 1:
            (plan,) = self._all(over_at_s, "plan", [(array,)])
            return bytes(plan)
        plan = actors.nothing_planned()
        for number, stage in enumerate(SECTIONS.stages):
            parts = 1 if stage.scope == "cluster" else len(self.posts)
            so_far = self.ray.put(np.frombuffer(plan, np.uint8))
            given = [(number, array, so_far, part, parts) for part in range(parts)]
            added = self._all(over_at_s, "stage", given)
            plan = actors.joined(plan, [[memoryview(each) for each in mine] for mine in added])
        return plan

    def look_after(self) -> None:
        """Supervises the planners. Never waits."""
        self.watched.look_after()

    def _all(self, over_at_s: float, method: str, given: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Answers of the first planners to a call of this method, each with what is given to it.

        A planner that is lost meanwhile gets the call again after its restart, while there is time: planning twice does
        no harm.
        """
        answers: dict[int, Any] = {}
        asked: set[int] = set()
        count = len(given)
        while len(answers) < count:
            left_s = over_at_s - self.clock()
            budget_s = PLANNING_SHARE * left_s
            if left_s <= 0:
                raise NoPlan("deadline", "the planners missed the deadline")
            posts = self.posts[:count]  # with their current actors
            for n, post in enumerate(posts):
                if n not in asked and post.task is None and post.pid:
                    try:
                        self.watched.give(post, over_at_s, method, *given[n], budget_s)
                    except actors.QueueFull as error:
                        raise NoPlan("queue_full", "the planner's queue is full") from error
                    asked.add(n)
            if not asked and all(post.task is not None for post in posts):
                raise NoPlan("busy", "the planners still work on an earlier request")
            under_way = [post.task for n, post in enumerate(posts) if n in asked and n not in answers and post.task]
            if under_way:
                self.ray.wait(under_way, num_returns=1, timeout=min(actors.TICK_S, left_s))
            else:
                self._rest(min(actors.TICK_S / 4, left_s))
            for n, post in enumerate(posts):
                if n in asked and n not in answers:
                    value = self._taken(post)
                    if value is not None:
                        answers[n] = value
                    elif post.task is None:
                        asked.discard(n)  # its planner was lost: ask its replacement
            for n, _ in self.watched.look_after():
                asked.discard(n)
        return [answers[n] for n in range(count)]

    def _taken(self, post: actors.ActorPost) -> Any:
        """The finished plan; None while it is not done, or when the planner was lost, which then has no task."""
        try:
            return self.watched.taken(post)
        except actors.CallFailed as error:
            raise NoPlan("error", f"the planner failed: {error}") from error
        except actors.ActorLost:
            return None

    def _rest(self, for_s: float = actors.TICK_S) -> None:
        """Waits a moment, or until a ping is answered."""
        pings = [post.ping for post in self.posts if post.ping is not None]
        if pings:
            self.ray.wait(pings, num_returns=1, timeout=for_s)
        else:
            self.sleep(for_s)


@dataclass(slots=True)
class BackgroundPool:
    """Pool of all background actors. One thread owns it; no method waits."""

    ray: Any
    proposers: Sequence[Proposer]
    clock: Clock
    memories: dict[str, bytes] = field(default_factory=dict)
    """Memory of the last result, by slot."""
    watched: actors.ActorPosts = field(init=False)
    _considered: list[int] = field(init=False)
    """Number of the newest snapshot that each slot's actor received."""

    def __post_init__(self) -> None:
        self.watched = actors.ActorPosts(self.ray, self.clock)
        self._considered = [0] * len(self.proposers)

    def begin(self) -> None:
        """Starts the actors of all slots; they receive calls as soon as they answer a ping."""
        self.watched.fill(
            [actors.Hiring(actors.SlotActor, each, each.name, actors.SLOT_CPUS) for each in self.proposers]
        )

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

    def _ask(self, number: int, post: actors.ActorPost, newest: HeldSnapshot) -> Iterable[SlotOutcome]:
        proposer = self.proposers[number]
        memory = self.memories.get(proposer.name, b"")
        self._considered[number] = newest.number
        try:
            over_at_s = self.clock() + proposer.within_s
            self.watched.give(post, over_at_s, "propose", newest.array, memory, proposer.within_s)
        except actors.QueueFull:
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
            except actors.CallFailed as error:
                yield SlotOutcome(proposer.name, b"", "error", str(error).strip().rpartition("\n")[2])
            except actors.ActorLost:
                yield SlotOutcome(proposer.name, b"", "lost", "its process ended during the run")
            except FrameError as error:
                yield SlotOutcome(proposer.name, b"", "garbled", str(error))


UP_WITHIN_S = 60.0
"""Seconds for the planners to come up; the controller gives up on the process sooner."""
FAREWELL_S = 3.0
"""Seconds for Ray to stop in order; then the process ends anyway, with all processes that it started."""
IDLE_S = 0.1
PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class NewestRequest:
    """Place of the newest request. A request that is replaced before it was taken is answered as `busy`."""

    ready: Condition = field(default_factory=Condition)
    newest: tuple[wire.Ask, bytearray, float] | None = None
    is_over: bool = False

    def put(self, ask: wire.Ask, frame: bytearray, at_s: float) -> wire.Ask | None:
        """Stores a request; returns the one that it replaces."""
        with self.ready:
            before, self.newest = self.newest, (ask, frame, at_s)
            self.ready.notify()
            return before[0] if before else None

    def take(self, within_s: float) -> tuple[wire.Ask, bytearray, float] | None:
        with self.ready:
            self.ready.wait_for(lambda: self.newest or self.is_over, within_s)
            taken, self.newest = self.newest, None
            return taken

    def close(self) -> None:
        with self.ready:
            self.is_over = True
            self.ready.notify()


@dataclass(slots=True)
class ControllerStream:
    """Stream to the controller, for two threads that write to it."""

    stream: socket.socket
    lock: Lock = field(default_factory=Lock)

    def send(self, message: wire.Message, body: bytes = b"") -> None:
        with self.lock:
            wire.send(self.stream, message, body)

    def send_if_open(self, message: wire.Message, body: bytes = b"") -> None:
        """Sends where the controller may be gone: the listening thread notices that, and ends this process."""
        with suppress(OSError):
            self.send(message, body)


def main(arguments: list[str] | None = None) -> int:
    began_s = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="file descriptor of the stream to the controller")
    parser.add_argument("--parent", type=int, required=True, help="process id of the controller")
    parser.add_argument("--start", required=True, help="RayStart as JSON")
    given = parser.parse_args(arguments)
    if not die_with(given.parent):
        return 0
    with socket.socket(fileno=given.socket) as stream:
        return serve(ControllerStream(stream), msgspec.json.decode(given.start, type=RayStart), began_s)


def die_with(parent: int) -> bool:
    """Lets the kernel kill this process when the parent ends; False when the parent has ended already.

    The end of the stream means the same, but a thread that reads it cannot act while native code holds the interpreter.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def serve(line: ControllerStream, start: RayStart, began_s: float) -> int:
    """Connects to Ray, then answers requests until the controller is gone. Returns the exit status."""
    begin, _ = wire.receive(line.stream)
    if not isinstance(begin, wire.Begin) or begin.version != VERSION:
        theirs = begin.version if isinstance(begin, wire.Begin) else "none"
        line.send(
            wire.StartRefused(f"the controller runs Tonnage {theirs}, the brain {VERSION}; run one image everywhere")
        )
        return 1
    try:
        ray = connect(start)
        pool = PlannerPool(ray, begin.decisions, time.monotonic)
        pool.begin(start.planners, UP_WITHIN_S)
    except (TonnageError, ConnectionError, RuntimeError, TimeoutError) as error:
        line.send(wire.StartRefused(f"{type(error).__name__}: {error}"))
        return 1
    nodes = sum(1 for node in ray.nodes() if node["Alive"])
    slots = BackgroundPool(ray, proposers_of(begin.decisions), time.monotonic)
    slots.begin()  # Nothing waits for them: plans come first.
    ready = wire.Ready(VERSION, ray.__version__, nodes, len(pool.posts), time.monotonic() - began_s, pool.processes)
    line.send(ready)
    request = NewestRequest()
    Thread(target=_listen, args=(line, request, pool, slots), name="controller", daemon=True).start()
    # Answers requests one after another; slots use the time between them.
    while not request.is_over:
        pool.look_after()
        for outcome in slots.turn(pool.holder.newest):
            line.send_if_open(wire.Thinks(outcome.slot, outcome.reason, outcome.words), outcome.frame)
        taken = request.take(IDLE_S)
        if taken is not None:
            line.send_if_open(*_answered(pool, *taken))
    ray.shutdown()
    return 0


def _listen(line: ControllerStream, request: NewestRequest, pool: PlannerPool, slots: BackgroundPool) -> None:
    """Handles the controller's messages, also while the other thread waits for Ray."""
    try:
        while True:
            message, body = wire.receive(line.stream)
            match message:
                case wire.Ping(number):
                    line.send(wire.Pong(number, pool.up, pool.restarts, pool.processes, slots.up))
                case wire.Remember(slot):
                    slots.remember(slot, bytes(body))
                case wire.Ask():
                    late = request.put(message, body, time.monotonic())
                    if late is not None:
                        line.send(wire.Failed(late.request, late.epoch, "busy", "a newer request replaced it"))
                case _:
                    raise ConnectionError(f"unexpected message from the controller: {type(message).__name__}")
    except (EOFError, OSError):
        end = Timer(FAREWELL_S, os._exit, (0,))
        end.daemon = True
        end.start()
        request.close()


def _answered(pool: PlannerPool, ask: wire.Ask, frame: bytearray, at_s: float) -> tuple[wire.Message, bytes]:
    try:
        plan = pool.plan(frame, ask.deadline_s - (time.monotonic() - at_s))
    except NoPlan as error:
        return wire.Failed(ask.request, ask.epoch, error.reason, str(error)), b""
    except FrameError as error:
        return wire.Failed(ask.request, ask.epoch, "error", str(error)), b""
    return wire.PlanAnswer(ask.request, ask.epoch, time.monotonic() - at_s), plan


if __name__ == "__main__":
    sys.exit(main())
