"""Reports about health on their way from agents' connections to the analysis: bounded, the oldest dropped first."""

from collections import deque
from threading import Event, Lock

MOST_BYTES = 64 * 1024 * 1024
"""Two seconds of 10,000 ranks at 100 operations a second."""


class AgentReports:
    """Mailbox between two threads: the one of the agents' port, and that of the analysis."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._lock = Lock()
        self.arrived = Event()
        self.is_read = False
        """Whether an analysis takes them; agents send none otherwise."""
        self.dropped = 0

    def put(self, node: str, body: bytes) -> None:
        """Adds a report that came over the connection of this node."""
        with self._lock:
            self._waiting.append((node, body))
            self._bytes += len(body)
            while self._bytes > self._most:
                self._bytes -= len(self._waiting.popleft()[1])
                self.dropped += 1
        self.arrived.set()

    def take(self) -> tuple[tuple[str, bytes], ...]:
        """Everything that has arrived, in order: node and report."""
        with self._lock:
            taken = tuple(self._waiting)
            self._waiting.clear()
            self._bytes = 0
            self.arrived.clear()
        return taken
