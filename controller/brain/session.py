"""Session of one brain: reads and writes its stream, and detects when the brain is of no use."""

import socket
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from controller.brain.wire import Inbox, Message, WireError

SILENT_S = 5.0
"""Seconds without a message after which a brain counts as frozen; it answers pings also while it plans."""
UP_WITHIN_S = 40.0
"""Seconds from its start until its planners must be up; measured 7 s, on a busy machine 20."""


class BrainLost(Exception):  # noqa: N818 - an ordinary turn in a brain's life
    """Error that ends a brain's session. The reason is one word, for metrics."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words


@dataclass(slots=True)
class BrainSession:
    """Session of one brain, from its start. Instants are on the link's clock."""

    stream: socket.socket
    began_s: float
    heard_at_s: float
    pinged_at_s: float = 0.0
    up_at_s: float | None = None
    inbox: Inbox = field(default_factory=Inbox)
    out: deque[memoryview] = field(default_factory=deque)

    def say(self, message: Iterable[memoryview]) -> None:
        """Queues a message, to be sent when the stream accepts it."""
        self.out.extend(message)

    def read(self, now_s: float) -> Iterator[tuple[Message, bytes]]:
        """Messages that have arrived. Raises BrainLost."""
        try:
            data = self.stream.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            raise BrainLost("ended", f"the brain's process is gone: {error}") from error
        if not data:
            raise BrainLost("ended", "the brain's process has ended")
        self.heard_at_s = now_s
        try:
            yield from self.inbox.feed(data)
        except WireError as error:
            raise BrainLost("garbled", str(error)) from error

    def write(self) -> None:
        """Sends as much of the queue as the stream accepts now. Raises BrainLost."""
        try:
            while self.out:
                sent = self.stream.send(self.out[0])
                if sent < len(self.out[0]):
                    self.out[0] = self.out[0][sent:]
                else:
                    self.out.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            raise BrainLost("ended", f"the brain's process is gone: {error}") from error

    def check(self, now_s: float) -> None:
        """Raises BrainLost when the brain does not come up, or is silent."""
        if self.up_at_s is None:
            if now_s >= self.began_s + UP_WITHIN_S:
                raise BrainLost("unready", f"the brain was not up within {UP_WITHIN_S:.0f} s")
        elif now_s >= self.heard_at_s + SILENT_S:
            raise BrainLost("silent", f"the brain was silent for {SILENT_S:.0f} s")
