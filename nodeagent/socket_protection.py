"""Protection against pods that flood or block a socket: rates, and closes in a thread of their own."""

import os
import socket
import threading
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue

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
        while (close := self._waiting.get()) is not None:
            with suppress(OSError):
                close()
            self._done += 1


def passed_in(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """Descriptors that came with a packet."""
    passed = array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            passed.frombytes(content[: len(content) - len(content) % passed.itemsize])
    return passed.tolist()


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """So many at once, and so many a second in the long run."""

    per_s: float
    most: float
    left: float
    at_s: float

    def filled(self, now_s: float) -> "TokenBucket":
        """The bucket at this instant."""
        return replace(self, left=min(self.most, self.left + self.per_s * max(0.0, now_s - self.at_s)), at_s=now_s)

    def taken(self) -> "TokenBucket | None":
        """The bucket with one token less; None where none is left."""
        return replace(self, left=self.left - 1) if self.left >= 1 else None


def full(per_s: float, most: float, now_s: float) -> TokenBucket:
    return TokenBucket(per_s, most, most, now_s)


DATAGRAM_BYTES = 1024
"""A datagram costs at least as much, since reading a small one takes as long as reading this."""


class Allowance:
    """Token bucket."""

    def __init__(self, bytes_per_s: float, burst_s: float, now_s: float) -> None:
        self._rate, self._most = bytes_per_s, bytes_per_s * burst_s
        self._left, self._at_s = self._most, now_s

    def spend(self, size_bytes: int, now_s: float) -> None:
        """Counts a datagram; the last one may overdraw."""
        self._refill(now_s)
        self._left -= max(size_bytes, DATAGRAM_BYTES)

    def wait_s(self, now_s: float) -> float:
        """Seconds until reading may go on; 0: now."""
        self._refill(now_s)
        return max(0.0, -self._left / self._rate)

    def _refill(self, now_s: float) -> None:
        self._left = min(self._most, self._left + self._rate * max(0.0, now_s - self._at_s))
        self._at_s = max(self._at_s, now_s)
