"""Mailbox between the agents' link and the analysis: reports of health, the oldest dropped first, and orders back."""

from collections import deque
from collections.abc import Mapping
from threading import Event, Lock

from health.records.probes import KIND as PROBE
from health.records.report import KIND

MOST_BYTES = 64 * 1024 * 1024
"""Two seconds of 10,000 ranks at 100 operations a second."""


class ReportMailbox:
    """Courier on the agents' link. Two threads use it: the link's, and that of the analysis."""

    sends, hears = PROBE, KIND

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._lock = Lock()
        self.arrived = Event()
        self.dropped = 0
        self._orders: Mapping[str, bytes] = {}

    def set_orders(self, orders: Mapping[str, bytes]) -> None:
        """Orders for probes by node, as of now; a node without one gets nothing."""
        self._orders = orders

    def mail_for(self, node: str) -> bytes | None:
        """Order for a node that has just reported."""
        return self._orders.get(node)

    def heard(self, node: str, text: bytes) -> str:
        """Adds a report of this node; never refuses one, since the analysis reads it."""
        with self._lock:
            self._waiting.append((node, text))
            self._bytes += len(text)
            while self._bytes > self._most:
                self._bytes -= len(self._waiting.popleft()[1])
                self.dropped += 1
        self.arrived.set()
        return ""

    def take(self) -> tuple[tuple[str, bytes], ...]:
        """Everything that has arrived, in order: node and report."""
        with self._lock:
            taken = tuple(self._waiting)
            self._waiting.clear()
            self._bytes = 0
            self.arrived.clear()
        return taken
