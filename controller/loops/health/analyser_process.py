"""Analyser of a large job in a process of its own, so that its arithmetic delays neither plans nor power.

The same verdicts as `health.stream.Analyser`, since it is that, with the same frames and instants; they arrive with a
later call of `judge`. The process is this module, with its socket and memory as arguments: it reads a layout, then
frames and requests for verdicts, and answers these; it ends with its socket.
"""

import mmap
import os
import subprocess
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from cluster.errors import TonnageError
from cluster.frame import framed, unframed
from health.analysis.matching import most_pending_bytes
from health.records.layout import Layout
from health.stream import Analyser, bytes_for
from health.verdicts.verdict import Fact, JobVerdict

APART_RANKS = 1024
"""Ranks from which a job is analysed in a process of its own: a twentieth of a core at 100 operations a second each."""
MOST_PROCESSES = 8
"""Such processes at a time; a tenant decides how many ranks its jobs claim."""
PROCESS_BYTES = 80_000_000
"""Memory of such a process without its job: the interpreter, numpy, and frames on their way."""
MOST_BYTES = 64 * 1024 * 1024
"""Frames that wait for the process: two seconds of 10,000 ranks at 100 operations a second."""
TOGETHER_BYTES = 8 * 1024 * 1024
"""Frames that it looks at together at most."""
EVERY_S = 0.25
"""Pause between two requests for verdicts. Frames wait for one: a look at all ranks costs much the same however few
records are new."""
KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 28), "MALLOC_TRIM_THRESHOLD_": str(1 << 28)}
"""Has the process keep memory of large arrays for the next ones: a fifth of its time went to the kernel's pages."""
ANSWER_S = 30.0
"""Longest time for one request: the longest turn of 10,000 ranks takes a third of a second on a free core."""


class AnalyserError(TonnageError):
    """The process of a job's analysis ended: the job is left out for a while."""


class AnalyserProcess:
    """Runs until it is forgotten: its process ends with the last reference. For one thread."""

    def __init__(self, layout: Layout) -> None:
        """Raises OSError where no process can be started."""
        self.layout = layout
        self._most_bytes = PROCESS_BYTES + bytes_for(layout) + most_pending_bytes(layout.ranks)
        mine, theirs = Pipe()
        shared = os.memfd_create("frames")
        os.ftruncate(shared, MOST_BYTES)
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", __name__, str(theirs.fileno()), str(shared)],
                pass_fds=[theirs.fileno(), shared],
                env={**os.environ, **KEEPS_MEMORY},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            memory = mmap.mmap(shared, MOST_BYTES)
        except OSError:
            mine.close()
            raise
        finally:
            theirs.close()
            os.close(shared)
        self._child = _Child(mine, memory)
        self._child.put(MessageKind.LAYOUT, framed(layout), 0.0)
        self._ended: tuple[JobVerdict, ...] = ()
        self._asked_s = float("-inf")
        threading.Thread(target=self._child.run, name="analyser", daemon=True).start()
        self._finalizer = weakref.finalize(self, self._child.end, self.process)

    @property
    def lost(self) -> int:
        """Batches of frames that were given up unread, since it cannot keep up."""
        return self._child.lost

    @property
    def held_bytes(self) -> int:
        """Memory that it takes at most: what waits in its process is not known here."""
        return self._most_bytes

    def close(self) -> None:
        """Ends the process now."""
        self._finalizer()

    def take(self, frames: bytes, now_s: float) -> None:
        """Frames that arrived by `now_s`; the oldest are given up where too many wait. Raises AnalyserError."""
        self._child.put(MessageKind.FRAMES, frames, now_s)

    def judge(self, now_s: float, facts: Sequence[Fact] = ()) -> tuple[JobVerdict, ...]:
        """Verdicts that have arrived; asks for new ones where it is time. Raises AnalyserError."""
        answers = self._child.taken()
        self._ended += tuple(each for answer in answers for each in answer.ended)
        if not self._child.asked and abs(now_s - self._asked_s) >= EVERY_S:  # also after a step of the clock
            self._asked_s = now_s
            self._child.put(MessageKind.JUDGE, encoded(tuple(facts)), now_s)
        return tuple(each for answer in answers for each in answer.found)

    def ended(self, now_s: float) -> tuple[JobVerdict, ...]:  # noqa: ARG002 - it was asked for with the verdicts
        """Verdicts on slow parts that are as fast as before again; each once."""
        ended, self._ended = self._ended, ()
        return ended


Analysis = Analyser | AnalyserProcess
"""Analysis of one run of one job, in this process or in another."""
AnalysisOf = Callable[[Layout], Analysis]


class BySize:
    """Analysis in this process, or in one of its own where the job is large and there are few of those."""

    def __init__(self, apart_ranks: int = APART_RANKS, most: int = MOST_PROCESSES) -> None:
        self._apart_ranks, self._most = apart_ranks, most
        self._running: weakref.WeakSet[AnalyserProcess] = weakref.WeakSet()

    def __call__(self, layout: Layout) -> Analysis:
        if layout.ranks < self._apart_ranks or len(self._running) >= self._most:
            return Analyser(layout)
        made = AnalyserProcess(layout)
        self._running.add(made)
        return made


class MessageKind(IntEnum):
    """Kind of a message between the operator and the process; the last three are answers."""

    LAYOUT = 1
    FRAMES = 2
    """Its body is the number of bytes that the shared memory holds."""
    JUDGE = 3
    TAKEN = 4
    """The frames may be overwritten."""
    VERDICTS = 5
    FAILED = 6


_Message = tuple[MessageKind, bytes, float]
"""Kind, body, the analyser's clock."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Answer to one request for verdicts."""

    found: tuple[JobVerdict, ...] = ()
    ended: tuple[JobVerdict, ...] = ()


def encoded(value: Judged | tuple[Fact, ...]) -> bytes:
    """A body that is read without running code; numbers of numpy are sent as Python's."""

    def number(value: object) -> object:
        item = getattr(value, "item", None)
        if item is None:
            raise NotImplementedError(f"a message holds no {type(value).__name__}")
        return item()

    return msgspec.msgpack.encode(value, enc_hook=number)


def send(connection: Connection, kind: MessageKind, body: bytes, now_s: float = 0.0) -> None:
    """Sends one message. Raises OSError."""
    connection.send_bytes(msgspec.msgpack.encode((kind, body, now_s)))


def receive(connection: Connection) -> _Message | None:
    """The next message; None at the end of the stream. Raises OSError."""
    try:
        message: _Message = msgspec.msgpack.decode(connection.recv_bytes(), type=_Message)
    except EOFError:
        return None
    return message


class _Child:
    """What waits for the process, and its answers; a thread carries both."""

    def __init__(self, connection: Connection, memory: mmap.mmap) -> None:
        """memory: frames on their way: through the socket they went in small pieces, and each waited for the
        interpreter."""
        self._connection, self._memory = connection, memory
        self.lost = 0
        """Batches of frames that were given up, the oldest first."""
        self.asked = 0
        """Requests for verdicts without an answer."""
        self._waiting: deque[_Message] = deque()
        self._bytes = 0
        self._answers: list[Judged] = []
        self._failure, self._is_closed = "", False
        self._changed = threading.Condition()

    def put(self, kind: MessageKind, body: bytes, now_s: float) -> None:
        """Adds a message; the oldest frames are given up where too many wait. Raises AnalyserError."""
        with self._changed:
            if self._failure:
                raise AnalyserError(self._failure)
            self._waiting.append((kind, body, now_s))
            self._bytes += len(body)
            while self._bytes > MOST_BYTES:
                frames = (n for n, (each, *_) in enumerate(self._waiting) if each is MessageKind.FRAMES)
                if (oldest := next(frames, None)) is None:
                    break
                self._bytes -= len(self._waiting[oldest][1])
                del self._waiting[oldest]
                self.lost += 1
            self.asked += kind is MessageKind.JUDGE
            self._changed.notify()

    def taken(self) -> list[Judged]:
        """Answers since the last call. Raises AnalyserError."""
        with self._changed:
            if self._failure:
                raise AnalyserError(self._failure)
            taken, self._answers = self._answers, []
        return taken

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """Ends the thread and the process."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        process.kill()
        process.wait()

    def run(self) -> None:
        """Sends what waits and takes the answers, until the end."""
        try:
            while (message := self._next()) is not None:
                kind, body, now_s = message
                if kind is MessageKind.FRAMES:
                    self._memory[: len(body)] = body
                    body = len(body).to_bytes(8, "little")
                send(self._connection, kind, body, now_s)
                if kind is MessageKind.LAYOUT:
                    continue
                if not self._connection.poll(ANSWER_S):
                    raise AnalyserError(f"its process has not answered for {ANSWER_S:.0f} s")
                received = receive(self._connection)
                if received is None:
                    raise AnalyserError("its process ended")
                kind, body, _ = received
                if kind is MessageKind.FAILED:
                    raise AnalyserError(body.decode("utf-8", "replace"))
                if kind is MessageKind.VERDICTS:
                    with self._changed:
                        self._answers.append(msgspec.msgpack.decode(body, type=Judged))
                        self.asked -= 1
        except (OSError, ValueError, AnalyserError, msgspec.MsgspecError) as error:
            with self._changed:
                self._failure = str(error) or type(error).__name__
        finally:
            self._connection.close()
            self._memory.close()

    def _next(self) -> _Message | None:
        """What is to be sent, frames that have waited together as one; None after the end.

        Frames wait until verdicts are asked for, or are many.
        """
        with self._changed:
            while not self._is_closed and (
                not self._waiting or (self._is_frames() and not self.asked and self._bytes < TOGETHER_BYTES)
            ):
                self._changed.wait()
            if self._is_closed:
                return None
            kind, body, now_s = self._waiting.popleft()
            bodies, length = [body], len(body)
            while kind is MessageKind.FRAMES and self._is_frames() and length < TOGETHER_BYTES:
                _, body, now_s = self._waiting.popleft()
                bodies.append(body)
                length += len(body)
            self._bytes -= length
            return kind, b"".join(bodies), now_s

    def _is_frames(self) -> bool:
        """Whether frames are next."""
        return bool(self._waiting) and self._waiting[0][0] is MessageKind.FRAMES


def serve(connection: Connection, memory: mmap.mmap) -> None:
    """Analyses until the other end closes. An error in what a job wrote ends it with its kind and place, no values."""
    analyser: Analyser | None = None
    try:
        while (received := receive(connection)) is not None:
            kind, body, now_s = received
            if kind is MessageKind.LAYOUT:
                analyser = Analyser(unframed(Layout, body))
            elif analyser is not None and kind is MessageKind.FRAMES:
                analyser.take(memoryview(memory)[: int.from_bytes(body, "little")], now_s)
                send(connection, MessageKind.TAKEN, b"")
            elif analyser is not None and kind is MessageKind.JUDGE:
                facts = msgspec.msgpack.decode(body, type=tuple[Fact, ...])
                answer = Judged(analyser.judge(now_s, facts), analyser.ended(now_s))
                send(connection, MessageKind.VERDICTS, encoded(answer))
    except OSError:
        return
    except Exception as error:  # noqa: BLE001 - records are written by the job, which may write anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        with suppress(OSError):
            send(connection, MessageKind.FAILED, words.encode())


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), 0, access=mmap.ACCESS_READ))
