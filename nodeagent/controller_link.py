"""The agent's connection to the leading controller: outbound from the node, kept up, and never waited for.

Safety does not depend on it. Only the leader answers; the other replicas close the connection, so every address of the
service is tried in turn until one stays open. The controller is known by its certificate, and shown the agent's token.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from random import Random

import structlog

from power.leases.messages import MessageFrameError, framed, read_frame

log = structlog.get_logger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 3.0
"""Pause between rounds of attempts. Shorter than a lease, so that a new leader is found before leases end."""
LOGGED_ROUNDS = 5
"""Number of failed rounds, some 5 s, after which the reason is logged; a change of leader takes less."""
CONNECT_S = 2.0
QUIET_S = 8.0
"""Silence after which a connection is closed: one whose other end is gone stays silent."""


class ControllerLink:
    """One connection at a time to `host:port`. `receive` is called with every message, in the event loop."""

    def __init__(
        self,
        token: Callable[[], bytes],
        host: str,
        port: int,
        receive: Callable[[bytes], None],
        chance: Random,
        tls: Callable[[], ssl.SSLContext] | None = None,
        introduce: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """token: sent first on every new connection. tls: of each; None: the peer is believed, as in tests.

        introduce: returns the message sent after the token; None: nothing is sent. Raises nothing but OSError.
        """
        self._token, self._host, self._port, self._receive, self._tls = token, host, port, receive, tls
        self._chance, self._introduce = chance, introduce
        self._writer: asyncio.StreamWriter | None = None
        self._only_bulk_waits = False
        self._in_vain, self._why = 0, ""

    @property
    def is_up(self) -> bool:
        return self._writer is not None

    @property
    def own_address(self) -> str:
        """Address of this end of the connection; empty while there is none."""
        return str(self._writer.get_extra_info("sockname")[0]) if self._writer is not None else ""

    def send(self, message: bytes) -> None:
        """Sends a message if connected; a report that cannot be sent now is of no use later."""
        if self._writer is not None and (self.is_idle or self._only_bulk_waits):
            self._writer.write(framed(message))
            self._only_bulk_waits = False

    def reconnect(self) -> None:
        """Ends the connection, so that the next one begins with a new introduction."""
        if self._writer is not None:
            self._writer.close()

    @property
    def is_idle(self) -> bool:
        """Whether it is connected and everything has left; only then bulk is sent, which reports must not wait for."""
        return self._writer is not None and self._writer.transport.get_write_buffer_size() == 0

    def send_bulk(self, message: bytes) -> None:
        """Sends a message that may take a while, at most one at a time: the caller asks `is_idle` before."""
        if self._writer is not None and self.is_idle:
            self._writer.write(framed(message))
            self._only_bulk_waits = True

    async def keep_up(self) -> None:
        """Connects, listens, and reconnects after every end, for ever."""
        wait_s = FIRST_WAIT_S
        while True:
            self._in_vain += 1
            addresses: list[str] = []
            try:
                found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            except OSError as error:
                self._why = f"{self._host}: {error}"
            self._chance.shuffle(addresses)
            for address in addresses:
                if await self._listen(address):
                    wait_s = FIRST_WAIT_S
            if self._in_vain == LOGGED_ROUNDS:
                log.warning("no connection to a controller", host=self._host, port=self._port, why=self._why)
            await asyncio.sleep(wait_s * self._chance.uniform(0.5, 1.0))
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    async def _listen(self, address: str) -> bool:
        """Listens until the connection ends; returns whether any message arrived."""
        writer = None
        has_received = False
        try:
            tls, token = self._tls() if self._tls else None, self._token()
            name = self._host if tls else None
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(address, self._port, ssl=tls, server_hostname=name)
            writer.write(framed(token))
            if introduction := self._introduce():
                writer.write(framed(introduction))
            self._writer = writer
            while True:
                async with asyncio.timeout(QUIET_S):
                    message = await read_frame(reader)
                if self._in_vain > LOGGED_ROUNDS:  # it was said that there was none
                    log.info("connection to a controller restored", address=address)
                has_received, self._in_vain = True, 0
                self._receive(message)
        except (OSError, EOFError, TimeoutError, MessageFrameError) as error:
            # A replica that does not lead ends the connection without a message.
            ended = isinstance(error, EOFError)
            self._why = (
                f"{address}: {'it closed the connection' if ended else str(error) or 'no answer within the time limit'}"
            )
            return has_received
        finally:
            self._writer = None
            if writer is not None:
                writer.transport.abort()  # TLS would wait for the goodbye of a controller that may be gone
