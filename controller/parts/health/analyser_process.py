"""Analyser of a large job in a process of its own, so that its arithmetic delays neither plans nor power.

The same verdicts as `health.stream.Analyser`, since it is that, with the same frames and instants; they arrive with a
later call of `judge`.
"""

import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from cluster.errors import TonnageError
from controller.parts.health.analyser_child import receive, send
from controller.parts.health.analyser_wire import Judged, Kind, facts_body, judged_in, layout_body
from health.records.layout import Layout
from health.stream import Analyser
from health.verdicts.facts import Fact
from health.verdicts.verdict import Verdict

APART_RANKS = 1024
"""Ranks from which a job is analysed in a process of its own: a tenth of a core at 100 operations a second each."""
MOST_BYTES = 64 * 1024 * 1024
"""Frames that wait for the process: two seconds of 10,000 ranks at 100 operations a second."""
ANSWER_S = 30.0
"""Longest time for one request: the longest turn of 10,000 ranks takes a third of a second on a free core."""


class Analysis(Protocol):
    """Analysis of one run of one job, in whatever process."""

    layout: Layout

    def take(self, frames: bytes, now_s: float) -> None: ...

    def judge(self, now_s: float, facts: Sequence[Fact] = ()) -> tuple[Verdict, ...]: ...

    def ended(self, now_s: float) -> tuple[Verdict, ...]: ...


AnalysisOf = Callable[[Layout], Analysis]


class AnalyserError(TonnageError):
    """The analysis of a job ended, or is too slow: the job is left out for a while."""


def by_size(layout: Layout) -> Analysis:
    """Analysis in this process, or in one of its own where the job is large."""
    return AnalyserProcess(layout) if layout.ranks >= APART_RANKS else Analyser(layout)


class AnalyserProcess:
    """Runs until it is forgotten: its process ends with the last reference. For one thread."""

    def __init__(self, layout: Layout) -> None:
        """Raises OSError where no process can be started."""
        self.layout = layout
        mine, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-m", "controller.parts.health.analyser_child", str(theirs.fileno())]
            try:
                self.process = subprocess.Popen(  # noqa: S603 - our own module
                    words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
                )
            except OSError:
                mine.close()
                raise
        self._line = _Line(mine)
        self._line.put(Kind.LAYOUT, layout_body(layout), 0.0)
        self._ended: tuple[Verdict, ...] = ()
        threading.Thread(target=self._line.run, name="analyser", daemon=True).start()
        self._finalizer = weakref.finalize(self, _end, self._line, self.process)

    def close(self) -> None:
        """Ends the process now."""
        self._finalizer()

    def take(self, frames: bytes, now_s: float) -> None:
        """Frames that arrived by `now_s`. Raises AnalyserError where too many wait, or the process has ended."""
        self._line.put(Kind.FRAMES, frames, now_s)

    def judge(self, now_s: float, facts: Sequence[Fact] = ()) -> tuple[Verdict, ...]:
        """Verdicts that have arrived; asks for new ones unless a request is under way. Raises AnalyserError."""
        answers = self._line.taken()
        self._ended += tuple(each for answer in answers for each in answer.ended)
        if not self._line.asked:
            self._line.put(Kind.JUDGE, facts_body(facts), now_s)
        return tuple(each for answer in answers for each in answer.found)

    def ended(self, now_s: float) -> tuple[Verdict, ...]:  # noqa: ARG002 - it was asked for with the verdicts
        """Verdicts on slow parts that are as fast as before again; each once."""
        ended, self._ended = self._ended, ()
        return ended


@dataclass(slots=True, eq=False)
class _Line:
    """What waits for the process, and its answers; a thread carries both."""

    stream: socket.socket
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
            if self._bytes + len(body) > MOST_BYTES and self._waiting:
                raise AnalyserError(f"{self._bytes} bytes of frames wait for the analysis of a job")
            self._waiting.append((kind, body, now_s))
            self._bytes += len(body)
            self.asked += kind is Kind.JUDGE
            self._changed.notify()

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
                send(self.stream, kind, body, now_s)
                if kind is Kind.JUDGE:
                    self._answer(receive(self.stream))
        except (OSError, AnalyserError, msgspec.MsgspecError) as error:
            with self._changed:
                self._why = f"the analysis of a job ended: {str(error) or type(error).__name__}"
        finally:
            self.stream.close()

    def _next(self) -> tuple[Kind, bytes, float] | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            each = self._waiting.popleft()
            self._bytes -= len(each[1])
            return each

    def _answer(self, received: tuple[Kind, bytes, float] | None) -> None:
        if received is None:
            raise AnalyserError("its process ended")
        kind, body, _ = received
        if kind is not Kind.VERDICTS:
            raise AnalyserError(body.decode("utf-8", "replace"))
        with self._changed:
            self._answers.append(judged_in(body))
            self.asked -= 1

    def _check(self) -> None:
        if self._why:
            raise AnalyserError(self._why)


def _end(line: _Line, process: "subprocess.Popen[bytes]") -> None:
    line.close()
    process.kill()
    process.wait()
