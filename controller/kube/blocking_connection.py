"""The same requests over one blocking connection of the standard library, for commands that do one thing at a time.

Its coroutines never suspend, so they run without an event loop (`run_to_end`). A command that uses it starts in a
third of the time: neither asyncio nor an asynchronous client is loaded.
"""

import http.client
import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Coroutine
from ssl import SSLContext
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

from controller.kube.api_server import (
    IGNORING,
    ApiResponse,
    ApiServer,
    RefusedError,
    RequestListener,
    no_connection,
    no_response,
)
from controller.kube.credentials import ApiAccess, ApiServerAddress, CredentialError, Credentials, credentials
from controller.kube.request import JSON, Body, KubeReadError, Query, refusal_of, warning_text

T = TypeVar("T")
Headers = list[tuple[str, str]]
_BROKEN = (http.client.HTTPException, TimeoutError, OSError, CredentialError)


class _UnreachedError(OSError):
    """The connection could not be made; its cause says why."""


class BlockingConnection(ApiServer):
    """Requests one after another, each with the credential that is current when it is sent."""

    def __init__(
        self,
        own: Credentials,
        access: ApiAccess,
        listener: RequestListener = IGNORING,
        within_s: float | None = None,
    ) -> None:
        """within_s: time for all requests together, seconds; None: each has its own limit alone."""
        super().__init__(own.server.host, own.server.namespace)
        self._own = own
        self._access = access
        self._listener = listener
        self._headers = access.headers
        self._end_s = None if within_s is None else time.monotonic() + within_s
        self._kept: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    async def send(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str, accept: str = JSON
    ) -> ApiResponse:
        try:
            response = self._response(method, path, query, body, content_type, accept)
            for warning in response.headers.get_all("Warning", ()):
                self._listener.warned(warning_text(warning))
            content = response.read()
        except _BROKEN as error:
            self.close()
            raise _refused(error, self._own.server) from error
        if not 200 <= response.status < 300:
            after = response.headers.get("Retry-After", "")
            raise RefusedError(refusal_of(response.status, path, content, after))
        return ApiResponse(content, {name.lower(): value for name, value in response.headers.items()})

    async def watch(self, path: str, query: Query, *, idle_s: float, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        """Lines of a watch, over a connection of its own."""
        line = self._opened(idle_s)
        try:
            types = [("Accept", accept), ("Content-Type", JSON)]
            response = self._begin(line, "GET", self._target(path, {**query, "watch": "true"}), None, types)
            if response.status != http.client.OK:
                raise KubeReadError(f"watching {path}", refusal_of(response.status, path, response.read()))
            while content := response.readline():
                if not content.endswith(b"\n"):
                    return  # the connection broke in the middle of it
                yield content[:-1]
        except _BROKEN as error:
            raise KubeReadError(f"watching {path}", _refused(error, self._own.server).refusal) from error
        finally:
            line.close()

    def _response(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str, accept: str
    ) -> http.client.HTTPResponse:
        """Response to a request; its body is not read yet."""
        content = None
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_as_text).encode()
        types = [("Accept", accept), ("Content-Type", content_type)]
        while True:
            line, is_used = self._kept or self._opened(self._limit_s()), self._kept is not None
            self._kept = line
            if line.sock is not None:
                line.sock.settimeout(self._limit_s())
            try:
                return self._begin(line, method, self._target(path, query), content, types)
            except (ConnectionError, http.client.RemoteDisconnected):
                # The server may have ended a connection that was idle; a read may be asked again.
                self.close()
                if not is_used or method != "GET":
                    raise

    def _opened(self, idle_s: float | None) -> http.client.HTTPConnection:
        """A new connection. idle_s: longest time without a byte; None: no limit. Raises OSError."""
        limits = [each for each in (self._access.connect_timeout_s, self._limit_s()) if each is not None]
        line = _line_to(self._own.server, min(limits))
        try:
            line.connect()
        except OSError as error:
            raise _UnreachedError from error
        line.sock.settimeout(idle_s)
        return line

    def _limit_s(self) -> float | None:
        """Longest time without a byte of a request that begins now, seconds; None: no limit. Raises TimeoutError."""
        limit_s = self._access.request_timeout_s or None
        if self._end_s is None:
            return limit_s
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return min(left_s, limit_s or left_s)

    def _begin(
        self, line: http.client.HTTPConnection, method: str, target: str, content: bytes | None, types: Headers
    ) -> http.client.HTTPResponse:
        """Send a request, and wait for the head of its response."""
        authorization = self._own.authorization()
        line.putrequest(method, target, skip_accept_encoding=True)
        for name, value in [*self._headers, *([("Authorization", authorization)] if authorization else []), *types]:
            line.putheader(name, value)
        if content is not None:
            line.putheader("Content-Length", str(len(content)))
        line.endheaders(content)
        return line.getresponse()

    def _target(self, path: str, query: Query) -> str:
        whole = urlsplit(self.host).path + path
        return f"{whole}?{urlencode(query)}" if query else whole


class _Https(http.client.HTTPSConnection):
    """HTTPS that checks the certificate against a name that is given, through a proxy too."""

    def __init__(self, host: str, port: int, server_name: str, tls: SSLContext, timeout_s: float) -> None:
        super().__init__(host, port, timeout=timeout_s, context=tls)
        self._server_name = server_name
        self._tls = tls

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _line_to(server: ApiServerAddress, timeout_s: float) -> http.client.HTTPConnection:
    """Connection that is not open yet, through the proxy where there is one."""
    url = urlsplit(server.host)
    host, port = url.hostname or "", url.port or (80 if url.scheme == "http" else 443)
    if url.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    proxy = urlsplit(server.proxy) if server.proxy else None
    first = (proxy.hostname or "", proxy.port or 80) if proxy else (host, port)
    line = _Https(*first, server.tls_server_name or host, server.tls, timeout_s)
    if proxy:
        headers = {}
        if proxy.username:
            pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
            headers["Proxy-Authorization"] = f"Basic {b64encode(pair).decode()}"
        line.set_tunnel(host, port, headers)
    return line


def serves(server: ApiServerAddress) -> bool:
    """Whether this client can reach a server: directly, or as HTTPS through a proxy that speaks plain HTTP."""
    return not server.proxy or (server.host.startswith("https://") and server.proxy.startswith("http://"))


def _as_text(value: object) -> str:
    """A time of a YAML manifest as RFC 3339. Raises TypeError for anything else that JSON has no form for."""
    from datetime import date

    if isinstance(value, date):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"{value!r} cannot be sent as JSON")


def _refused(error: BaseException, server: ApiServerAddress) -> RefusedError:
    if isinstance(error, _UnreachedError) and isinstance(error.__cause__, OSError):
        if isinstance(error.__cause__, TimeoutError):
            return RefusedError(no_response(error.__cause__))
        url = urlsplit(server.proxy or server.host)
        address = f"{url.hostname}:{url.port or (443 if url.scheme == 'https' else 80)}"
        return RefusedError(no_connection(address, error.__cause__))
    return RefusedError(no_response(error))


def connect_blocking(
    access: ApiAccess, listener: RequestListener = IGNORING, within_s: float | None = None
) -> BlockingConnection | None:
    """A connection to the cluster that `access` names; None where only the asynchronous client can reach it.

    Nothing is sent yet. listener: is told of warnings alone. Raises ConfigError.
    """
    own = credentials(access, time.monotonic)
    return BlockingConnection(own, access, listener, within_s) if serves(own.server) else None


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Result of a coroutine that waits for nothing but requests of a BlockingConnection."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        work.close()
    raise RuntimeError("waits for something that needs an event loop")
