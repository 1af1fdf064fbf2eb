"""Prober: measures the peers that the controller's order names, in its own thread, and keeps results for reports."""

import queue
import re
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace

import structlog

from cluster.clock import Clock
from cluster.errors import UNREADABLE
from health.records import frames
from nodeagent.health.probe_listener import ProbeListener
from nodeagent.loops import AgentLoop
from power.leases.messages import kind_in, text_in
from tonnage.probe_wire import PairReading, measured_with

log = structlog.get_logger(__name__)
FRESH_S = 15.0
"""Age up to which a report may be answered by an order."""
REPORTED_S = 10.0
"""Time for which a result is sent with every report: one of them may be lost."""
MOST_A_MINUTE = 24
"""Pairs that an agent measures in a minute at most, whatever it is ordered."""
_TOKEN = re.compile("[0-9a-f]{32}")


class Prober:
    """Pair probes of one node. `receive` and `results` may be called from other threads than the measuring one."""

    def __init__(
        self,
        node: str,
        life: str,
        listener: ProbeListener,
        clock: Clock,
        sent_s: Callable[[int], float | None],
        source: str = "",
    ) -> None:
        """sent_s: when the report of this number was sent, None where it is not known.

        source: address from which peers are measured; empty: as the routes say.
        """
        self._node, self._life, self._clock, self._sent_s = node, life, clock, sent_s
        self.listener, self._source = listener, source
        self._answered, self._ordered_s = -1, float("-inf")
        self._orders: queue.Queue[frames.ProbeOrder | None] = queue.Queue(4)
        self._results: deque[tuple[float, frames.ProbeResult]] = deque(maxlen=64)
        self._begun: deque[float] = deque(maxlen=MOST_A_MINUTE)
        self._lock = threading.Lock()
        self._loop = AgentLoop("prober", self._measure, gives_way=True)
        self.measured = 0
        self.refused: dict[str, int] = {}

    def start(self) -> None:
        self.listener.start()
        self._loop.start()

    def close(self) -> None:
        self._loop.close()
        with suppress(queue.Full):
            self._orders.put_nowait(None)
        self.listener.close()

    def address(self, host: str) -> frames.ProbeAddress:
        """Where peers find the listener. host: of the connection to the controller, where no source was chosen."""
        return frames.ProbeAddress(self._source or host, self.listener.port)

    def receive(self, travelled: bytes) -> bool:
        """Whether a message of the controller was an order for probes; what is wrong with it is counted."""
        if kind_in(travelled) != frames.PROBE_KIND:
            return False
        try:
            order = frames.order_in(text_in(travelled))
        except UNREADABLE as error:
            self._refuse("Unreadable", str(error))
            return True
        if (why := self._objection(order)) is not None:
            self._refuse(*why)
            return True
        self._answered, self._ordered_s = order.answers, self._clock()
        self.listener.admit(tuple(bytes.fromhex(token) for token in order.admit))
        with suppress(queue.Full):
            self._orders.put_nowait(order)
        return True

    @property
    def is_under_way(self) -> bool:
        """Whether an order was accepted of late."""
        return self._clock() - self._ordered_s <= REPORTED_S

    def results(self) -> tuple[frames.ProbeResult, ...]:
        """Results of the last while, with their ages."""
        now_s = self._clock()
        with self._lock:
            while self._results and now_s - self._results[0][0] > REPORTED_S:
                self._results.popleft()
            return tuple(replace(each, age_s=max(0.0, now_s - at_s)) for at_s, each in self._results)

    def _objection(self, order: frames.ProbeOrder) -> tuple[str, str] | None:
        """Code and words of why an order is refused."""
        if order.node != self._node:
            return "OtherNode", f"the order names node {order.node}"
        if order.life != self._life:
            return "OtherLife", "the order is for another session of the agent"
        if order.answers <= self._answered:
            return "Replayed", "an order that answers the same report or a newer one was accepted before"
        sent_s = self._sent_s(order.answers)
        if sent_s is None or self._clock() - sent_s > FRESH_S:
            return "Late", "the report that it answers is too old"
        tokens = (*order.admit, *(peer.token for peer in order.measure))
        if (
            len(order.measure) > frames.MOST_PEERS
            or len(order.admit) > frames.MOST_PEERS
            or not all(map(_TOKEN.fullmatch, tokens))
        ):
            return "Unreadable", "the order names too many peers, or a token that is none"
        return None

    def _refuse(self, code: str, words: str) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1
        log.warning("order for probes refused", code=code, why=words)

    def _measure(self) -> float:
        """Waits for an order and measures its peers. Returns seconds until the next order: none."""
        if (order := self._orders.get()) is None:
            return 0.0
        for peer in order.measure:
            made, now_s = PairReading(failure="too many"), self._clock()
            if len(self._begun) < MOST_A_MINUTE or now_s - self._begun[0] >= 60:
                self._begun.append(now_s)
                made = measured_with(peer.host, peer.port, bytes.fromhex(peer.token), self._source)
            self.measured += 1
            with self._lock:
                self._results.append((self._clock(), frames.ProbeResult(order.number, peer.node, 0.0, **asdict(made))))
        return 0.0
