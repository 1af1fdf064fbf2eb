"""The link: one thread that keeps a brain process at hand, speaks with it, and starts a new one when it is of no use.

Whoever plans hands it a frame and waits for the answer as long as the plan's deadline allows, never longer. Nothing in
here waits for the other process: a frozen brain shows by its silence.
"""

import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Condition, Thread
from typing import Literal

import structlog

from cluster.version import VERSION
from controller.brain_peer import Peer
from controller.brain_trust import Retries, Trust
from controller.brain_wire import (
    Answer,
    Ask,
    Begin,
    Failed,
    Inbox,
    Message,
    Ping,
    Pong,
    Ready,
    Refuse,
    Remember,
    Thinks,
    WireError,
    written,
)
from controller.decide import Clock, Decisions
from controller.frames import FrameError
from controller.slots import Idea, memory_of

log = structlog.get_logger(__name__)

PING_EVERY_S = 1.0
SILENT_S = 5.0
"""A brain that says nothing for so long is frozen; it answers pings also while it plans."""
UP_WITHIN_S = 40.0
"""From its start to its planners; measured 7 s, on a busy machine 20."""
PATIENCE_S = 10.0
"""So long after it lost all trust a brain that still runs is replaced."""
TICK_S = 0.25
IDLE_S = 3600.0
UNWANTED = "no brain is wanted here: this replica does not lead"

State = Literal["away", "starting", "up"]


@dataclass(frozen=True, slots=True)
class Plea:
    """A request as the controller sees it."""

    request: int
    epoch: int
    sent_at_s: float
    deadline_s: float

    def is_over(self, at_s: float) -> bool:
        return at_s >= self.sent_at_s + self.deadline_s


@dataclass(frozen=True, slots=True)
class Fruit:
    """What a request brought: a plan's frame, or the reason why there is none."""

    plan: bytes = b""
    reason: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with the brain."""

    state: State = "away"
    trusted: bool = True
    ray: str = ""
    """Its version."""
    starts: int = 0
    """Processes that were started, or servers that were connected to."""
    losses: Counter[str] = field(default_factory=Counter)
    """Why brains were given up: `ended`, `silent`, `useless`, `unready`, `refused`, `unreachable`, `garbled`."""
    why: str = UNWANTED
    """In words, why it is not up."""
    planners_up: int = 0
    planner_restarts: int = 0
    planner_processes: tuple[int, ...] = ()
    late: int = 0
    """Answers that came too late, or belonged to an earlier term."""
    slots_up: tuple[str, ...] = ()
    start_s: float = 0.0
    """How long the last start took."""


class Link:
    """Keeps one brain while one is wanted. May be called from one thread besides its own."""

    def __init__(
        self, peer: Peer, decisions: Decisions, chance: Callable[[], float], clock: Clock = time.monotonic
    ) -> None:
        self.peer, self._decisions, self._clock = peer, decisions, clock
        self._trust, self._retries = Trust(), Retries(chance)
        self._changed = Condition()
        self._standing = Standing()
        self._plea: Plea | None = None
        self._fruit: Fruit | None = None
        self._requests = 0
        self._ideas: dict[str, Idea] = {}
        self._memories: dict[str, bytes] = {}
        self._to_send: deque[tuple[Message, bytes]] = deque()
        self._ends = self._wanted = False
        self._stream: socket.socket | None = None
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._thread = Thread(target=self._run, name="brain", daemon=True)
        self._thread.start()

    @property
    def standing(self) -> Standing:
        with self._changed:
            return replace(self._standing, trusted=not self._trust.is_open)

    def ask(self, frame: bytes, epoch: int, deadline_s: float) -> Fruit:
        """The brain's plan, or why there is none, within `deadline_s`."""
        with self._changed:
            if self._standing.state != "up":
                return Fruit(reason=self._standing.state, words=self._standing.why)
            if self._trust.is_open:
                self._begin_trial(frame, epoch, deadline_s)
                return Fruit(reason="distrusted", words="its last plans did not come in time; it is on trial")
            plea = self._send_plea(frame, epoch, deadline_s)
            self._changed.wait_for(lambda: self._fruit is not None or self._plea is not plea, deadline_s)
            fruit, self._fruit = self._fruit, None
            if fruit is None and self._plea is plea:
                fruit = Fruit(reason="deadline", words="the brain was not done in time")
                self._trust.failed(self._clock())
            self._plea = None
            return fruit or Fruit(reason="lost", words=self._standing.why or "the brain was lost while it planned")

    def ideas(self) -> list[Idea]:
        """What has come out of slots since the last call: the newest of each, and each once."""
        with self._changed:
            ideas, self._ideas = list(self._ideas.values()), {}
            return ideas

    def remember(self, slot: str, memory: bytes) -> None:
        """What the occupant of a slot shall be given, also by brains after this one."""
        with self._changed:
            if self._memories.get(slot) != memory:
                self._memories[slot] = memory
                if self._standing.state == "up":
                    self._to_send.append((Remember(slot), memory))
        self._poke()

    def want(self, *, wanted: bool) -> None:
        """Whether there shall be a brain; at first not."""
        with self._changed:
            self._wanted = wanted
        self._poke()

    def close(self) -> None:
        """End the brain and this thread."""
        with self._changed:
            self._ends = True
        self._poke()
        self._thread.join(10.0)

    def _begin_trial(self, frame: bytes, epoch: int, deadline_s: float) -> None:
        """A request that nobody waits for, unless one is under way. Its plan in time brings trust back."""
        plea = self._plea
        if plea is None or plea.is_over(self._clock()):
            self._send_plea(frame, epoch, deadline_s)

    def _send_plea(self, frame: bytes, epoch: int, deadline_s: float) -> Plea:
        self._requests += 1
        self._fruit = None
        self._plea = Plea(self._requests, epoch, self._clock(), deadline_s)
        self._to_send.append((Ask(self._requests, epoch, deadline_s), frame))
        self._poke()
        return self._plea

    def _poke(self) -> None:
        with suppress(BlockingIOError, OSError):  # full: it is awake already; closed: it has ended
            self._wake.send(b"!")

    # From here on: the thread.

    def _run(self) -> None:
        try:
            while not self._ends:
                if self._is_wanted():
                    self._live_once()
                self._wait(self._retries.wait_s() if self._is_wanted() else IDLE_S)
        finally:
            self._wake.close()
            self._woken.close()

    def _live_once(self) -> None:
        """One brain, from its start to its end."""
        began_s = self._clock()
        self._tell(state="starting", why="the brain is starting", starts=self._standing.starts + 1)
        try:
            self._stream = self.peer.open()
        except OSError as error:
            self._lose("unreachable", str(error), began_s)
            return
        self._stream.setblocking(False)
        life = _Life(began_s, began_s)
        life.out.extend(written(Begin(VERSION, self._decisions)))
        try:
            self._speak(life)
        except _Loss as loss:
            self._lose(loss.reason, loss.words, began_s)
        else:
            self._let_go(kindly=True)
            self._forget(state="away", why=UNWANTED)

    def _speak(self, life: "_Life") -> None:
        """Until the link is to end. Raises _Loss."""
        stream = self._stream
        assert stream is not None  # noqa: S101 - opened just before
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(stream, selectors.EVENT_READ)
            while self._is_wanted():
                self._take_up(life)
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if life.out else 0)
                selector.modify(stream, wanted)
                for key, events in selector.select(TICK_S):
                    if key.fileobj is self._woken:
                        with suppress(BlockingIOError):
                            self._woken.recv(4096)
                        continue
                    if events & selectors.EVENT_READ:
                        self._read(stream, life)
                    if events & selectors.EVENT_WRITE:
                        _write(stream, life)
                self._look(life)

    def _take_up(self, life: "_Life") -> None:
        """What is to be said goes out, once the brain listens."""
        now_s = self._clock()
        if self._standing.state == "up":
            with self._changed:
                while self._to_send:
                    life.out.extend(written(*self._to_send.popleft()))
        if now_s >= life.pinged_at_s + PING_EVERY_S and not life.out:
            life.pinged_at_s = now_s
            if self._standing.state == "up":
                life.out.extend(written(Ping(0)))

    def _read(self, stream: socket.socket, life: "_Life") -> None:
        try:
            data = stream.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            raise _Loss("ended", f"the brain's process is gone: {error}") from error
        if not data:
            raise _Loss("ended", "the brain's process has ended")
        life.heard_at_s = self._clock()
        try:
            for message, body in life.inbox.feed(data):
                self._hear(message, body, life)
        except WireError as error:
            raise _Loss("garbled", str(error)) from error

    def _hear(self, message: Message, body: bytes, life: "_Life") -> None:
        match message:
            case Ready():
                self._trust.succeeded()
                took_s = self._clock() - life.began_s
                life.up_at_s = self._clock()
                log.info("the brain is up", ray=message.ray, planners=message.planners, took_s=round(took_s, 1))
                self._tell(
                    state="up",
                    why="",
                    ray=message.ray,
                    start_s=took_s,
                    planners_up=message.planners,
                    planner_restarts=0,
                    planner_processes=message.processes,
                )
                with self._changed:
                    self._to_send.extend((Remember(slot), memory) for slot, memory in self._memories.items())
            case Refuse(why):
                raise _Loss("refused", why)
            case Pong():
                self._tell(
                    planners_up=message.planners_up,
                    planner_restarts=message.planner_restarts,
                    planner_processes=message.processes,
                    slots_up=message.slots_up,
                )
            case Thinks(slot, reason, words):
                self._keep(Idea(slot, body, reason, words))
            case Answer():
                self._end_plea(message.request, message.epoch, Fruit(plan=body))
            case Failed():
                self._end_plea(message.request, message.epoch, Fruit(reason=message.reason, words=message.words))
            case _:
                raise _Loss("garbled", f"a brain does not say {type(message).__name__}")

    def _keep(self, idea: Idea) -> None:
        try:
            memory = memory_of(idea.frame) if idea.frame else None
        except FrameError as error:
            raise _Loss("garbled", str(error)) from error
        with self._changed:
            self._ideas[idea.slot] = idea
            if memory is not None:
                self._memories[idea.slot] = memory

    def _end_plea(self, request: int, epoch: int, fruit: Fruit) -> None:
        with self._changed:
            plea = self._plea
            if plea is None or (plea.request, plea.epoch) != (request, epoch) or plea.is_over(self._clock()):
                self._standing = replace(self._standing, late=self._standing.late + 1)
                return
            was_trial = self._trust.is_open
            if fruit.plan:
                self._trust.succeeded()
            else:
                self._trust.failed(self._clock())
            self._plea, self._fruit = None, None if was_trial else fruit
            self._changed.notify_all()

    def _look(self, life: "_Life") -> None:
        """Raises _Loss when the brain is of no use."""
        now_s = self._clock()
        if life.up_at_s is None:
            if now_s >= life.began_s + UP_WITHIN_S:
                raise _Loss("unready", f"the brain was not up within {UP_WITHIN_S:.0f} s")
        elif self._trust.is_lost(now_s, PATIENCE_S):
            raise _Loss("useless", f"no plan came in time for {PATIENCE_S:.0f} s")
        elif now_s >= life.heard_at_s + SILENT_S:
            raise _Loss("silent", f"the brain was silent for {SILENT_S:.0f} s")

    def _lose(self, reason: str, words: str, began_s: float) -> None:
        log.warning("the brain was lost", reason=reason, why=words)
        self._retries.lived(self._clock() - began_s)
        self._let_go(kindly=reason == "refused")
        self._forget(state="away", why=words, losses=self._standing.losses + Counter([reason]))

    def _forget(self, **changes: object) -> None:
        """Nothing is under way with the brain that was; the next one is another."""
        with self._changed:
            self._standing = replace(self._standing, **changes, planners_up=0, planner_processes=(), slots_up=())  # type: ignore[arg-type]
            self._plea = self._fruit = None
            self._to_send.clear()
            self._trust.succeeded()
            self._changed.notify_all()

    def _let_go(self, *, kindly: bool) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self.peer.close(kindly=kindly)

    def _is_wanted(self) -> bool:
        return self._wanted and not self._ends

    def _wait(self, for_s: float) -> None:
        """So long, or until it is wanted otherwise than now."""
        was_wanted, over_at_s = self._is_wanted(), self._clock() + for_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            while self._is_wanted() == was_wanted and not self._ends and (left_s := over_at_s - self._clock()) > 0:
                if selector.select(left_s):
                    with suppress(BlockingIOError):
                        self._woken.recv(4096)

    def _tell(self, **changes: object) -> None:
        with self._changed:
            self._standing = replace(self._standing, **changes)  # type: ignore[arg-type]


@dataclass(slots=True)
class _Life:
    """One brain's stream, from its start."""

    began_s: float
    heard_at_s: float
    pinged_at_s: float = 0.0
    up_at_s: float | None = None
    inbox: Inbox = field(default_factory=Inbox)
    out: deque[memoryview] = field(default_factory=deque)


class _Loss(Exception):  # noqa: N818 - an ordinary turn in a brain's life
    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words


def _write(stream: socket.socket, life: _Life) -> None:
    """As much of what waits as the stream takes now."""
    try:
        while life.out:
            sent = stream.send(life.out[0])
            if sent < len(life.out[0]):
                life.out[0] = life.out[0][sent:]
            else:
                life.out.popleft()
    except BlockingIOError:
        return
    except OSError as error:
        raise _Loss("ended", f"the brain's process is gone: {error}") from error
