"""The controller's end of agent connections: it receives reports, answers with leases, and serves while it leads.

It runs in its own thread and event loop, so neither a long plan nor the Kubernetes API delays it.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from cluster.clock import Clock
from controller.loops.loop import AgentChannel
from controller.loops.power.term import PowerTerm
from power.leases import messages
from power.leases.mounted_keys import keys_of_node

log = structlog.get_logger(__name__)

HELLO_S = 5.0
"""Time for a new connection to identify itself."""
QUIET_S = 30.0
"""Silence after which a connection is closed."""
SOONEST_S, LATEST_S = 0.1, 1.0
"""Shortest and longest interval between turns: soon after a report, and once a second in any case, since leases and
readings age."""
LONGEST_NAME = 253
LOG_EVERY_S = 10.0
"""Time between two lines in the log about refusals of one kind: of a node that is known, else of all callers. All are
counted."""


@dataclass(slots=True)
class LoopCounts:
    """Counters since the start, for the metrics."""

    reports: int = 0
    leases: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    turn_s: float = 0.0
    """Duration of the last turn."""
    turned_at_s: float = 0.0
    """Start of the last turn by the server's clock."""
    failures: int = 0
    """Turns that failed because of a bug."""
    reaction_s: list[float] = field(default_factory=list)
    """Times from receiving a report to having sent the lease that answers it; the newest 10,000."""


class AgentServer:
    """Server for agents. `term()` returns the present term, None while this process does not lead."""

    def __init__(
        self,
        term: Callable[[], PowerTerm | None],
        keys: Callable[[], messages.Keys],
        clock: Clock,
        channels: Sequence[AgentChannel] = (),
    ) -> None:
        """channels: other loops' messages; more may join while it serves."""
        self._term, self._keys, self._clock, self._channels = term, keys, clock, channels
        self._connections: dict[str, asyncio.StreamWriter] = {}
        self._reported_at_s: dict[str, float] = {}
        """When the oldest report of each node came that no lease has answered."""
        self._has_reports = asyncio.Event()
        self._keys_of: dict[str, tuple[messages.Keys, messages.Keys]] = {}
        self._logged_at_s: dict[tuple[str, str], float] = {}
        """When a refusal was logged last, by node, empty for callers that are not known, and code."""
        self.counts = LoopCounts()

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that are connected."""
        return frozenset(self._connections)

    async def serve(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Listens for agents. Raises OSError when the address is not available."""
        return await asyncio.start_server(self._attend, host, port, ssl=tls)

    async def decide(self) -> None:
        """Runs turns for ever: soon after each report, and periodically."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LATEST_S):
                    await self._has_reports.wait()
            self._has_reports.clear()
            term = self._term()
            if term is None:
                for writer in self._connections.values():
                    writer.close()  # agents then look for the leader elsewhere
                self._connections.clear()
            else:
                self._turn(term)
            await asyncio.sleep(SOONEST_S)

    def _turn(self, term: PowerTerm) -> None:
        began_s = self._clock()
        try:
            leases = term.turn(began_s)
        except Exception:
            self.counts.failures += 1
            log.exception("a turn of the power loop failed")
            return
        kinds = tuple(channel.receives for channel in self._channels)
        for lease in leases:
            writer = self._connections.get(lease.node)
            if writer is None:
                continue
            writer.write(
                messages.framed(messages.sealed(replace(lease, hears=kinds), self._node_keys(lease.node), lease.node))
            )
            self.counts.leases += 1
            if (reported_at_s := self._reported_at_s.pop(lease.node, None)) is not None:
                self.counts.reaction_s.append(self._clock() - reported_at_s)
                del self.counts.reaction_s[:-10_000]
        self.counts.turn_s, self.counts.turned_at_s = self._clock() - began_s, began_s

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node = ""
        try:
            if self._term() is None:
                return
            async with asyncio.timeout(HELLO_S):
                node = (await messages.read_frame(reader, LONGEST_NAME)).decode("ascii")
                # Derived anew: keys of names that anybody may claim are not kept.
                inventory = messages.opened(
                    messages.Inventory, await messages.read_frame(reader), keys_of_node(self._keys(), node), node
                )
            if isinstance(inventory, messages.Refusal):
                self._refused(inventory, node)
                return
            await self._listen(reader, writer, node, inventory)
        except (OSError, EOFError, TimeoutError, UnicodeDecodeError, messages.MessageFrameError):
            return
        finally:
            if self._connections.get(node) is writer:
                del self._connections[node]
            writer.close()

    async def _listen(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: str, inventory: messages.Inventory
    ) -> None:
        introduced_to: PowerTerm | None = None
        sent: dict[str, bytes] = {}
        received: set[str] = set()
        # An inventory may be a recording. Where the node is known, only a report that is newer than all before shows
        # that its agent speaks: until then nothing displaces its connection or its devices.
        term = self._term()
        is_shown = node not in self._connections and (term is None or node not in term.inventories)
        if is_shown:
            self._take_place(node, writer)
        while not is_shown or self._connections.get(node) is writer:
            term = self._term()
            if term is None:
                return
            if is_shown and term is not introduced_to:
                term.found(inventory)
                introduced_to = term
            async with asyncio.timeout(QUIET_S):
                frame = await messages.read_frame(reader)
            kind = messages.kind_in(frame)
            if (channel := next((each for each in self._channels if each.receives == kind), None)) is not None:
                received.add(kind)
                text = messages.opened_text(kind, frame, self._node_keys(node), node)
                if isinstance(text, messages.Refusal):
                    self._refused(text, node)
                elif why := channel.receive(node, text):
                    self._refused(messages.Refusal("Unreadable", why), node)
                self._send_new(channel, node, writer, sent)
                continue
            report = messages.opened(messages.Report, frame, self._node_keys(node), node)
            if isinstance(report, messages.Refusal):
                refusal: messages.Refusal | None = report
            elif report.life != inventory.life:
                words = "report is of another session than the inventory on its connection"
                refusal = messages.Refusal("OtherLife", words)
            else:
                refusal = term.receive(report)
            if refusal is not None:
                self._refused(refusal, node)
                if not is_shown:
                    return
                continue
            if not is_shown:
                is_shown = True
                self._take_place(node, writer)
            self.counts.reports += 1
            self._reported_at_s.setdefault(node, self._clock())
            self._has_reports.set()
            for each in self._channels:
                if each.receives in received:  # its own messages may be rarer than these
                    self._send_new(each, node, writer, sent)

    def _take_place(self, node: str, writer: asyncio.StreamWriter) -> None:
        if (before := self._connections.get(node)) is not None:
            before.close()
        self._connections[node] = writer

    def _send_new(self, channel: AgentChannel, node: str, writer: asyncio.StreamWriter, sent: dict[str, bytes]) -> None:
        """Sends what a channel has for a node, where that is new. sent: last text of each on this connection."""
        text = channel.message_to(node)
        if text is not None and sent.get(channel.sends) != text:
            sent[channel.sends] = text
            writer.write(messages.framed(messages.sealed_text(channel.sends, text, self._node_keys(node), node)))

    def _refused(self, refusal: messages.Refusal, node: str) -> None:
        self.counts.refused[refusal.code] = self.counts.refused.get(refusal.code, 0) + 1
        about, now_s = (node if node in self._keys_of else "", refusal.code), self._clock()
        if now_s - self._logged_at_s.get(about, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_at_s[about] = now_s
            log.warning("agent's message refused", node=node, code=refusal.code, why=refusal.words)

    def _node_keys(self, node: str) -> messages.Keys:
        fleet = self._keys()
        known = self._keys_of.get(node)
        if known is None or known[0] is not fleet:
            known = self._keys_of[node] = (fleet, keys_of_node(fleet, node))
        return known[1]
