"""Thin asynchronous client of an API server, for many writes at once that insist; bodies as bytes."""

import asyncio
import http
import json
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from controller.kube.credentials import Access, Credentials, credentials

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

ANSWER_WITHIN_S = 30.0

CONNECTIONS = 64
"""Maximum number; a watch keeps one for itself."""

IN_FLIGHT = 32
"""Maximum concurrent writes: more do not make an API server faster."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0

GONE, CONFLICT, INVALID = 404, 409, 422
SETTLED = (GONE, CONFLICT, INVALID)
"""Refusals that a retry does not change: the object is gone, is another one, or is invalid."""

Body = Mapping[str, Any]


class UnreachableError(Exception):
    """No response: the server is down, or the connection broke. A later retry may help."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        return self.status < http.HTTPStatus.MULTIPLE_CHOICES


class Connection:
    """Requests to one API server."""

    def __init__(self, session: aiohttp.ClientSession, own: Credentials) -> None:
        self._session = session
        self._own = own
        self._writes = asyncio.Semaphore(IN_FLIGHT)
        self._asking: set[asyncio.Task[aiohttp.ClientResponse]] = set()

    async def send(self, method: str, path: str, body: Body | None = None, content_type: str | None = None) -> Answer:
        """Response, whatever its status. Raises UnreachableError."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN_S)
        try:
            response = await self._request(method, path, timeout, body, content_type)
            return Answer(response.status, await response.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError(f"{method} {path}: {error}") from error

    async def insist(self, method: str, path: str, body: Body | None = None, content_type: str | None = None) -> Answer:
        """Sends it until it succeeds or is refused for good, with growing pauses and without a limit."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                async with self._writes:
                    answer = await self.send(method, path, body, content_type)
                if answer.is_ok or answer.status in SETTLED:
                    return answer
            except UnreachableError:
                pass
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def lines(self, path: str, silent_s: float) -> AsyncIterator[bytes]:
        """Lines of a watch, until the server ends it. Raises UnreachableError on refusal or long silence."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_WITHIN_S, sock_read=silent_s)
        try:
            async with await self._request("GET", path, timeout) as response:
                if response.status != http.HTTPStatus.OK:
                    raise UnreachableError(f"watching {path}: {response.status} {await response.text()}")
                async for line in response.content:
                    yield line
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError(f"watching {path}: {error}") from error

    async def _request(
        self,
        method: str,
        path: str,
        timeout: aiohttp.ClientTimeout,
        body: Body | None = None,
        content_type: str | None = None,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type or "application/json"}
        if authorization := self._own.authorization():
            headers["Authorization"] = authorization
        server = self._own.server
        request = self._session.request(
            method,
            server.host + path,
            headers=headers,
            data=None if body is None else json.dumps(body),
            timeout=timeout,
            server_hostname=server.tls_server_name or None,
        )
        # A cancelled request runs to its end: the event loop never closes a connection that is broken off while it is
        # being made.
        asking = asyncio.create_task(_made(request))
        self._asking.add(asking)
        asking.add_done_callback(self._answered)
        return await asyncio.shield(asking)

    def _answered(self, asking: "asyncio.Task[aiohttp.ClientResponse]") -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # a waiting caller raises it; a cancelled one ignores it

    async def settle(self) -> None:
        """Waits until the requests of cancelled callers have their responses, or have failed."""
        await asyncio.gather(*self._asking, return_exceptions=True)


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Connection]:
    """Connection as the kubeconfig's current user."""
    own = credentials(Access(kubeconfig=str(kubeconfig)), time.monotonic)
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=own.server.tls)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        connection = Connection(session, own)
        try:
            yield connection
        finally:
            await connection.settle()


async def _made(request: Awaitable[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
    """The response; the session's own object can be awaited, but is no coroutine."""
    return await request
