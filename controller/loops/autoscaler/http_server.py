"""HTTP servers of the autoscaler: sockets and TLS for the push endpoint and the external metrics API."""

import asyncio
import hashlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from cluster.clock import Clock
from cluster.errors import ActionError, ConfigError, Mistake
from controller.kube.request import Body, asked_of
from controller.objects.documents import at


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
        response = await handler(Request(request.method, request.path, dict(request.query), headers, body, subject))
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


ALLOWED_FOR_S = 60.0
"""Time for which an allowed access stays allowed without another review. The API server caches webhooks' decisions
for minutes; a minute bounds how long a revoked permission is still accepted."""
DENIED_FOR_S = 10.0
MOST_KNOWN = 4096
REVIEWS_PER_S = 20.0
"""Most reviews a second, so that wrong tokens cannot load the API server."""


class TooBusyError(Exception):
    """A review is not possible now: too many, or the API server does not answer."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a user would do to an object of an API group."""

    verb: str
    group: str
    resource: str
    """Plural, with the subresource if any: `scalingpolicies/demand`."""
    namespace: str
    name: str


Post = Callable[[str, Body], Awaitable[bytes]]
"""Creates an object at a path, which the API server answers at once. Raises ActionError."""


class User(msgspec.Struct, frozen=True):
    """User as a TokenReview has it."""

    username: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class AccessReviews:
    """Reviews with a short memory of decisions."""

    def __init__(self, post: Post, clock: Clock, audience: str = "") -> None:
        """clock: monotonic, seconds. audience: audience that a token must be for; empty: the API server's own."""
        self._post, self._clock, self._audience = post, clock, audience
        self._known: dict[tuple[bytes, Access], tuple[bool, float]] = {}
        """Decisions with the instant at which they expire; keys hold no token, only its hash."""
        self._budget, self._budget_at_s = REVIEWS_PER_S, clock()

    async def allows_token(self, token: str, access: Access) -> bool:
        """Whether the token's user may do this. Raises TooBusyError."""
        key = hashlib.sha256(token.encode()).digest()

        async def decide() -> bool:
            user = await self._user_of(token)
            return user is not None and await self._allows(user, access)

        return await self._decided(key, access, decide)

    async def allows_user(self, user: User, access: Access) -> bool:
        """Whether an authenticated user may do this. Raises TooBusyError."""
        key = hashlib.sha256(msgspec.json.encode((user.username, user.groups, user.uid))).digest()
        return await self._decided(key, access, lambda: self._allows(user, access))

    async def _decided(self, key: bytes, access: Access, decide: Callable[[], Awaitable[bool]]) -> bool:
        now_s = self._clock()
        known = self._known.get((key, access))
        if known is not None and now_s < known[1]:
            return known[0]
        allowed = await decide()
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key, access] = (allowed, now_s + (ALLOWED_FOR_S if allowed else DENIED_FOR_S))
        return allowed

    async def _user_of(self, token: str) -> User | None:
        audiences = [self._audience] if self._audience else []
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences},
        }
        answer = await self._review("/apis/authentication.k8s.io/v1/tokenreviews", body)
        status = msgspec.json.decode(answer, type=_TokenReview).status
        # An authenticator that knows no audiences leaves the field empty: its tokens are for the API server.
        if not status.authenticated or (self._audience and self._audience not in status.audiences):
            return None
        return status.user

    async def _allows(self, user: User, access: Access) -> bool:
        asked = asked_of(access.verb, access.group, access.resource, access.namespace, access.name)
        who = {"user": user.username, "groups": list(user.groups), "uid": user.uid}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**who, "resourceAttributes": asked},
        }
        answer = await self._review("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return at(msgspec.json.decode(answer), "status", "allowed") is True

    async def _review(self, path: str, body: Body) -> bytes:
        now_s = self._clock()
        self._budget = min(REVIEWS_PER_S, self._budget + (now_s - self._budget_at_s) * REVIEWS_PER_S)
        self._budget_at_s = now_s
        if self._budget < 1:
            raise TooBusyError("too many access reviews")
        self._budget -= 1
        try:
            return await self._post(path, body)
        except ActionError as error:
            raise TooBusyError(f"the API server does not answer: {error}") from error
