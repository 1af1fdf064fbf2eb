"""Analyser of a large job in a process of its own, so that its arithmetic delays neither plans nor power.

The same verdicts as `health.stream.Analyser`, since it is that, with the same frames and instants; they arrive with a
later call of `judge`. The process is this module, with its socket and memory as arguments: it reads a layout, then
frames and requests for verdicts, and answers each; it ends with its socket.
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
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from cluster.errors import TonnageError
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
        self._child = _Child(mine, memory, layout)
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
        self._child.put(frames, now_s)

    def judge(self, now_s: float, facts: Sequence[Fact] = ()) -> tuple[JobVerdict, ...]:
        """Verdicts that have arrived; asks for new ones where it is time. Raises AnalyserError."""
        answers = self._child.taken()
        self._ended += tuple(each for _, ended in answers for each in ended)
        if not self._child.is_asked and abs(now_s - self._asked_s) >= EVERY_S:  # also after a step of the clock
            self._asked_s = now_s
            self._child.ask(now_s, tuple(facts))
        return tuple(each for found, _ in answers for each in found)

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


_Request = tuple[float, tuple[Fact, ...]]
"""The analyser's clock, and facts of then."""
_Answer = tuple[tuple[JobVerdict, ...], tuple[JobVerdict, ...]]
"""Verdicts that are new, and those on parts that are as fast as before."""


class _Child:
    """What waits for the process, and its answers; a thread carries both."""

    def __init__(self, connection: Connection, memory: mmap.mmap, layout: Layout) -> None:
        """memory: frames on their way: through the socket they went in small pieces, and each waited for the
        interpreter."""
        self._connection, self._memory, self._layout = connection, memory, layout
        self.lost = 0
        """Batches of frames that were given up, the oldest first."""
        self.is_asked = False
        """Whether a request for verdicts has no answer yet."""
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._bytes = 0
        self._request: _Request | None = None
        self._ahead = 0
        """Batches that waited when it was made: what comes later does not hold it up."""
        self._answers: list[_Answer] = []
        self._failure, self._is_closed = "", False
        self._changed = threading.Condition()

    def put(self, frames: bytes, now_s: float) -> None:
        """Adds frames; the oldest are given up where too many wait. Raises AnalyserError."""
        with self._changed:
            self._check()
            self._waiting.append((frames, now_s))
            self._bytes += len(frames)
            while self._bytes > MOST_BYTES:
                self._bytes -= len(self._waiting.popleft()[0])
                self._ahead -= 1
                self.lost += 1
            self._changed.notify()

    def ask(self, now_s: float, facts: tuple[Fact, ...]) -> None:
        """Asks for verdicts on what was added so far. Raises AnalyserError."""
        with self._changed:
            self._check()
            self._request, self.is_asked, self._ahead = (now_s, facts), True, len(self._waiting)
            self._changed.notify()

    def taken(self) -> list[_Answer]:
        """Answers since the last call. Raises AnalyserError."""
        with self._changed:
            self._check()
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
            self._connection.send(self._layout)
            while (sent := self._next()) is not None:
                frames, at_s, request = sent
                self._memory[: len(frames)] = frames
                self._connection.send((len(frames), at_s, request))
                if not self._connection.poll(ANSWER_S):
                    raise AnalyserError(f"its process has not answered for {ANSWER_S:.0f} s")
                answer: _Answer | str | None = self._connection.recv()
                if isinstance(answer, str):
                    raise AnalyserError(answer)
                if answer is not None:
                    with self._changed:
                        self._answers.append(answer)
                        self.is_asked = False
        except (OSError, EOFError, ValueError, AnalyserError) as error:
            with self._changed:
                self._failure = str(error) or "its process ended"
        finally:
            self._connection.close()
            self._memory.close()

    def _next(self) -> tuple[bytes, float, _Request | None] | None:
        """Frames that have waited together, when the last of them came, and the request behind them; None at the end.

        Frames wait until verdicts are asked for, or are many.
        """
        with self._changed:
            while not self._is_closed and self._request is None and self._bytes < TOGETHER_BYTES:
                self._changed.wait()
            if self._is_closed:
                return None
            bodies, length, at_s = list[bytes](), 0, 0.0
            while self._waiting and length < TOGETHER_BYTES and (self._request is None or self._ahead > 0):
                body, at_s = self._waiting.popleft()
                self._ahead -= 1
                bodies.append(body)
                length += len(body)
            self._bytes -= length
            request = None
            if self._ahead <= 0:
                request, self._request = self._request, None
            return b"".join(bodies), at_s, request

    def _check(self) -> None:
        if self._failure:
            raise AnalyserError(self._failure)


def serve(connection: Connection, memory: mmap.mmap) -> None:
    """Analyses until the other end closes. An error in what a job wrote ends it with its kind and place, no values."""
    try:
        analyser = Analyser(connection.recv())
        while True:
            length, at_s, request = connection.recv()
            if length:
                analyser.take(memoryview(memory)[:length], at_s)
            connection.send(request and (analyser.judge(*request), analyser.ended(request[0])))
    except (EOFError, OSError):
        return
    except Exception as error:  # noqa: BLE001 - records are written by the job, which may write anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        with suppress(OSError):
            connection.send(words)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), 0, access=mmap.ACCESS_READ))
