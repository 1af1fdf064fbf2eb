"""HTTP connection to a Kubernetes API server: raw bytes in and out, and errors that determine what the caller does."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from ssl import SSLContext
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
import msgspec

from cluster.version import VERSION
from controller.kube.credentials import Access, Credentials, credentials
from controller.kube.errors import KubeReadError, KubeWriteError, Refusal, refusal_of, warning_text
from controller.kube.library import ConfigException
from controller.kube.request import JSON, Body, Query, Request, resource_of, verb_of


class Transport(Protocol):
    """Part of a connection that reading a cluster needs."""

    async def read(self, path: str, query: Query) -> bytes:
        """Response body of a GET. Raises KubeReadError."""
        ...

    def watch(self, path: str, query: Query, *, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Lines of a watch, one JSON event each, until the server ends it.

        Raises KubeReadError when the watch breaks, or when nothing arrived for `idle_s`. Close it (`aclosing`) when
        done.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """Response of the API server: body and headers."""

    body: bytes
    headers: Mapping[str, str]
    """Response headers, names in lower case."""


class Connection:
    """Requests over one connection pool, each with the credentials that are current when it is sent."""

    def __init__(
        self,
        own: Credentials,
        access: Access,
        clock: Callable[[], float],
        on_request: Callable[[Request], None],
        on_warning: Callable[[str], None],
    ) -> None:
        self.namespace = own.namespace
        """Namespace of the kubeconfig's context, or of the pod in which this process runs."""
        self.host = str(own.configuration.host)
        """Address of the server."""
        self._on_warning = on_warning
        self._configuration = own.configuration
        self._session = _session(own.tls)
        self._access = access
        self._impersonation = _impersonation(access)
        self._response_timeout = aiohttp.ClientTimeout(
            total=access.request_timeout_s or None, sock_connect=access.connect_timeout_s
        )
        self._clock = clock
        self._on_request = on_request

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def read(self, path: str, query: Query | None = None, accept: str = JSON) -> bytes:
        """Response body of a GET. Raises KubeReadError."""
        return (await self.read_whole(path, query, accept)).body

    async def read_whole(self, path: str, query: Query | None = None, accept: str = JSON) -> Answer:
        """Response to a GET, with its headers. Raises KubeReadError."""
        try:
            return await self._whole("GET", path, query or {}, None, JSON, accept)
        except _RefusedError as refused:
            raise KubeReadError(f"reading {path}", refused.refusal) from refused.__cause__

    async def write(
        self, method: str, path: str, body: Body | None = None, query: Query | None = None, content_type: str = JSON
    ) -> bytes:
        """Response body of a POST, PUT, PATCH or DELETE. Raises KubeWriteError; no request is retried."""
        doing = f"{_VERBS[method]} {path}"
        try:
            return (await self._whole(method, path, query or {}, body, content_type)).body
        except _RefusedError as refused:
            raise KubeWriteError(doing, refused.refusal) from refused.__cause__

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
                _abort(answer)
        except _RefusedError as refused:
            raise KubeReadError(doing, refused.refusal) from refused.__cause__
        except _BROKEN as error:
            raise KubeReadError(doing, _no_response(error)) from error

    async def _whole(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str, accept: str = JSON
    ) -> Answer:
        try:
            answer = await self._send(method, path, query, body, content_type, accept, self._response_timeout)
            for warning in answer.headers.getall("Warning", ()):
                self._on_warning(warning_text(warning))
            await _check(answer)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(await answer.read(), headers)
        except _BROKEN as error:
            raise _RefusedError(_no_response(error)) from error

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
        url = f"{self._configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            headers = [*await self._headers(), ("Accept", accept), ("Content-Type", content_type)]
            answer = await self._session.request(
                method,
                url,
                headers=headers,
                data=None if body is None else _TO_JSON.encode(body),
                timeout=timeout,
                server_hostname=self._configuration.tls_server_name or None,
                proxy=self._configuration.proxy or None,
                proxy_headers=self._configuration.proxy_headers or None,
            )
            status = answer.status
            return answer
        finally:
            verb, resource = verb_of(method, path, query), resource_of(path)
            self._on_request(Request(verb, resource, status, self._clock() - start_s))

    async def _headers(self) -> list[tuple[str, str]]:
        # Uncompressed: compressing a list costs the server more than sending it costs a datacenter network.
        headers = [("Accept-Encoding", "identity"), ("User-Agent", f"tonnage/{VERSION}")]
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers.append(("Authorization", token))
        return headers + self._impersonation


def _impersonation(access: Access) -> list[tuple[str, str]]:
    """Headers of user impersonation. Source: Kubernetes documentation, "User impersonation"."""
    if not access.impersonate:
        return []
    uid = [("Impersonate-Uid", access.impersonate_uid)] if access.impersonate_uid else []
    groups = [("Impersonate-Group", group) for group in access.impersonate_groups]
    return [("Impersonate-User", access.impersonate), *groups, *uid]


class _RefusedError(Exception):
    """Refusal on its way to the method that knows whether the request was a read or a write."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.words)
        self.refusal = refusal


_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, ConfigException)
_VERBS = {"POST": "creating", "PUT": "replacing", "PATCH": "patching", "DELETE": "deleting"}


async def connect(
    access: Access,
    clock: Callable[[], float],
    on_request: Callable[[Request], None] = lambda _: None,
    on_warning: Callable[[str], None] = lambda _: None,
) -> Connection:
    """A connection to the cluster that `access` names; nothing is sent yet. Raises ConfigError.

    clock: monotonic, seconds. on_request: called after each request, in the event loop, so it must return quickly.
    on_warning: called with the text of each Warning header in a response.
    """
    return Connection(await credentials(access, clock), access, clock, on_request, on_warning)


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


def _abort(answer: aiohttp.ClientResponse) -> None:
    """Abort the TCP connection of a watch.

    A graceful close waits for the server's side of the shutdown, up to half a minute where it is busy. Nothing awaits
    that, so the connection would outlive its event loop.
    """
    connection = answer.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    answer.close()


async def _check(answer: aiohttp.ClientResponse) -> None:
    """Raises _RefusedError for a response that is not a success."""
    if 200 <= answer.status < 300:
        return
    refusal = refusal_of(answer.status, answer.url.path, await answer.read())
    after = answer.headers.get("Retry-After", "")
    if refusal.retry_after_s is None and after.isdigit():
        refusal = replace(refusal, retry_after_s=float(after))
    raise _RefusedError(refusal)


def _no_response(error: BaseException) -> Refusal:
    if isinstance(error, aiohttp.ClientConnectorError):
        return Refusal(0, "NoAnswer", f"no answer from {error.host}:{error.port}: {_os_words(error.os_error)}")
    if isinstance(error, TimeoutError):
        return Refusal(0, "NoAnswer", "no answer within the time limit")
    return Refusal(0, "NoAnswer", f"no answer: {str(error) or type(error).__name__}")


def _os_words(error: OSError) -> str:
    """Words of the operating system, such as `Connection refused`; asyncio puts its own over them."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


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
