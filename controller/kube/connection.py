"""HTTP connection to a Kubernetes API server: raw bytes in and out, and errors that determine what the caller does."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from ssl import SSLContext
from urllib.parse import urlencode

import aiohttp
import msgspec

from cluster.clock import Clock
from controller.kube.api_server import (
    IGNORING,
    ApiResponse,
    ApiServer,
    RefusedError,
    RequestListener,
    no_connection,
    no_response,
)
from controller.kube.credentials import ApiAccess, CredentialError, Credentials, credentials
from controller.kube.request import (
    JSON,
    ApiRequest,
    Body,
    KubeReadError,
    Query,
    Refusal,
    refusal_of,
    resource_of,
    verb_of,
    warning_text,
)


class Connection(ApiServer):
    """Requests over one connection pool, each with the credentials that are current when it is sent."""

    def __init__(self, own: Credentials, access: ApiAccess, clock: Clock, listener: RequestListener) -> None:
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

    async def watch(self, path: str, query: Query, *, idle_s: float, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        """Lines of a watch. Raises KubeReadError when the watch breaks, or when nothing arrived for `idle_s`."""
        doing = f"watching {path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._access.connect_timeout_s, sock_read=idle_s)
        try:
            answer = await self._send("GET", path, {**query, "watch": "true"}, None, JSON, accept, timeout)
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
        except RefusedError as refused:
            raise KubeReadError(doing, refused.refusal) from refused.__cause__
        except _BROKEN as error:
            raise KubeReadError(doing, _no_response(error)) from error

    async def send(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str, accept: str = JSON
    ) -> ApiResponse:
        try:
            answer = await self._send(method, path, query, body, content_type, accept, self._response_timeout)
            for warning in answer.headers.getall("Warning", ()):
                self._listener.warned(warning_text(warning))
            await _check(answer)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return ApiResponse(await answer.read(), headers)
        except _BROKEN as error:
            raise RefusedError(_no_response(error)) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: Body | None,
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
            verb, resource = verb_of(method, path, query), resource_of(path)
            self._listener.requested(ApiRequest(verb, resource, status, self._clock() - start_s))


_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, CredentialError)


async def connect(access: ApiAccess, clock: Clock, listener: RequestListener = IGNORING) -> Connection:
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
    sends. CPU time of a bind and its Event: 2.6 ms with it, 1.3 ms with this one (benchmarks/binding.py).
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
    raise RefusedError(refusal_of(answer.status, answer.url.path, await answer.read(), after))


def _no_response(error: BaseException) -> Refusal:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        return no_connection(f"{error.host}:{error.port}", cause if isinstance(cause, OSError) else OSError(str(cause)))
    if isinstance(error, aiohttp.ClientConnectorError):
        return no_connection(f"{error.host}:{error.port}", error.os_error)
    return no_response(error)


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
