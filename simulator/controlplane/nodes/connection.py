"""Thin asynchronous client of an API server: authentication and TLS by the client library, bodies as bytes."""

import asyncio
import http
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from controller.kube.library import ApiClient, Configuration, load_kube_config

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

    def __init__(self, client: Any) -> None:  # the library declares no types for a checker
        self._client = client
        self._writes = asyncio.Semaphore(IN_FLIGHT)
        self._asking: set[asyncio.Task[Any]] = set()

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
            response = (await self._request("GET", path, timeout)).response
            async with response:
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
    ) -> Any:
        headers = {"Accept": "application/json", "Content-Type": content_type or "application/json"}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._client.configuration.host + path
        request = self._client.rest_client.request(method, url, headers=headers, body=body, _request_timeout=timeout)
        # A cancelled request runs to its end: the event loop never closes a connection that is broken off while it is
        # being made.
        asking = asyncio.create_task(request)
        self._asking.add(asking)
        asking.add_done_callback(self._answered)
        return await asyncio.shield(asking)

    def _answered(self, asking: "asyncio.Task[Any]") -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # a waiting caller raises it; a cancelled one ignores it

    async def settle(self) -> None:
        """Waits until the requests of cancelled callers have their responses, or have failed."""
        await asyncio.gather(*self._asking, return_exceptions=True)


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Connection]:
    """Connection as the kubeconfig's current user."""
    configuration = Configuration()
    await load_kube_config(config_file=str(kubeconfig), client_configuration=configuration, persist_config=False)
    configuration.connection_pool_maxsize = CONNECTIONS
    async with ApiClient(configuration) as client:
        connection = Connection(client)
        try:
            yield connection
        finally:
            await connection.settle()
