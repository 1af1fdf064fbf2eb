"""Client of simulated nodes: writes that insist until they succeed, over the operator's connection."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess
from controller.kube.request import JSON, Body, KubeReadError, KubeWriteError

IN_FLIGHT = 32
"""Maximum concurrent requests: more do not make an API server faster."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
SETTLED = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Refusals that a retry does not change: the object is gone, is another one, or is invalid."""


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """Status of a response, and its body; of a refusal the words."""

    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        return self.status == HTTPStatus.OK


class InsistentClient:
    """Requests to one API server that are repeated with growing pauses and without a limit."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._sent: set[asyncio.Task[bytes]] = set()

    async def insist(
        self, method: str, path: str, body: Body | None = None, content_type: str = JSON
    ) -> ServerResponse:
        """Response of success, or a refusal for good (SETTLED)."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                async with self._slots:
                    return ServerResponse(HTTPStatus.OK, await self._response(method, path, body, content_type))
            except (KubeReadError, KubeWriteError) as error:
                if error.refusal.status in SETTLED:
                    return ServerResponse(error.refusal.status, error.refusal.words.encode())
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _response(self, method: str, path: str, body: Body | None, content_type: str) -> bytes:
        if method == "GET":
            request = self.connection.read(path)
        else:
            request = self.connection.write(method, path, body, content_type=content_type)
        # A cancelled request runs to its end: the event loop never closes a connection that is broken off while it is
        # being made.
        sent = asyncio.create_task(request)
        self._sent.add(sent)
        sent.add_done_callback(self._settled)
        return await asyncio.shield(sent)

    def _settled(self, sent: "asyncio.Task[bytes]") -> None:
        self._sent.discard(sent)
        if not sent.cancelled():
            sent.exception()  # a waiting caller raises it; a cancelled one ignores it

    async def settle(self) -> None:
        """Waits until the requests of cancelled callers have their responses, or have failed."""
        await asyncio.gather(*self._sent, return_exceptions=True)


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[InsistentClient]:
    """Client as the kubeconfig's current user."""
    async with await connect(ApiAccess(kubeconfig=str(kubeconfig)), time.monotonic) as connection:
        client = InsistentClient(connection)
        try:
            yield client
        finally:
            await client.settle()
