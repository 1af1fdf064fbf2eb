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
from controller.loops.loop import Courier
from controller.loops.power.term import PowerTerm
from power.leases.messages import (
    Inventory,
    Keys,
    Lease,
    MessageFrameError,
    Refusal,
    Report,
    framed,
    kind_in,
    opened,
    opened_text,
    read_frame,
    sealed,
    sealed_text,
)
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
        keys: Callable[[], Keys],
        clock: Clock,
        couriers: Sequence[Courier] = (),
    ) -> None:
        """couriers: other parts' messages; more may join while it serves."""
        self._term, self._keys, self._clock = term, keys, clock
        self._couriers = couriers
        self._lines: dict[str, asyncio.StreamWriter] = {}
        self._heard_at_s: dict[str, float] = {}
        self._news = asyncio.Event()
        self._keys_of: dict[str, tuple[Keys, Keys]] = {}
        self._logged_at_s: dict[tuple[str, str], float] = {}
        """When a refusal was logged last, by node, empty for callers that are not known, and code."""
        self.counts = LoopCounts()

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that are connected."""
        return frozenset(self._lines)

    async def serve(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Listens for agents. Raises OSError when the address is not available."""
        return await asyncio.start_server(self._attend, host, port, ssl=tls)

    async def decide(self) -> None:
        """Runs turns for ever: soon after each report, and periodically."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LATEST_S):
                    await self._news.wait()
            self._news.clear()
            term = self._term()
            if term is None:
                self._hang_up()
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
        for lease in leases:
            self._send(lease)
        self.counts.turn_s, self.counts.turned_at_s = self._clock() - began_s, began_s

    def _send(self, lease: Lease) -> None:
        writer = self._lines.get(lease.node)
        if writer is None:
            return
        lease = replace(lease, hears=tuple(courier.hears for courier in self._couriers))
        writer.write(framed(sealed(lease, self._node_keys(lease.node), lease.node)))
        self.counts.leases += 1
        if (heard_at_s := self._heard_at_s.pop(lease.node, None)) is not None:
            self.counts.reaction_s.append(self._clock() - heard_at_s)
            del self.counts.reaction_s[:-10_000]

    def _hang_up(self) -> None:
        """Closes all connections; agents then look for the leader elsewhere."""
        for writer in self._lines.values():
            writer.close()
        self._lines.clear()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node = ""
        try:
            if self._term() is None:
                return
            async with asyncio.timeout(HELLO_S):
                node = (await read_frame(reader, LONGEST_NAME)).decode("ascii")
                # Derived anew: keys of names that anybody may claim are not kept.
                inventory = opened(Inventory, await read_frame(reader), keys_of_node(self._keys(), node), node)
            if isinstance(inventory, Refusal):
                self._refused(inventory, node)
                return
            await self._listen(reader, writer, node, inventory)
        except (OSError, EOFError, TimeoutError, UnicodeDecodeError, MessageFrameError):
            return
        finally:
            if self._lines.get(node) is writer:
                del self._lines[node]
            writer.close()

    async def _listen(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: str, inventory: Inventory
    ) -> None:
        introduced_to: PowerTerm | None = None
        mailed: dict[str, bytes] = {}
        heard_from: set[str] = set()
        # An inventory may be a recording. Where the node is known, only a report that is newer than all before shows
        # that its agent speaks: until then nothing displaces its connection or its devices.
        is_shown = self._is_new(node)
        if is_shown:
            self._take_place(node, writer)
        while not is_shown or self._lines.get(node) is writer:
            term = self._term()
            if term is None:
                return
            if is_shown and term is not introduced_to:
                term.found(inventory)
                introduced_to = term
            async with asyncio.timeout(QUIET_S):
                travelled = await read_frame(reader)
            kind = kind_in(travelled)
            if (courier := next((each for each in self._couriers if each.hears == kind), None)) is not None:
                heard_from.add(kind)
                self._deliver(courier, travelled, node)
                self._post(courier, node, writer, mailed)
                continue
            report = opened(Report, travelled, self._node_keys(node), node)
            refusal = report if isinstance(report, Refusal) else _of_other_life(report, inventory) or term.hear(report)
            if refusal is not None:
                self._refused(refusal, node)
                if not is_shown:
                    return
                continue
            if not is_shown:
                is_shown = True
                self._take_place(node, writer)
            self.counts.reports += 1
            self._heard_at_s.setdefault(node, self._clock())
            self._news.set()
            for each in self._couriers:
                if each.hears in heard_from:  # its own messages may be rarer than these
                    self._post(each, node, writer, mailed)

    def _is_new(self, node: str) -> bool:
        """Whether no agent of the node has introduced itself to this term."""
        term = self._term()
        return node not in self._lines and (term is None or node not in term.inventories)

    def _take_place(self, node: str, writer: asyncio.StreamWriter) -> None:
        if (before := self._lines.get(node)) is not None:
            before.close()
        self._lines[node] = writer

    def _deliver(self, courier: Courier, travelled: bytes, node: str) -> None:
        """Gives a message to its courier."""
        text = opened_text(courier.hears, travelled, self._node_keys(node), node)
        if isinstance(text, Refusal):
            self._refused(text, node)
        elif why := courier.heard(node, text):
            self._refused(Refusal("Unreadable", why), node)

    def _post(self, courier: Courier, node: str, writer: asyncio.StreamWriter, mailed: dict[str, bytes]) -> None:
        """Sends what a courier has for a node, where that is new. mailed: last text of each on this connection."""
        text = courier.mail_for(node)
        if text is not None and mailed.get(courier.sends) != text:
            mailed[courier.sends] = text
            writer.write(framed(sealed_text(courier.sends, text, self._node_keys(node), node)))

    def _refused(self, refusal: Refusal, node: str) -> None:
        self.counts.refused[refusal.code] = self.counts.refused.get(refusal.code, 0) + 1
        about, now_s = (node if node in self._keys_of else "", refusal.code), self._clock()
        if now_s - self._logged_at_s.get(about, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_at_s[about] = now_s
            log.warning("agent's message refused", node=node, code=refusal.code, why=refusal.words)

    def _node_keys(self, node: str) -> Keys:
        fleet = self._keys()
        known = self._keys_of.get(node)
        if known is None or known[0] is not fleet:
            known = self._keys_of[node] = (fleet, keys_of_node(fleet, node))
        return known[1]


def _of_other_life(report: Report, inventory: Inventory) -> Refusal | None:
    """The refusal of a report of another session than the one that introduced itself."""
    if report.life == inventory.life:
        return None
    return Refusal("OtherLife", "report is of another session than the inventory on its connection")
