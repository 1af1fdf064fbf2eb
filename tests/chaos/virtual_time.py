"""Virtual time for whole operators: every process has an event loop and a thread, and one of them all runs at a time.

What is to happen stands in one queue by its virtual instant, so that a composition takes as long as it computes, and
runs the same each time. A frozen process has its turns when it thaws, and a killed one has none any more.
"""

import asyncio
import heapq
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

EPOCH_S = 1_800_000_000.0
"""Date at which every composition begins."""


class Killed(BaseException):
    """A process ends where it stands, as by SIGKILL."""


class Timeline:
    """All that is still to happen, by its instant. The thread that waits for something runs what comes before it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.errors: list[str] = []
        """What the world itself failed at; a bug of these tests."""
        self._queue: list[tuple[float, int, _Handle]] = []
        self._numbers = count()
        self.world = Process("world", self)
        self.running: Process = self.world
        self._main = ProcessThread(self.world)

    def at(self, at_s: float, owner: "Process", deed: Callable[..., object], *args: Any) -> "_Handle":
        made = _Handle(owner, deed, args, max(at_s, self.now_s))
        heapq.heappush(self._queue, (made.at_s, next(self._numbers), made))
        return made

    def after(self, for_s: float, deed: Callable[..., object], *args: Any) -> "_Handle":
        """Something that the world does, whichever processes live."""
        return self.at(self.now_s + for_s, self.world, deed, *args)

    def run_until(self, end_s: float) -> None:
        """Called in the main thread."""
        self._main.sleep(end_s - self.now_s)
        if self.errors:
            raise RuntimeError(self.errors[0])

    def drive(self, me: "ProcessThread | None") -> None:
        """Lets everything happen until this thread is to go on; without one, until any is."""
        while True:
            self.now_s, _, each = heapq.heappop(self._queue)
            owner = each.owner
            if each.is_cancelled or owner.is_dead:
                continue
            if owner.is_frozen:
                owner.backlog.append(each)
                continue
            thread = each.args[0] if each.deed is _RESUME else None
            if thread is None:
                self.take(each)
                if me is not None and me.is_killed:
                    return
            elif thread.is_waiting_for(each.args[1]):
                if thread is not me:
                    thread.turn.release()
                    if me is not None:
                        me.turn.acquire()
                return

    def take(self, each: "_Handle") -> None:
        """Runs one turn."""
        before, self.running = self.running, each.owner
        asyncio._set_running_loop(each.owner.loop)
        try:
            each.deed(*each.args)
        except Exception:  # noqa: BLE001 - told in the main thread, not in whichever drives
            self.errors.append(traceback.format_exc())
        finally:
            asyncio._set_running_loop(None)
            self.running = before


def _RESUME(*_: object) -> None:  # noqa: N802 - a mark of turns that are a thread's, and never called
    raise AssertionError


class _Handle:
    """A turn in the queue; the part of `asyncio.TimerHandle` that its users need."""

    __slots__ = ("args", "at_s", "deed", "is_cancelled", "owner")

    def __init__(self, owner: "Process", deed: Callable[..., object], args: tuple[Any, ...], at_s: float) -> None:
        self.owner, self.deed, self.args, self.at_s, self.is_cancelled = owner, deed, args, at_s, False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.at_s


class VirtualLoop(asyncio.AbstractEventLoop):
    """Event loop of one process, on the timeline of all."""

    def __init__(self, owner: "Process") -> None:
        self._owner = owner

    def time(self) -> float:
        return self._owner.timeline.now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self._owner.timeline.at(self.time(), self._owner, callback, *args)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self._owner.timeline.at(self.time() + delay, self._owner, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self._owner.timeline.at(when, self._owner, callback, *args)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> "asyncio.Task[Any]":
        made = asyncio.Task(coro, loop=self, name=name or "task")
        self._owner.tasks.append(made)
        return made

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), Exception):
            self._owner.errors.append(repr(error))


class Process:
    """A process: the turns of its event loop, and its main thread where it has one."""

    def __init__(self, name: str, timeline: Timeline) -> None:
        self.name, self.timeline = name, timeline
        self.is_frozen = self.is_ending = self.is_dead = False
        self.clock_step_s = 0.0
        """By how much somebody set its clock of dates."""
        self.backlog: deque[_Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.errors: list[str] = []
        """Errors that nobody caught."""
        self.loop: asyncio.AbstractEventLoop = VirtualLoop(self)  # type: ignore[abstract]  # no sockets and no signals
        self.thread: ProcessThread | None = None

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        while self.backlog:
            each = self.backlog.popleft()
            self.timeline.at(self.timeline.now_s, self, each.deed, *each.args)

    def kill(self) -> None:
        """It ends where it stands. What it has sent goes on."""
        if self.is_dead:
            return
        self.is_frozen, self.backlog = False, deque()
        left, timeline = self.timeline._queue, self.timeline
        timeline._queue = []
        for task in self.tasks:
            task.cancel()
        # The tasks unwind; what they would send still is not sent.
        self.is_ending = True
        while timeline._queue and timeline._queue[0][0] <= timeline.now_s:
            each = heapq.heappop(timeline._queue)
            if each[2].owner is self and each[2].deed is not _RESUME:
                timeline.take(each[2])
            else:
                left.append(each)
        timeline._queue += left
        heapq.heapify(timeline._queue)
        self.is_dead, self.tasks = True, []
        if self.thread is not None:
            self.thread.kill()


class ProcessThread:
    """Main thread of a process, of which one runs at a time; see `connection.LoopThread`."""

    def __init__(self, process: Process) -> None:
        self.process, self.turn = process, threading.Lock()
        self.turn.acquire()
        self.is_killed = self._is_over = False
        self._waits = 0
        process.thread = self

    def start(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self.wake()

    def _run(self, work: Callable[[], None]) -> None:
        self.turn.acquire()
        timeline = self.process.timeline
        try:
            if not self.is_killed:
                timeline.running = self.process
                work()
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001 - told as a violation
            self.process.errors.append(repr(error))
        finally:
            self._is_over = True
        if not self._is_joined:
            timeline.drive(None)

    _is_joined = False

    def is_waiting_for(self, number: int) -> bool:
        """Whether it still waits for what that turn ends."""
        return number == self._waits and not self._is_over

    def kill(self) -> None:
        """Ends it where it stands: at once, or when it has done driving the timeline."""
        self.is_killed = True
        if not self._is_over and threading.current_thread() is not self._thread:
            self._is_joined = True
            self.turn.release()
            self._thread.join(20)

    def _pause(self) -> None:
        if self.is_killed:
            raise Killed
        self.process.timeline.drive(self)
        self._waits += 1
        if self.is_killed:
            raise Killed
        self.process.timeline.running = self.process

    def sleep(self, for_s: float) -> None:
        """Called in the thread: waits, or until `wake`."""
        timeline = self.process.timeline
        timer = timeline.at(timeline.now_s + for_s, self.process, _RESUME, self, self._waits)
        self._pause()
        timer.cancel()

    def wake(self) -> None:
        timeline = self.process.timeline
        timeline.at(timeline.now_s, self.process, _RESUME, self, self._waits)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Called in the thread: waits for a coroutine of the process's event loop."""
        task = self.process.loop.create_task(work)
        task.add_done_callback(lambda _: self.wake())
        while not task.done():
            self._pause()
        return task.result()

    def run_within(self, work: Coroutine[Any, Any, Any], limit_s: float) -> Any:
        with suppress(TimeoutError):
            return self.run(asyncio.wait_for(work, limit_s))
        return None

    def begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self.process.loop.create_task(work)

    def call(self, work: Callable[[], None]) -> None:
        self.process.loop.call_soon(work)

    def close(self) -> None:
        """The timeline ends the tasks."""


@contextmanager
def clocks_of(timeline: Timeline) -> Iterator[None]:
    """All clocks of this Python process show virtual time, the dates as the running process's clock was set."""
    true = time.monotonic, time.time, time.clock_gettime

    def monotonic() -> float:
        return timeline.now_s

    time.monotonic = monotonic
    time.time = lambda: EPOCH_S + timeline.now_s + timeline.running.clock_step_s
    time.clock_gettime = lambda _: timeline.now_s
    try:
        yield
    finally:
        time.monotonic, time.time, time.clock_gettime = true
