"""HTTP connection to a Kubernetes API server: raw bytes in and out, and errors that determine what the caller does."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing
from ssl import SSLContext
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec

from cluster.clock import Clock
from controller.kube import api_server, request
from controller.kube.credentials import ApiAccess, CredentialError, Credentials, credentials


class Connection(api_server.ApiServer):
    """Requests over one connection pool, each with the credentials that are current when it is sent."""

    def __init__(self, own: Credentials, access: ApiAccess, clock: Clock, listener: api_server.RequestListener) -> None:
        super().__init__(own.server.host, own.server.namespace)
        self._own = own
        self._session = _session(own.server.tls)
        self._access = access
        self._headers = access.headers
        self._response_timeout = aiohttp.ClientTimeout(
            total=access.request_timeout_s or None, sock_connect=access.connect_timeout_s
        )
        self._clock = clock
        self._listener = listener

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def watch(
        self, path: str, query: request.Query, *, idle_s: float, accept: str = request.JSON
    ) -> AsyncGenerator[bytes, None]:
        """Lines of a watch. Raises KubeReadError when the watch breaks, or when nothing arrived for `idle_s`."""
        doing = f"watching {path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._access.connect_timeout_s, sock_read=idle_s)
        try:
            answer = await self._send("GET", path, {**query, "watch": "true"}, None, request.JSON, accept, timeout)
            try:
                await _check(answer)
                async with aclosing(lines(answer.content.iter_any())) as each_line:
                    async for line in each_line:
                        yield line
            finally:
                # A graceful close waits for the server's side of the shutdown, up to half a minute where it is busy.
                # Nothing awaits that, so the connection would outlive its event loop.
                connection = answer.connection
                if connection is not None and connection.transport is not None:
                    connection.transport.abort()
                answer.close()
        except api_server.RefusedError as refused:
            raise request.KubeReadError(doing, refused.refusal) from refused.__cause__
        except _BROKEN as error:
            raise request.KubeReadError(doing, _no_response(error)) from error

    async def send(
        self,
        method: str,
        path: str,
        query: request.Query,
        body: request.Body | None,
        content_type: str,
        accept: str = request.JSON,
    ) -> api_server.ApiResponse:
        try:
            answer = await self._send(method, path, query, body, content_type, accept, self._response_timeout)
            for warning in answer.headers.getall("Warning", ()):
                self._listener.warned(request.warning_text(warning))
            await _check(answer)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return api_server.ApiResponse(await answer.read(), headers)
        except _BROKEN as error:
            raise api_server.RefusedError(_no_response(error)) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: request.Query,
        body: request.Body | None,
        content_type: str,
        accept: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        start_s, status = self._clock(), 0
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            # In a thread where it may run a plugin: the event loop also serves watches and the lease meanwhile.
            own = self._own
            authorization = await asyncio.to_thread(own.authorization) if own.is_due else own.authorization()
            headers = [*self._headers, ("Accept", accept), ("Content-Type", content_type)]
            if authorization:
                headers.append(("Authorization", authorization))
            answer = await self._session.request(
                method,
                url,
                headers=headers,
                data=None if body is None else _TO_JSON.encode(body),
                timeout=timeout,
                server_hostname=own.server.tls_server_name or None,
                proxy=own.server.proxy,
            )
            status = answer.status
            return answer
        finally:
            verb, resource = request.verb_of(method, path, query), request.resource_of(path)
            self._listener.requested(request.ApiRequest(verb, resource, status, self._clock() - start_s))


_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, CredentialError)


async def connect(
    access: ApiAccess, clock: Clock, listener: api_server.RequestListener = api_server.IGNORING
) -> Connection:
    """A connection to the cluster that `access` names; nothing is sent yet. Raises ConfigError.

    clock: monotonic, seconds.
    """
    return Connection(credentials(access, clock), access, clock, listener)


CONNECTIONS = 100
"""Maximum number of TCP connections; each watch occupies one, writes share the others."""
READ_BUFFER_BYTES = 2**21
_TO_JSON = msgspec.json.Encoder()


def _session(tls: SSLContext) -> aiohttp.ClientSession:
    """HTTP session without the per-request work of the library's own session.

    That one reads the environment, looks for a .netrc on disk in a thread, and stores cookies, which no API server
    sends. CPU time of a bind and its Event: 2.6 ms with it, 1.3 ms with this one (benchmarks/operator.py).
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
    )


async def _check(answer: aiohttp.ClientResponse) -> None:
    """Raises RefusedError for a response that is not a success."""
    if 200 <= answer.status < 300:
        return
    after = answer.headers.get("Retry-After", "")
    raise api_server.RefusedError(request.refusal_of(answer.status, answer.url.path, await answer.read(), after))


def _no_response(error: BaseException) -> request.Refusal:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        return api_server.no_connection(
            f"{error.host}:{error.port}", cause if isinstance(cause, OSError) else OSError(str(cause))
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return api_server.no_connection(f"{error.host}:{error.port}", error.os_error)
    return api_server.no_response(error)


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Lines of a stream, whatever the size of chunks and lines.

    A last line without a line break is dropped: the connection broke in the middle of it.
    """
    rest: list[bytes] = []
    async for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest.append(line)
            yield b"".join(rest)
            rest = []
        if last:
            rest.append(last)


T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads. One instance serves Kubernetes, another the node agents."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def run_within(self, work: Coroutine[Any, Any, T], limit_s: float) -> T | None:
        """The same with a timeout in seconds; None when it was exceeded."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(limit_s)
        except TimeoutError:
            future.cancel()
            return None

    async def run_from_another(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and await its result in another loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the background, until it ends or is cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Callable[[], None]) -> None:
        """Schedule a function in the loop; returns at once."""
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        async def cancel_all() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run_within(cancel_all(), 2.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2.0)
        if not self._thread.is_alive():
            self._loop.close()
