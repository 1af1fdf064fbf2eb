"""Feed of health: a thread that reads pods' sockets and the host's evidence, and keeps reports until they can leave.

In a thread of its own, at lower priority, so that a flood of records delays no power limit.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from cluster.clock import Clock
from health.records import frames as records_frames
from nodeagent.agent import NodeAgent
from nodeagent.controller_link import ControllerLink
from nodeagent.health import host_evidence, pod_sockets, processes
from nodeagent.loops import AgentLoop
from power.leases.messages import encoded_text
from tonnage.records import is_preflight

MOST_BYTES = 8 * 1024 * 1024
"""Frames that wait at most: five minutes of 8 ranks at 100 operations a second, while no controller answers."""

EVERY_S = 0.05
"""Seconds between two looks for something to forward."""
WAIT_S = 0.05
LOOK_S = 0.25
"""Seconds between two looks for new pods and at processes: an ended one is known within it."""
REFRESH_S = 5.0
"""Seconds after which evidence is sent again, changed or not: a controller that just started has it then."""
EAGER_S = 0.2
"""Seconds between two reports while pair probes go on: each report may be answered by the next round's order."""
GATHER_S = 0.2
"""Seconds between two reports that hold frames alone: what a report costs its receiver depends little on its size."""
GATHERED_BYTES = records_frames.LONGEST_FRAMES // 2
"""Frames that do not wait for that."""
REMEMBERED = 1024
"""Reports whose instants are remembered: three minutes of a node that sends frames all the time."""
_RANK = struct.Struct("<4xI")


@dataclass(frozen=True, slots=True)
class Probes:
    """What a report says of pair probes."""

    at: records_frames.ProbeAddress | None = None
    done: tuple[records_frames.ProbeResult, ...] = ()
    under_way: bool = False
    """Whether an order came of late, so that another may follow."""


class HealthFeed:
    """Everything about health on one node. `next_report` may be called from another thread."""

    def __init__(
        self,
        node: str,
        life: str,
        sockets_of: Callable[[pod_sockets.Deliver], pod_sockets.PodSockets],
        ranks: processes.Ranks,
        sources: Sequence[host_evidence.HostEvidence],
        clock: Clock,
        outbox: records_frames.Backlog | None = None,
    ) -> None:
        """sockets_of: makes the sockets that deliver to a function. sources: evidence of the host besides ranks."""
        self._node, self.life, self._clock = node, life, clock
        self.sockets = sockets_of(self._deliver)
        self.outbox = outbox or records_frames.Backlog(Lock(), MOST_BYTES)
        self._ranks, self._sources = ranks, (*sources, ranks)
        self._evidence: tuple[records_frames.Evidence, ...] = ()
        self._sent: tuple[frozenset[tuple[object, ...]], float] = (frozenset(), float("-inf"))
        self._sequence = 0
        self._sent_at: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)
        self._framed_s = float("-inf")
        """When frames were last sent."""
        self._probes: Callable[[], Probes] = Probes
        self._looked_s = float("-inf")
        self._loop = AgentLoop("health", self.turn, gives_way=True)

    @property
    def dropped(self) -> dict[str, int]:
        """Datagrams that were not forwarded, by cause."""
        return {**self.sockets.dropped, "unsent": self.outbox.dropped}

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close(1.0)
        self.sockets.close()

    def turn(self, wait_s: float = WAIT_S) -> float:
        """Reads what arrives, and looks at pods and host when it is time. Returns seconds until the next turn: none."""
        now_s = self._clock()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self.sockets.look()
            # What two sources say alike is said once, by the first of them: it knows best since when.
            found: dict[tuple[str, str, str, int], records_frames.Evidence] = {}
            for source in self._sources:
                for each in source.read(now_s):
                    found.setdefault((each.code, each.subject, each.pod, each.rank), each)
            self._evidence = tuple(found.values())[: records_frames.MOST_EVIDENCE]
        self.sockets.read(wait_s)
        return 0.0

    def next_report(self) -> records_frames.HealthReport | None:
        """What is to be sent now; None when there is nothing. What was returned counts as sent."""
        now_s, evidence = self._clock(), self._evidence
        shown = frozenset((each.source, each.code, each.subject, each.pod, each.rank) for each in evidence)
        probes = self._probes()
        has_news = shown != self._sent[0] or now_s - self._sent[1] >= (EAGER_S if probes.under_way else REFRESH_S)
        are_due = now_s - self._framed_s >= GATHER_S or self.outbox.waiting_bytes >= GATHERED_BYTES
        frames: dict[str, bytes] = {}
        for pod, frame in self.outbox.take(records_frames.LONGEST_FRAMES) if are_due or has_news else ():
            frames[pod] = frames.get(pod, b"") + frame
        if not frames and not has_news:
            return None
        if frames:
            self._framed_s = now_s
        self._sequence += 1
        self._sent_at.append((self._sequence, now_s))
        report = records_frames.HealthReport(
            self._node, self.life, self._sequence, frames, None, self.dropped, probes.at, probes.done
        )
        if not has_news:
            return report
        self._sent = (shown, now_s)
        return replace(report, evidence=evidence)

    def report_with(self, probes: Callable[[], Probes]) -> None:
        """Has each report say where this node admits pair probes, and what it has measured."""
        self._probes = probes

    def sent_s(self, sequence: int) -> float | None:
        """When the report of this number was sent; None where that is not known any more."""
        return next((at_s for number, at_s in reversed(self._sent_at.copy()) if number == sequence), None)

    def refresh(self) -> None:
        """Has the evidence sent again with the next report: a new controller listens."""
        self._sent = (frozenset(), float("-inf"))

    def _deliver(self, pod: str, pid: int, frame: bytes) -> None:
        (rank,) = _RANK.unpack_from(frame)
        if not is_preflight(frame):  # its process ends when training begins
            self._ranks.note(pod, rank, pid)
        self.outbox.add(pod, frame)


async def forward(feed: HealthFeed, agent: NodeAgent, link: ControllerLink) -> None:
    """Sends what the feed holds, for ever, while the controller takes it."""
    was_accepted = False
    while True:
        await asyncio.sleep(EVERY_S)
        if not link.is_up:
            agent.accepted_kinds = ()
        is_accepted = records_frames.REPORT_KIND in agent.accepted_kinds
        if is_accepted and not was_accepted:
            feed.refresh()
        was_accepted = is_accepted
        if is_accepted and link.is_idle and (report := feed.next_report()) is not None:
            link.send_bulk(encoded_text(records_frames.REPORT_KIND, records_frames.packed(report)))
