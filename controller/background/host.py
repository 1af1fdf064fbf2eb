"""Host of background work: keeps the open tasks and the results, and a driver process while there is work for one.

Callers never wait. A driver that ends, or is silent, is replaced after a growing pause, and its open tasks are given to
the next one; after several losses in a row a process without Ray takes them for a while.
"""

import select
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Condition, Thread
from typing import Literal

import structlog

from cluster.clock import Clock
from cluster.version import VERSION
from controller.background import wire
from controller.background.kinds import KINDS
from controller.background.launcher import ChildDriver, DriverPeer, RemoteDriver
from controller.background.on_ray import DriverStart, is_installed
from controller.background.tasks import BackgroundTask, TaskResult
from controller.metrics.registry import Meter
from controller.settings import OperatorSettings

log = structlog.get_logger(__name__)

STORE_BYTES = 64 * 2**20
"""Results that are kept, in bytes: the fits of some 1,500 policies."""
IDLE_S = 300.0
"""Seconds without a task after which the driver is ended: an idle one takes 100 to 250 MB."""
SILENT_S = 60.0
"""Seconds without a message after which a driver counts as frozen. It speaks every 5 s, also while it works; on a busy
machine, where it comes last, less often."""
UP_WITHIN_S = 120.0
"""Seconds from its start until a driver must be up: a Ray takes 4, on a busy machine 25."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
SETTLED_S = 60.0
"""Seconds of running after which a lost driver is replaced at once."""
LOSSES = 3
"""Losses in a row after which the next kind of driver is tried."""
ELSEWHERE_S = 600.0
"""Seconds that such a driver runs before the first kind is tried again."""
TRIES = 3
"""Ends of the driver's process while it ran a task, after which the task counts as failed."""
TICK_S = 1.0
CLOSE_S = 10.0


class DriverLost(Exception):  # noqa: N818 - an ordinary turn in a driver's life
    """Error that ends a driver's session. The reason is one word, for metrics."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words


@dataclass(frozen=True, slots=True)
class DriverState:
    """State of the driver."""

    state: Literal["away", "starting", "up"] = "away"
    runs_on: str = ""
    losses: Counter[str] = field(default_factory=Counter)
    """Lost drivers by reason: `ended`, `silent`, `unready`, `refused`, `unreachable`, `garbled`, `broken`."""
    in_a_row: int = 0
    """Losses since the last result."""
    why: str = ""
    """Why the last one was lost, in words."""


class BackgroundHost:
    """Keeps tasks, results and a driver. May be called from any thread; ends with `close`."""

    def __init__(self, peers: Sequence[DriverPeer], meter: Meter | None = None, clock: Clock = time.monotonic) -> None:
        """peers: kinds of drivers, the preferred one first."""
        self.peers, self._meter, self._clock = peers, meter, clock
        self._changed = Condition()
        self._state = DriverState()
        self._open: dict[str, BackgroundTask] = {}
        self._kept: OrderedDict[str, TaskResult] = OrderedDict()
        self._kept_bytes = 0
        self._fresh: list[TaskResult] = []
        self._tries: Counter[str] = Counter()
        self._running = ""
        self._wanted = self._ends = False
        self._needed_until_s = 0.0
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._thread = Thread(target=self._run, name="background work", daemon=True)
        self._thread.start()

    @property
    def standing(self) -> DriverState:
        with self._changed:
            return self._state

    def submit(self, tasks: Iterable[BackgroundTask]) -> None:
        """Has these tasks run. One that is under way is not run twice, and a result that is still kept comes again."""
        with self._changed:
            for task in tasks:
                if (kept := self._kept.get(task.digest)) is not None:
                    self._fresh.append(kept)
                else:
                    self._open.setdefault(task.digest, task)
            self._count_open()
        self._wake_thread()

    def results(self, kind: str, within_s: float = 0.0) -> list[TaskResult]:
        """Results of this kind since the last call; waits up to `within_s` for one."""
        with self._changed:
            self._changed.wait_for(lambda: any(each.kind == kind for each in self._fresh), within_s)
            found = [each for each in self._fresh if each.kind == kind]
            self._fresh = [each for each in self._fresh if each.kind != kind]
            return found

    def want(self, *, wanted: bool) -> None:
        """Sets whether tasks should run here; at first they should not. Those of a replica that no longer leads are
        dropped."""
        with self._changed:
            self._wanted = wanted
            if not wanted:
                self._open.clear()
                self._count_open()
        self._wake_thread()

    def close(self) -> None:
        """Ends the driver and this thread."""
        with self._changed:
            self._ends = True
        self._wake_thread()
        self._thread.join(CLOSE_S)

    def _wake_thread(self) -> None:
        with suppress(BlockingIOError, OSError):  # full: it is awake already; closed: it has ended
            self._wake.send(b"!")

    def _count_open(self) -> None:
        if self._meter is not None:
            self._meter.set("tonnage_background_tasks_open", len(self._open))

    # From here on: the thread.

    def _run(self) -> None:
        try:
            while not self._ends:
                if not self._is_needed():
                    self._wait(None)
                    continue
                began_s, losses = self._clock(), self._state.in_a_row
                peer = self.peers[min(losses // LOSSES, len(self.peers) - 1)]
                try:
                    self._run_driver(peer, began_s, began_s + (float("inf") if peer is self.peers[0] else ELSEWHERE_S))
                except DriverLost as loss:
                    self._lose(loss, began_s)
                except Exception as error:
                    # Without this thread there would be no driver ever again, so no error may end it.
                    log.exception("the host of background work failed")
                    self._lose(DriverLost("broken", f"{type(error).__name__}: {error}"), began_s)
                finally:
                    peer.close()
                    self._update(state="away")
        finally:
            self._wake.close()
            self._woken.close()

    def _run_driver(self, peer: DriverPeer, began_s: float, until_s: float) -> None:
        """Runs one driver from its start until it is no longer needed, or `until_s`. Raises DriverLost."""
        self._update(state="starting")
        try:
            stream = peer.open()
        except OSError as error:
            raise DriverLost("unreachable", str(error)) from error
        sent, parts, heard_s = set[str](), set[str](), began_s
        with stream:
            stream.settimeout(SILENT_S)
            try:
                wire.send(stream, wire.Begin(VERSION))
                while self._is_needed() and self._clock() < until_s:
                    is_up = self._state.state == "up"
                    if is_up:
                        self._send_open(stream, sent, parts)
                    ready, _, _ = select.select([stream, self._woken], [], [], TICK_S)
                    if self._woken in ready:
                        with suppress(BlockingIOError):
                            self._woken.recv(4096)
                    if stream in ready:
                        self._handle(*wire.receive(stream))
                        heard_s = self._clock()
                    elif self._clock() >= heard_s + SILENT_S:
                        raise DriverLost("silent", f"the driver was silent for {SILENT_S:.0f} s")
                    elif not is_up and self._clock() >= began_s + UP_WITHIN_S:
                        raise DriverLost("unready", f"the driver was not up within {UP_WITHIN_S:.0f} s")
            except TimeoutError as error:
                raise DriverLost("silent", f"the driver took nothing for {SILENT_S:.0f} s") from error
            except wire.WireError as error:
                raise DriverLost("garbled", str(error)) from error
            except (EOFError, OSError) as error:
                raise DriverLost("ended", f"the driver's process has ended: {error}") from error
        self._update(in_a_row=0)

    def _send_open(self, stream: socket.socket, sent: set[str], parts: set[str]) -> None:
        """Sends the open tasks that were not sent yet, and each of their inputs once."""
        with self._changed:
            tasks = tuple(self._open.values())
            # The end of a task that was given up while it ran is not known: it is forgotten, and its result dropped.
            sent.intersection_update(self._open)
        for task in tasks:
            if task.digest in sent:
                continue
            sent.add(task.digest)
            for part, content in zip(task.parts, task.inputs, strict=True):
                if part not in parts:
                    parts.add(part)
                    wire.send(stream, wire.Part(part), content)
            wire.send(stream, wire.Submit(task.kind, task.digest, task.parts))
        needed = {part for task in tasks for part in task.parts}
        for part in parts - needed:
            wire.send(stream, wire.Drop(part))
        parts.intersection_update(needed)

    def _handle(self, message: wire.Message, body: bytes) -> None:
        match message:
            case wire.Ready(runs_on):
                log.info("background work runs", on=runs_on)
                self._update(state="up", runs_on=runs_on)
            case wire.StartRefused(why):
                raise DriverLost("refused", why)
            case wire.Began(digest):
                self._running = digest
            case wire.Done(digest, error):
                self._running = ""
                self._finish(digest, body, error)
            case wire.Alive():
                return
            case _:
                raise DriverLost("garbled", f"unexpected message from the driver: {type(message).__name__}")

    def _finish(self, digest: str, value: bytes, error: str = "") -> None:
        """Keeps a task's result, where the task is still wanted."""
        with self._changed:
            task = self._open.pop(digest, None)
            self._tries.pop(digest, None)
            if task is None:
                return
            result = TaskResult(task.kind, digest, value, error)
            self._fresh.append(result)
            if error:
                log.warning("a background task failed", kind=task.kind, why=error)
            else:
                self._kept[digest] = result
                self._kept_bytes += len(value)
                while self._kept_bytes > STORE_BYTES:
                    self._kept_bytes -= len(self._kept.popitem(last=False)[1].value)
                self._state = replace(self._state, in_a_row=0)
            if self._meter is not None:
                self._meter.count("tonnage_background_tasks_total", task.kind, "failed" if error else "done")
            self._count_open()
            self._changed.notify_all()

    def _lose(self, loss: DriverLost, began_s: float) -> None:
        log.warning("the driver of background work was lost", reason=loss.reason, why=loss.words)
        if self._meter is not None:
            self._meter.count("tonnage_background_restarts_total", loss.reason)
        running, self._running = self._running, ""
        if running:
            self._tries[running] += 1
            if self._tries[running] >= TRIES:
                self._finish(running, b"", f"its process ended {TRIES} times while it ran")
        lived = self._clock() - began_s >= SETTLED_S
        losses, in_a_row = self._state.losses + Counter([loss.reason]), 1 if lived else self._state.in_a_row + 1
        self._update(state="away", why=loss.words, losses=losses, in_a_row=in_a_row)
        if not lived:
            self._wait(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (in_a_row - 1)))

    def _is_needed(self) -> bool:
        """Whether there should be a driver now."""
        with self._changed:
            if self._open:
                self._needed_until_s = self._clock() + IDLE_S
            return self._wanted and not self._ends and self._clock() < self._needed_until_s

    def _wait(self, for_s: float | None) -> None:
        """Waits for this many seconds, or for ever, until the end; without a limit, until something changes."""
        over_at_s = float("inf") if for_s is None else self._clock() + for_s
        while not self._ends and (left_s := over_at_s - self._clock()) > 0:
            ready, _, _ = select.select([self._woken], [], [], min(left_s, SILENT_S))
            if ready:
                with suppress(BlockingIOError):
                    self._woken.recv(4096)
                if for_s is None:
                    return

    def _update(self, **changes: object) -> None:
        with self._changed:
            self._state = replace(self._state, **changes)  # type: ignore[arg-type]
            if self._meter is not None:
                self._meter.set("tonnage_background_up", int(self._state.state == "up"))


def background_from(settings: OperatorSettings, meter: Meter) -> BackgroundHost:
    """The host of background work. It starts when its replica leads (`BackgroundHost.want`)."""
    meter.foresee("tonnage_background_tasks_total", KINDS, ("done", "failed"))
    ray, peers = settings.ray, list[DriverPeer]()
    if ray.mode == "embedded" and is_installed():
        peers.append(ChildDriver(DriverStart("embedded", cpus=ray.cpus)))
    elif ray.mode == "cluster":
        peers.append(RemoteDriver(ray.address, Path(ray.token_file)))
    return BackgroundHost([*peers, ChildDriver()], meter)
