"""Mailbox between the agents' link and the analysis: reports of health, the oldest of each node
dropped first, and orders back."""

from collections import deque
from collections.abc import Mapping
from threading import Event, Lock

from health.records.frames import PROBE_KIND, REPORT_KIND

MOST_BYTES = 64 * 1024 * 1024
"""Two seconds of 10,000 ranks at 100 operations a second."""
MOST_OF_NODE = 4 * 1024 * 1024
"""What may wait of one node: what eighty times as busy ranks as above write on a node of eight. An agent that floods
displaces its own reports, and none of others."""


class ReportMailbox:
    """Courier on the agents' link. Two threads use it: the link's, and that of the analysis."""

    sends, hears = PROBE_KIND, REPORT_KIND

    def __init__(self, most_bytes: int = MOST_BYTES, most_of_node: int = MOST_OF_NODE) -> None:
        self._most, self._most_of_node = most_bytes, most_of_node
        self._bytes = 0
        self._waiting: dict[str, deque[tuple[int, bytes]]] = {}
        """Reports by node, each with its number."""
        self._bytes_of: dict[str, int] = {}
        self._number = 0
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
            self._number += 1
            self._waiting.setdefault(node, deque()).append((self._number, text))
            self._count(node, len(text))
            while self._bytes_of[node] > self._most_of_node:
                self._drop(node)
            while self._bytes > self._most:
                self._drop(max(self._bytes_of, key=self._bytes_of.__getitem__))
        self.arrived.set()
        return ""

    def take(self) -> tuple[tuple[str, bytes], ...]:
        """Everything that has arrived, in order: node and report."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._bytes, self._bytes_of = 0, {}
            self.arrived.clear()
        taken = sorted((number, node, text) for node, each in waiting.items() for number, text in each)
        return tuple((node, text) for _, node, text in taken)

    def _count(self, node: str, more: int) -> None:
        self._bytes += more
        self._bytes_of[node] = self._bytes_of.get(node, 0) + more

    def _drop(self, node: str) -> None:
        _, text = self._waiting[node].popleft()
        self._count(node, -len(text))
        self.dropped += 1
