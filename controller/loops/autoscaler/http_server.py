"""HTTP servers of the autoscaler: sockets and TLS for the push endpoint and the external metrics API."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from aiohttp import web

from cluster.errors import ConfigError, Mistake


@dataclass(frozen=True, slots=True)
class Request:
    """Request, as handlers read it."""

    method: str
    path: str
    """Path with percent signs decoded."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case; values of a repeated header are joined by line breaks."""
    body: bytes = b""
    client: Mapping[str, str] = field(default_factory=dict)
    """Subject of the client's verified certificate, such as `commonName`; empty: it showed none."""
    address: str = ""
    """IP address that the request came from."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


Handler = Callable[[Request], Awaitable[Response]]


READ_WITHIN_S = 10.0
"""Time in which a request must have arrived as a whole."""
CLOSE_WITHIN_S = 1.0


async def serve(
    handler: Handler,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None,
    most_bytes: int,
    setting: str,
    stack: AsyncExitStack,
) -> int:
    """Serves until the stack is closed; returns the port. Raises ConfigError when the port cannot be opened.

    most_bytes: largest body; larger ones are refused unread. setting: name of the port's setting, for that error.
    """

    async def handle(request: web.Request) -> web.Response:
        if request.content_length is not None and request.content_length > most_bytes:
            raise web.HTTPRequestEntityTooLarge(most_bytes, request.content_length)
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                body = await request.read()
        except TimeoutError as error:
            raise web.HTTPRequestTimeout from error
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        subject = {name: value for part in (certificate or {}).get("subject", ()) for name, value in part}
        headers: dict[str, str] = {}
        for name, value in request.headers.items():
            before = headers.get(name.lower())
            headers[name.lower()] = value if before is None else f"{before}\n{value}"
        response = await handler(
            Request(request.method, request.path, dict(request.query), headers, body, subject, request.remote or "")
        )
        return web.Response(
            status=response.status,
            body=response.body,
            headers={**response.headers, "Cache-Control": "no-store"},
            content_type=response.content_type,
        )

    app = web.Application(client_max_size=most_bytes)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=CLOSE_WITHIN_S, lingering_time=0.0, keepalive_timeout=75.0
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError as error:
        mistake = Mistake(f"{setting} {host}:{port}", f"cannot be opened: {error}", "free the port or set another one")
        raise ConfigError(mistake) from error
    return int(runner.addresses[0][1])
