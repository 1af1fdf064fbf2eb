"""A connection to a Kubernetes API server: raw bytes both ways, and errors that tell their catcher what to do."""

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
    """What reading a cluster needs of a connection."""

    async def read(self, path: str, query: Query) -> bytes:
        """The body of a GET. Raises KubeReadError."""
        ...

    def watch(self, path: str, query: Query, *, idle_s: float) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, one JSON event each, until the server ends it.

        Raises KubeReadError when it breaks, or when nothing came for `idle_s`. Close it (`aclosing`) when done.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A body with the head that came before it."""

    body: bytes
    headers: Mapping[str, str]
    """Names in lower case."""


class Connection:
    """Requests over one pool of connections, with the credentials as they are at that moment."""

    def __init__(
        self,
        who: Credentials,
        access: Access,
        clock: Callable[[], float],
        counted: Callable[[Request], None],
        warned: Callable[[str], None],
    ) -> None:
        self.namespace = who.namespace
        """Where the context of the kubeconfig, or the pod that this runs in, is at home."""
        self.host = str(who.configuration.host)
        """Address of the server."""
        self._warned = warned
        self._configuration = who.configuration
        self._session = _session(who.tls)
        self._access = access
        self._impersonation = _impersonation(access)
        self._whole_answer = aiohttp.ClientTimeout(
            total=access.request_timeout_s or None, sock_connect=access.connect_timeout_s
        )
        self._clock = clock
        self._counted = counted

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def read(self, path: str, query: Query | None = None, accept: str = JSON) -> bytes:
        """The body of a GET. Raises KubeReadError."""
        return (await self.read_whole(path, query, accept)).body

    async def read_whole(self, path: str, query: Query | None = None, accept: str = JSON) -> Answer:
        """The answer to a GET with its head. Raises KubeReadError."""
        try:
            return await self._whole("GET", path, query or {}, None, JSON, accept)
        except _RefusedError as refused:
            raise KubeReadError(f"reading {path}", refused.refusal) from refused.__cause__

    async def write(
        self, method: str, path: str, body: Body | None = None, query: Query | None = None, content_type: str = JSON
    ) -> bytes:
        """The body of the answer to a POST, PUT, PATCH or DELETE. Raises KubeWriteError; nothing is tried twice."""
        doing = f"{_VERBS[method]} {path}"
        try:
            return (await self._whole(method, path, query or {}, body, content_type)).body
        except _RefusedError as refused:
            raise KubeWriteError(doing, refused.refusal) from refused.__cause__

    async def watch(self, path: str, query: Query, *, idle_s: float, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        """The lines of a watch. Raises KubeReadError when it breaks, or when nothing came for `idle_s`."""
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
                _let_go(answer)
        except _RefusedError as refused:
            raise KubeReadError(doing, refused.refusal) from refused.__cause__
        except _BROKEN as error:
            raise KubeReadError(doing, _no_answer(error)) from error

    async def _whole(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str, accept: str = JSON
    ) -> Answer:
        try:
            answer = await self._send(method, path, query, body, content_type, accept, self._whole_answer)
            for warning in answer.headers.getall("Warning", ()):
                self._warned(warning_text(warning))
            await _check(answer)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(await answer.read(), headers)
        except _BROKEN as error:
            raise _RefusedError(_no_answer(error)) from error

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
            self._counted(Request(verb, resource, status, self._clock() - start_s))

    async def _headers(self) -> list[tuple[str, str]]:
        # Uncompressed: the server would spend more on packing a list than the network of a datacenter does on it.
        headers = [("Accept-Encoding", "identity"), ("User-Agent", f"tonnage/{VERSION}")]
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers.append(("Authorization", token))
        return headers + self._impersonation


def _impersonation(access: Access) -> list[tuple[str, str]]:
    """Headers that ask to be taken for somebody else. Source: Kubernetes documentation, "User impersonation"."""
    if not access.impersonate:
        return []
    uid = [("Impersonate-Uid", access.impersonate_uid)] if access.impersonate_uid else []
    groups = [("Impersonate-Group", group) for group in access.impersonate_groups]
    return [("Impersonate-User", access.impersonate), *groups, *uid]


class _RefusedError(Exception):
    """Carries a refusal to where it is known whether something was read or written."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.words)
        self.refusal = refusal


_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, ConfigException)
_VERBS = {"POST": "creating", "PUT": "replacing", "PATCH": "patching", "DELETE": "deleting"}


async def connect(
    access: Access,
    clock: Callable[[], float],
    counted: Callable[[Request], None] = lambda _: None,
    warned: Callable[[str], None] = lambda _: None,
) -> Connection:
    """A connection to the cluster that `access` names; nothing is sent yet. Raises ConfigError.

    clock: monotonic, seconds. counted: called after each request, in the event loop: be quick. warned: called with
    the words of each warning that the server sends beside an answer.
    """
    return Connection(await credentials(access, clock), access, clock, counted, warned)


CONNECTIONS = 100
"""At most; each watch keeps one for itself, writes share the others."""
READ_BUFFER_BYTES = 2**21
_TO_JSON = msgspec.json.Encoder()


def _session(tls: SSLContext) -> aiohttp.ClientSession:
    """None of what the library's own session does at every request: it looks into the environment, and on the disk for
    a .netrc, in a thread; and it keeps cookies, which no API server sends. 2.6 ms of processor time for a bind and its
    Event that way, 1.3 ms this way (benchmarks/binding.py)."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
    )


def _let_go(answer: aiohttp.ClientResponse) -> None:
    """End a watch's line at once. To close it politely is to wait for the server's last word, up to half a minute where
    that is busy, and nobody waits for it: the line would outlive its event loop."""
    line = answer.connection
    if line is not None and line.transport is not None:
        line.transport.abort()
    answer.close()


async def _check(answer: aiohttp.ClientResponse) -> None:
    """Raises what the server refused."""
    if 200 <= answer.status < 300:
        return
    refusal = refusal_of(answer.status, answer.url.path, await answer.read())
    after = answer.headers.get("Retry-After", "")
    if refusal.retry_after_s is None and after.isdigit():
        refusal = replace(refusal, retry_after_s=float(after))
    raise _RefusedError(refusal)


def _no_answer(error: BaseException) -> Refusal:
    return Refusal(0, "NoAnswer", f"no answer: {type(error).__name__} {error}".rstrip())


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, however it was cut into chunks and however long they are. A rest without end is dropped:
    its connection broke in the middle of it."""
    rest: list[bytes] = []
    async for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest.append(line)
            yield b"".join(rest)
            rest = []
        if last:
            rest.append(last)
