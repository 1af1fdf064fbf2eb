"""Link to the brain: one thread that keeps a brain process, exchanges messages with it, and replaces it when necessary.

The planning thread passes it a frame and waits for the answer until the plan's deadline, never longer. Nothing in here
waits for the other process: a frozen brain is detected by its silence.
"""

import selectors
import socket
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from threading import Condition, Thread
from typing import Literal

import structlog

from cluster.clock import Clock
from cluster.frame import FrameError
from cluster.version import VERSION
from controller.brain import wire
from controller.brain.frames import SlotOutcome, memory_of
from controller.brain.launcher import BrainPeer
from controller.deciders.decisions import Decisions

log = structlog.get_logger(__name__)

FAILURES = 3
"""Requests in a row without a plan after which the brain is no longer waited for. Chosen: a planner that is restarted
within two seconds costs one or two."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 5.0
"""Bounds of the wait between attempts to start, in seconds. Chosen: a head that comes back is found within 10 s, and a
brain that cannot start costs only an occasional process start."""
SETTLED_S = 60.0
"""Seconds of running after which a lost brain is started again at once."""


@dataclass(slots=True)
class CircuitBreaker:
    """Circuit breaker: counts failures in a row; while it is open, requests are trials whose answers no plan waits for.

    A trial costs a controller that plans locally nothing, so the first plan within its deadline closes the breaker.
    After a plan that could not be used it stays open until the brain is replaced: the plan of a trial is not read.
    """

    failures: int = 0
    distrusted_since_s: float | None = None
    is_rejected: bool = False
    """Whether a plan of this brain could not be used."""

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open: no plan waits for the brain."""
        return self.distrusted_since_s is not None

    def reset(self) -> None:
        """Trusts a new brain."""
        self.failures, self.distrusted_since_s, self.is_rejected = 0, None, False

    def succeeded(self) -> None:
        if not self.is_rejected:
            self.reset()

    def rejected(self, at_s: float) -> None:
        """Opens the breaker because of a plan that came in time and could not be used."""
        self.is_rejected = True
        if self.distrusted_since_s is None:
            self.distrusted_since_s = at_s

    def failed(self, at_s: float) -> None:
        self.failures += 1
        if self.failures >= FAILURES and self.distrusted_since_s is None:
            self.distrusted_since_s = at_s

    def is_lost(self, at_s: float, patience_s: float) -> bool:
        """Whether a running brain has given no plan for longer than `patience_s`, so that it should be replaced."""
        return self.distrusted_since_s is not None and at_s >= self.distrusted_since_s + patience_s


@dataclass(slots=True)
class Retries:
    """Backoff between starts: twice as long each time, spread so that replicas do not retry in step."""

    chance: Random
    attempts: int = 0

    def wait_s(self) -> float:
        """Seconds before the next attempt, which is counted; half to all of the doubled time."""
        longest_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**self.attempts)
        self.attempts += 1
        return longest_s * (0.5 + 0.5 * self.chance.random())

    def lived(self, for_s: float) -> None:
        """Records that a brain ran for this many seconds."""
        if for_s >= SETTLED_S:
            self.attempts = 0


UNWANTED = "no brain is wanted here: this replica does not lead"
PING_EVERY_S = 1.0
PATIENCE_S = 10.0
"""Seconds after the circuit breaker opened until a brain that still runs is replaced."""
TICK_S = 0.25
IDLE_S = 3600.0
CLOSE_S = 10.0
"""Seconds for the link's thread to end its brain; then the brain is killed without it."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Request to the brain that has not been answered."""

    request: int
    epoch: int
    over_at_s: float
    """Instant of its deadline, on the link's clock."""


@dataclass(frozen=True, slots=True)
class BrainReply:
    """Outcome of a request: a plan's frame, or the reason why there is none."""

    plan: bytes = b""
    reason: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class BrainState:
    """State of the brain."""

    state: Literal["away", "starting", "up"] = "away"
    trusted: bool = True
    ray: str = ""
    """Version of Ray."""
    starts: int = 0
    """Number of processes started, or of servers connected to."""
    losses: Counter[str] = field(default_factory=Counter)
    """Lost brains by reason: `ended`, `silent`, `useless`, `unready`, `refused`, `unreachable`, `garbled`,
    `broken`."""
    why: str = UNWANTED
    """Explanation why it is not up, in words."""
    planners_up: int = 0
    planner_restarts: int = 0
    planner_processes: tuple[int, ...] = ()
    late: int = 0
    """Answers that came after their deadline, or belonged to an earlier Lease epoch."""
    slots_up: tuple[str, ...] = ()
    start_s: float = 0.0
    """Seconds that the last start took."""


class Link:
    """Link that keeps one brain while one is wanted. May be called from one thread besides its own."""

    def __init__(self, peer: BrainPeer, decisions: Decisions, chance: Random, clock: Clock = time.monotonic) -> None:
        self.peer, self._decisions, self._clock = peer, decisions, clock
        self._breaker, self._retries = CircuitBreaker(), Retries(chance)
        self._changed = Condition()
        self._state = BrainState()
        self._open: OpenRequest | None = None
        self._reply: BrainReply | None = None
        self._requests = 0
        self._outcomes: dict[str, SlotOutcome] = {}
        self._memories: dict[str, bytes] = {}
        self._to_send: deque[tuple[wire.Message, bytes]] = deque()
        self._ends = self._wanted = False
        self._stream: socket.socket | None = None
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._thread = Thread(target=self._run, name="brain", daemon=True)
        self._thread.start()

    @property
    def standing(self) -> BrainState:
        with self._changed:
            return replace(self._state, trusted=not self._breaker.is_open)

    @property
    def is_up(self) -> bool:
        return self.standing.state == "up"

    def ask(self, frame: bytes, epoch: int, deadline_s: float) -> BrainReply:
        """The brain's plan, or the reason why there is none, within `deadline_s`."""
        with self._changed:
            if self._state.state != "up":
                return BrainReply(reason=self._state.state, words=self._state.why)
            if self._breaker.is_open:
                # One trial request at a time: its plan within the deadline closes the circuit breaker.
                if self._open is None or self._clock() >= self._open.over_at_s:
                    self._send_request(frame, epoch, deadline_s)
                return BrainReply(reason="distrusted", words="its last plans were late or unusable; it is on trial")
            asked = self._send_request(frame, epoch, deadline_s)
            self._changed.wait_for(lambda: self._reply is not None or self._open is not asked, deadline_s)
            reply, self._reply = self._reply, None
            if reply is None and self._open is asked:
                reply = BrainReply(reason="deadline", words="the brain missed the deadline")
                self._breaker.failed(self._clock())
            self._open = None
            return reply or BrainReply(reason="lost", words=self._state.why or "the brain was lost while it planned")

    def reject(self, words: str) -> None:
        """Distrusts the brain that gave the last plan, because that plan cannot be used; it is replaced soon."""
        log.warning("the brain's plan cannot be used", why=words)
        with self._changed:
            self._breaker.rejected(self._clock())

    def outcomes(self) -> list[SlotOutcome]:
        """New outcomes of slots since the last call: the newest of each slot, each returned once."""
        with self._changed:
            outcomes, self._outcomes = list(self._outcomes.values()), {}
            return outcomes

    def remember(self, slot: str, memory: bytes) -> None:
        """Sets the memory that the decider of a slot receives, also in later brains."""
        with self._changed:
            if self._memories.get(slot) != memory:
                self._memories[slot] = memory
                if self._state.state == "up":
                    self._to_send.append((wire.Remember(slot), memory))
        self._wake_thread()

    def want(self, *, wanted: bool) -> None:
        """Sets whether there should be a brain; at first there should not."""
        with self._changed:
            self._wanted = wanted
        self._wake_thread()

    def close(self) -> None:
        """Ends the brain and this thread."""
        with self._changed:
            self._ends = True
        self._wake_thread()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self.peer.close(kindly=False)

    def _send_request(self, frame: bytes, epoch: int, deadline_s: float) -> OpenRequest:
        self._requests += 1
        self._reply = None
        self._open = OpenRequest(self._requests, epoch, self._clock() + deadline_s)
        self._to_send.append((wire.Ask(self._requests, epoch, deadline_s), frame))
        self._wake_thread()
        return self._open

    def _wake_thread(self) -> None:
        with suppress(BlockingIOError, OSError):  # full: it is awake already; closed: it has ended
            self._wake.send(b"!")

    # From here on: the thread.

    def _run(self) -> None:
        try:
            while not self._ends:
                if self._is_wanted():
                    began_s = self._clock()
                    try:
                        self._run_brain(began_s)
                    except wire.BrainLost as loss:
                        self._lose(loss.reason, loss.words, began_s)
                    except Exception as error:
                        # Without this thread there would be no brain ever again, so no error may end it.
                        log.exception("the link to the brain failed")
                        self._lose("broken", f"{type(error).__name__}: {error}", began_s)
                self._wait(self._retries.wait_s() if self._is_wanted() else IDLE_S)
        finally:
            if self._stream is not None:
                self._let_go(kindly=False)
            self._wake.close()
            self._woken.close()

    def _run_brain(self, began_s: float) -> None:
        """Runs one brain from its start until it is no longer wanted. Raises BrainLost."""
        self._update(state="starting", why="the brain is starting", starts=self._state.starts + 1)
        try:
            stream = self._stream = self.peer.open()
        except OSError as error:
            raise wire.BrainLost("unreachable", str(error)) from error
        stream.setblocking(False)
        session = wire.BrainSession(stream, began_s, began_s)
        session.queue(wire.written(wire.Begin(VERSION, self._decisions)))
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(stream, selectors.EVENT_READ)
            while self._is_wanted():
                is_up, now_s = self._state.state == "up", self._clock()
                if is_up:
                    with self._changed:
                        while self._to_send:
                            session.queue(wire.written(*self._to_send.popleft()))
                if now_s >= session.pinged_at_s + PING_EVERY_S and not session.out:
                    session.pinged_at_s = now_s
                    session.queue(wire.written(wire.Ping(0)) if is_up else ())
                selector.modify(stream, selectors.EVENT_READ | (selectors.EVENT_WRITE if session.out else 0))
                for key, events in selector.select(TICK_S):
                    if key.fileobj is self._woken:
                        with suppress(BlockingIOError):
                            self._woken.recv(4096)
                        continue
                    if events & selectors.EVENT_READ:
                        for message, body in session.read(self._clock()):
                            self._handle(message, body, session)
                    if events & selectors.EVENT_WRITE:
                        session.write()
                now_s = self._clock()
                if session.up_at_s is not None and self._breaker.is_lost(now_s, PATIENCE_S):
                    words = f"no plan met its deadline and could be used for {PATIENCE_S:.0f} s"
                    raise wire.BrainLost("useless", words)
                session.check(now_s)
        self._let_go(kindly=True)
        self._forget(state="away", why=UNWANTED)

    def _handle(self, message: wire.Message, body: bytes, session: wire.BrainSession) -> None:
        match message:
            case wire.Ready():
                self._breaker.reset()
                session.up_at_s = self._clock()
                took_s = session.up_at_s - session.began_s
                log.info("the brain is up", ray=message.ray, planners=message.planners, took_s=round(took_s, 1))
                self._update(
                    state="up",
                    why="",
                    ray=message.ray,
                    start_s=took_s,
                    planners_up=message.planners,
                    planner_restarts=0,
                    planner_processes=message.processes,
                )
                with self._changed:
                    self._to_send.extend((wire.Remember(slot), memory) for slot, memory in self._memories.items())
            case wire.StartRefused(why):
                raise wire.BrainLost("refused", why)
            case wire.Pong():
                self._update(
                    planners_up=message.planners_up,
                    planner_restarts=message.planner_restarts,
                    planner_processes=message.processes,
                    slots_up=message.slots_up,
                )
            case wire.Thinks(slot, reason, words):
                try:
                    memory = memory_of(body) if body else None
                except FrameError as error:
                    raise wire.BrainLost("garbled", str(error)) from error
                with self._changed:
                    self._outcomes[slot] = SlotOutcome(slot, body, reason, words)
                    if memory is not None:
                        self._memories[slot] = memory
            case wire.PlanAnswer():
                self._end_request(message.request, message.epoch, BrainReply(plan=body))
            case wire.Failed():
                self._end_request(
                    message.request, message.epoch, BrainReply(reason=message.reason, words=message.words)
                )
            case _:
                raise wire.BrainLost("garbled", f"unexpected message from the brain: {type(message).__name__}")

    def _end_request(self, request: int, epoch: int, reply: BrainReply) -> None:
        with self._changed:
            asked = self._open
            if asked is None or (asked.request, asked.epoch) != (request, epoch) or self._clock() >= asked.over_at_s:
                self._state = replace(self._state, late=self._state.late + 1)
                return
            was_trial = self._breaker.is_open
            if reply.plan:
                self._breaker.succeeded()
            else:
                self._breaker.failed(self._clock())
            self._open, self._reply = None, None if was_trial else reply
            self._changed.notify_all()

    def _lose(self, reason: str, words: str, began_s: float) -> None:
        log.warning("the brain was lost", reason=reason, why=words)
        self._retries.lived(self._clock() - began_s)
        self._let_go(kindly=reason == "refused")
        self._forget(state="away", why=words, losses=self._state.losses + Counter([reason]))

    def _forget(self, **changes: object) -> None:
        """Resets all requests of the lost brain; the next brain knows nothing of them."""
        with self._changed:
            self._state = replace(self._state, **changes, planners_up=0, planner_processes=(), slots_up=())  # type: ignore[arg-type]
            self._open = self._reply = None
            self._to_send.clear()
            self._breaker.reset()
            self._changed.notify_all()

    def _let_go(self, *, kindly: bool) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self.peer.close(kindly=kindly)

    def _is_wanted(self) -> bool:
        return self._wanted and not self._ends

    def _wait(self, for_s: float) -> None:
        """Waits for this many seconds, or until `want` or `close` changes what is wanted."""
        was_wanted, over_at_s = self._is_wanted(), self._clock() + for_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            while self._is_wanted() == was_wanted and not self._ends and (left_s := over_at_s - self._clock()) > 0:
                if selector.select(left_s):
                    with suppress(BlockingIOError):
                        self._woken.recv(4096)

    def _update(self, **changes: object) -> None:
        with self._changed:
            self._state = replace(self._state, **changes)  # type: ignore[arg-type]
