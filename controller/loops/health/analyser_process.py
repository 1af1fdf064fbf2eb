"""Analyser of a large job in a process of its own, so that its arithmetic delays neither plans nor power.

The same verdicts as `health.stream.Analyser`, since it is that, with the same frames and instants; they arrive with a
later call of `judge`.
"""

import mmap
import os
import socket
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import msgspec

from cluster.errors import TonnageError
from cluster.frame import Buffer, framed, unframed
from health.analysis.matching import most_pending_bytes
from health.records.layout import Layout
from health.stream import Analyser, bytes_for
from health.verdicts.verdict import Fact, Verdict

HEAD = struct.Struct("<BQd")
"""Kind, bytes that follow, the analyser's clock."""


class Kind(IntEnum):
    """Kind of a message; the last three are answers."""

    LAYOUT = 1
    FRAMES = 2
    """Its body is the number of bytes that the shared memory holds."""
    JUDGE = 3
    TAKEN = 4
    """The frames may be overwritten."""
    VERDICTS = 5
    FAILED = 6


@dataclass(frozen=True, slots=True)
class Judged:
    """Answer to one request for verdicts."""

    found: tuple[Verdict, ...] = ()
    ended: tuple[Verdict, ...] = ()


def message(kind: Kind, body: Buffer, now_s: float = 0.0) -> tuple[bytes, Buffer]:
    """Head and body as they are sent."""
    return HEAD.pack(kind, len(body), now_s), body


def layout_body(layout: Layout) -> bytes:
    return framed(layout)


def layout_in(body: Buffer) -> Layout:
    """Raises FrameError."""
    return unframed(Layout, body)


def facts_body(facts: Sequence[Fact]) -> bytes:
    return msgspec.msgpack.encode(tuple(facts), enc_hook=_number)


def facts_in(body: Buffer) -> tuple[Fact, ...]:
    """Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(body, type=tuple[Fact, ...])


def judged_body(judged: Judged) -> bytes:
    return msgspec.msgpack.encode(judged, enc_hook=_number)


def judged_in(body: Buffer) -> Judged:
    """Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(body, type=Judged)


def _number(value: object) -> object:
    """A number of numpy as one of Python's."""
    item = getattr(value, "item", None)
    if item is None:
        raise NotImplementedError(f"a message holds no {type(value).__name__}")
    return item()


def serve(stream: socket.socket, memory: mmap.mmap) -> None:
    """Analyses until the other end closes. An error in what a job wrote ends it with its kind and place, no values."""
    analyser: Analyser | None = None
    try:
        while (received := receive(stream)) is not None:
            kind, body, now_s = received
            if kind is Kind.LAYOUT:
                analyser = Analyser(layout_in(body))
            elif analyser is not None and kind is Kind.FRAMES:
                analyser.take(memoryview(memory)[: int.from_bytes(body, "little")], now_s)
                send(stream, Kind.TAKEN, b"")
            elif analyser is not None and kind is Kind.JUDGE:
                answer = Judged(analyser.judge(now_s, facts_in(body)), analyser.ended(now_s))
                send(stream, Kind.VERDICTS, judged_body(answer))
    except OSError:
        return
    except Exception as error:  # noqa: BLE001 - records are written by the job, which may write anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        with suppress(OSError):
            send(stream, Kind.FAILED, words.encode())


def receive(stream: socket.socket) -> tuple[Kind, bytes, float] | None:
    """The next message; None at the end of the stream. Raises OSError."""
    head = _read(stream, HEAD.size)
    if head is None:
        return None
    kind, length, now_s = HEAD.unpack(head)
    body = _read(stream, length)
    return None if body is None else (Kind(kind), body, now_s)


def send(stream: socket.socket, kind: Kind, body: bytes, now_s: float = 0.0) -> None:
    """Sends one message. Raises OSError."""
    for part in message(kind, body, now_s):
        stream.sendall(part)


def _read(stream: socket.socket, length: int) -> bytes | None:
    made = bytearray(length)
    view, at = memoryview(made), 0
    while at < length:
        count = stream.recv_into(view[at:])
        if not count:
            return None
        at += count
    return bytes(made)


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


class Analysis(Protocol):
    """Analysis of one run of one job, in whatever process."""

    layout: Layout

    @property
    def lost(self) -> int:
        """Batches of frames that were given up unread, since it cannot keep up."""
        ...

    @property
    def held_bytes(self) -> int:
        """Memory that it takes."""
        ...

    def take(self, frames: bytes, now_s: float) -> None: ...

    def judge(self, now_s: float, facts: Sequence[Fact] = ()) -> tuple[Verdict, ...]: ...

    def ended(self, now_s: float) -> tuple[Verdict, ...]: ...


AnalysisOf = Callable[[Layout], Analysis]


class AnalyserError(TonnageError):
    """The process of a job's analysis ended: the job is left out for a while."""


class AnalyserProcess:
    """Runs until it is forgotten: its process ends with the last reference. For one thread."""

    def __init__(self, layout: Layout) -> None:
        """Raises OSError where no process can be started."""
        self.layout = layout
        self._most_bytes = PROCESS_BYTES + bytes_for(layout) + most_pending_bytes(layout.ranks)
        mine, theirs = socket.socketpair()
        shared = os.memfd_create("frames")
        os.ftruncate(shared, MOST_BYTES)
        try:
            self.process = _started(theirs.fileno(), shared)
            memory = mmap.mmap(shared, MOST_BYTES)
        except OSError:
            mine.close()
            raise
        finally:
            theirs.close()
            os.close(shared)
        self._line = _Line(mine, memory)
        self._line.put(Kind.LAYOUT, layout_body(layout), 0.0)
        self._ended: tuple[Verdict, ...] = ()
        self._asked_s = float("-inf")
        threading.Thread(target=self._line.run, name="analyser", daemon=True).start()
        self._finalizer = weakref.finalize(self, _end, self._line, self.process)

    @property
    def lost(self) -> int:
        return self._line.lost

    @property
    def held_bytes(self) -> int:
        """Memory that it takes at most: what waits in its process is not known here."""
        return self._most_bytes

    def close(self) -> None:
        """Ends the process now."""
        self._finalizer()

    def take(self, frames: bytes, now_s: float) -> None:
        """Frames that arrived by `now_s`; the oldest are given up where too many wait. Raises AnalyserError."""
        self._line.put(Kind.FRAMES, frames, now_s)

    def judge(self, now_s: float, facts: Sequence[Fact] = ()) -> tuple[Verdict, ...]:
        """Verdicts that have arrived; asks for new ones where it is time. Raises AnalyserError."""
        answers = self._line.taken()
        self._ended += tuple(each for answer in answers for each in answer.ended)
        if not self._line.asked and abs(now_s - self._asked_s) >= EVERY_S:  # also after a step of the clock
            self._asked_s = now_s
            self._line.put(Kind.JUDGE, facts_body(facts), now_s)
        return tuple(each for answer in answers for each in answer.found)

    def ended(self, now_s: float) -> tuple[Verdict, ...]:  # noqa: ARG002 - it was asked for with the verdicts
        """Verdicts on slow parts that are as fast as before again; each once."""
        ended, self._ended = self._ended, ()
        return ended


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


@dataclass(slots=True, eq=False)
class _Line:
    """What waits for the process, and its answers; a thread carries both."""

    stream: socket.socket
    memory: mmap.mmap
    """Frames on their way: through the socket they went in small pieces, and each waited for the interpreter."""
    lost: int = 0
    """Batches of frames that were given up, the oldest first."""
    asked: int = 0
    """Requests for verdicts without an answer."""
    _waiting: deque[tuple[Kind, bytes, float]] = field(default_factory=deque)
    _bytes: int = 0
    _answers: list[Judged] = field(default_factory=list)
    _why: str = ""
    _closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, kind: Kind, body: bytes, now_s: float) -> None:
        with self._changed:
            self._check()
            self._waiting.append((kind, body, now_s))
            self._bytes += len(body)
            while self._bytes > MOST_BYTES and self._gave_up():
                self.lost += 1
            self.asked += kind is Kind.JUDGE
            self._changed.notify()

    def _gave_up(self) -> bool:
        """Gives up the oldest frames, and nothing else."""
        for number, (kind, body, _) in enumerate(self._waiting):
            if kind is Kind.FRAMES:
                del self._waiting[number]
                self._bytes -= len(body)
                return True
        return False

    def taken(self) -> list[Judged]:
        with self._changed:
            self._check()
            taken, self._answers = self._answers, []
        return taken

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        with suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        self.stream.settimeout(ANSWER_S)
        try:
            while (each := self._next()) is not None:
                kind, body, now_s = each
                if kind is Kind.FRAMES:
                    self.memory[: len(body)] = body
                    body = len(body).to_bytes(8, "little")
                send(self.stream, kind, body, now_s)
                if kind is not Kind.LAYOUT:
                    self._answer(receive(self.stream))
        except (OSError, ValueError, AnalyserError, msgspec.MsgspecError) as error:
            with self._changed:
                self._why = str(error) or type(error).__name__
        finally:
            self.stream.close()
            self.memory.close()

    def _next(self) -> tuple[Kind, bytes, float] | None:
        """What is to be sent, frames that have waited together as one; None after the end."""
        with self._changed:
            while not self._closed and not self._is_due():
                self._changed.wait()
            if self._closed:
                return None
            kind, body, now_s = self._waiting.popleft()
            bodies, length = [body], len(body)
            while kind is Kind.FRAMES and self._is_frames() and length < TOGETHER_BYTES:
                _, body, now_s = self._waiting.popleft()
                bodies.append(body)
                length += len(body)
            self._bytes -= length
            return kind, b"".join(bodies), now_s

    def _is_due(self) -> bool:
        """Whether something is to be sent: frames wait until verdicts are asked for, or are many."""
        if not self._waiting:
            return False
        return not self._is_frames() or self.asked > 0 or self._bytes >= TOGETHER_BYTES

    def _is_frames(self) -> bool:
        """Whether frames are next."""
        return bool(self._waiting) and self._waiting[0][0] is Kind.FRAMES

    def _answer(self, received: tuple[Kind, bytes, float] | None) -> None:
        if received is None:
            raise AnalyserError("its process ended")
        kind, body, _ = received
        if kind is Kind.FAILED:
            raise AnalyserError(body.decode("utf-8", "replace"))
        if kind is Kind.VERDICTS:
            with self._changed:
                self._answers.append(judged_in(body))
                self.asked -= 1

    def _check(self) -> None:
        if self._why:
            raise AnalyserError(self._why)


def _started(stream: int, shared: int) -> "subprocess.Popen[bytes]":
    """The process, with descriptors of its socket and of the memory that holds frames. Raises OSError."""
    words = [sys.executable, "-m", "controller.loops.health.analyser_process", str(stream), str(shared)]
    return subprocess.Popen(  # noqa: S603 - our own module
        words,
        pass_fds=[stream, shared],
        env={**os.environ, **KEEPS_MEMORY},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def _end(line: _Line, process: "subprocess.Popen[bytes]") -> None:
    line.close()
    process.kill()
    process.wait()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), 0, access=mmap.ACCESS_READ))
