"""Protection against pods that flood or block a socket: rates, and closes in a thread of their own.

Whoever attaches something to a socket decides how long its close takes. The last one to close a TCP socket with
SO_LINGER waits until its data has gone, for hours if the sender wants that; so does who closes a socket in whose queue
it lies, or reads a packet without room for it.
"""

import os
import socket
import threading
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from nodeagent.loops import Turns

MOST_PASSED = 253
"""Descriptors that one packet may carry: SCM_MAX_FD of net/scm.h."""
MOST_UNCLOSED = 256
"""Closes of one pod that may wait; beyond them it is not heard."""


class Closer:
    """Closes of one pod, one after the other. For one calling thread."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._given = self._done = 0
        self._is_started = False

    @property
    def is_stuck(self) -> bool:
        """Whether so much waits that nothing more of this pod should be read."""
        return self._given - self._done > MOST_UNCLOSED

    def close_all(self, descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            self.close(partial(os.close, descriptor))

    def close(self, close: Callable[[], object]) -> None:
        """Has it called; returns at once."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name="closer", daemon=True).start()
        self._given += 1
        self._waiting.put(close)

    def end(self) -> None:
        """Ends the thread after what waits."""
        self._waiting.put(None)

    def _run(self) -> None:
        turns = Turns("closer")
        while (close := self._waiting.get()) is not None:
            with turns.turn(), suppress(OSError):
                close()
            self._done += 1


def passed_in(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """Descriptors that came with a packet."""
    passed = array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            passed.frombytes(content[: len(content) - len(content) % passed.itemsize])
    return passed.tolist()


class TokenBucket:
    """So many tokens at once, and so many a second in the long run."""

    def __init__(self, per_s: float, most: float, now_s: float) -> None:
        self._per_s, self._most = per_s, most
        self._left, self._at_s = most, now_s

    def wait_s(self, least: float, now_s: float) -> float:
        """Seconds until this many are left; 0: now."""
        self._refill(now_s)
        return max(0.0, (least - self._left) / self._per_s)

    def take(self, count: float, now_s: float) -> None:
        """Takes tokens, whether they are there or not; the next caller waits for what is overdrawn."""
        self._refill(now_s)
        self._left -= count

    def _refill(self, now_s: float) -> None:
        self._left = min(self._most, self._left + self._per_s * max(0.0, now_s - self._at_s))
        self._at_s = max(self._at_s, now_s)
