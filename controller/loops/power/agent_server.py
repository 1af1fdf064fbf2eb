"""The controller's end of agent connections: it receives reports, answers with leases, and serves while it leads.

It runs in its own thread and event loop, so neither a long plan nor the Kubernetes API delays it. A connection begins
with the agent's token, which names its node; what arrives on it is that node's, and nobody else's.
"""

import asyncio
import asyncio.sslproto
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from cluster.clock import Clock
from controller.fair_shares import Shares
from controller.loops.loop import AgentChannel
from controller.loops.power.term import PowerTerm
from controller.loops.reviews import TokenReviews, TooBusyError
from power.leases import messages

log = structlog.get_logger(__name__)

HELLO_S = 5.0
"""Time for a new connection to identify itself."""
GOODBYE_S = 1.0
"""Time for the end of TLS on a connection that is closed."""
READ_BYTES = 16 * 1024
"""Buffer of a connection under TLS: a record of it. asyncio's own, 256 kB, would be 2.6 GB for 10,000 agents."""
QUIET_S = 30.0
"""Silence after which a connection is closed."""
SOONEST_S, LATEST_S = 0.1, 1.0
"""Shortest and longest interval between turns: soon after a report, and once a second in any case, since leases and
readings age."""
SHOWN_FOR_S = 3600.0
"""Time after which a connection ends, so that its agent shows a token again: one whose pod is gone is not valid."""
UNKNOWN, UNKNOWN_OF_ONE = 8192, 64
"""Most connections that have not shown who they are, in all and from one address. More are closed."""
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


Identify = Callable[[bytes, str], Awaitable[str | messages.Refusal]]
"""Name of the node that a token is bound to, or why none is believed. The second argument is the caller's address."""
NODE = "authentication.kubernetes.io/node-name"
"""Where a TokenReview names the node. Source: kubernetes/apiserver, pkg/authentication/serviceaccount."""


class NodeTokens:
    """Which nodes agents' tokens are bound to, as the API server says.

    The kubelet mounts a token into the agent's pod. It ends with the pod, and names the pod's node (Kubernetes 1.30).
    """

    def __init__(self, reviews: TokenReviews, account: str) -> None:
        """account: name of the agents' service account, as `system:serviceaccount:NAMESPACE:NAME`."""
        self._reviews, self._account = reviews, account

    async def node_of(self, token: bytes, address: str) -> str | messages.Refusal:
        """`Identify`. A token that cannot be reviewed now is refused: its agent asks again, and its lease ends."""
        try:
            user = await self._reviews.user_of(token.decode("ascii", "replace").strip(), address)
        except TooBusyError as error:
            return messages.Refusal("NotReviewed", str(error))
        if user is None:
            return messages.Refusal("NotAuthenticated", "its token is not valid, or not for this connection")
        if user.username != self._account:
            return messages.Refusal("NotAnAgent", f"its token is of {user.username}, not of {self._account}")
        nodes = user.extra.get(NODE, ())
        return nodes[0] if len(nodes) == 1 else messages.Refusal("NotAnAgent", "its token is bound to no node")


class AgentServer:
    """Server for agents. `term()` returns the present term, None while this process does not lead."""

    def __init__(
        self,
        term: Callable[[], PowerTerm | None],
        identify: Identify,
        clock: Clock,
        channels: Sequence[AgentChannel] = (),
    ) -> None:
        """channels: other loops' messages; more may join while it serves."""
        self._term, self._identify, self._clock, self._channels = term, identify, clock, channels
        self._connections: dict[str, asyncio.StreamWriter] = {}
        self._reported_at_s: dict[str, float] = {}
        """When the oldest report of each node came that no lease has answered."""
        self._has_reports = asyncio.Event()
        self._logged_at_s: dict[tuple[str, str], float] = {}
        """When a refusal was logged last, by node, empty for callers that showed none, and code."""
        self._unknown = Shares(UNKNOWN, UNKNOWN_OF_ONE)
        self.counts = LoopCounts()

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that are connected."""
        return frozenset(self._connections)

    async def serve(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Listens for agents. Raises OSError when the address is not available."""
        if tls is None:  # in tests
            return await asyncio.start_server(self._attend, host, port)
        asyncio.sslproto.SSLProtocol.max_size = READ_BYTES
        return await asyncio.start_server(
            self._attend, host, port, ssl=tls, ssl_handshake_timeout=HELLO_S, ssl_shutdown_timeout=GOODBYE_S
        )

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
            writer.write(messages.framed(messages.encoded(replace(lease, hears=kinds))))
            self.counts.leases += 1
            if (reported_at_s := self._reported_at_s.pop(lease.node, None)) is not None:
                self.counts.reaction_s.append(self._clock() - reported_at_s)
                del self.counts.reaction_s[:-10_000]
        self.counts.turn_s, self.counts.turned_at_s = self._clock() - began_s, began_s

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node, address = "", str(writer.get_extra_info("peername")[0])
        try:
            if self._term() is None or not self._unknown.take(address):
                return
            try:
                async with asyncio.timeout(HELLO_S):
                    token = await messages.read_frame(reader, messages.LONGEST_TOKEN)
                shown = await self._identify(token, address)
            finally:
                self._unknown.give_back(address)
            if isinstance(shown, messages.Refusal):
                self._refused(shown)
                return
            async with asyncio.timeout(HELLO_S):
                inventory = messages.decoded(messages.Inventory, await messages.read_frame(reader), shown)
            if isinstance(inventory, messages.Refusal):
                self._refused(inventory, shown)
                return
            node = shown
            await self._listen(reader, writer, node, inventory)
        except (OSError, EOFError, TimeoutError, messages.MessageFrameError):
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
        if (before := self._connections.get(node)) is not None:
            before.close()
        self._connections[node] = writer
        until_s = self._clock() + SHOWN_FOR_S
        while self._connections.get(node) is writer and self._clock() < until_s:
            term = self._term()
            if term is None:
                return
            if term is not introduced_to:
                term.found(inventory)
                introduced_to = term
            async with asyncio.timeout(QUIET_S):
                frame = await messages.read_frame(reader)
            kind = messages.kind_in(frame)
            if (channel := next((each for each in self._channels if each.receives == kind), None)) is not None:
                received.add(kind)
                if why := channel.receive(node, messages.text_in(frame)):
                    self._refused(messages.Refusal("Unreadable", why), node)
                self._send_new(channel, node, writer, sent)
                continue
            report = messages.decoded(messages.Report, frame, node)
            if isinstance(report, messages.Refusal):
                refusal: messages.Refusal | None = report
            elif report.life != inventory.life:
                words = "report is of another session than the inventory on its connection"
                refusal = messages.Refusal("OtherLife", words)
            else:
                refusal = term.receive(report)
            if refusal is not None:
                self._refused(refusal, node)
                continue
            self.counts.reports += 1
            self._reported_at_s.setdefault(node, self._clock())
            self._has_reports.set()
            for each in self._channels:
                if each.receives in received:  # its own messages may be rarer than these
                    self._send_new(each, node, writer, sent)

    def _send_new(self, channel: AgentChannel, node: str, writer: asyncio.StreamWriter, sent: dict[str, bytes]) -> None:
        """Sends what a channel has for a node, where that is new. sent: last text of each on this connection."""
        text = channel.message_to(node)
        if text is not None and sent.get(channel.sends) != text:
            sent[channel.sends] = text
            writer.write(messages.framed(messages.encoded_text(channel.sends, text)))

    def _refused(self, refusal: messages.Refusal, node: str = "") -> None:
        self.counts.refused[refusal.code] = self.counts.refused.get(refusal.code, 0) + 1
        about, now_s = (node, refusal.code), self._clock()
        if now_s - self._logged_at_s.get(about, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_at_s[about] = now_s
            log.warning("agent's message refused", node=node, code=refusal.code, why=refusal.words)
