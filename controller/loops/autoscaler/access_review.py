"""Access reviews: which user a token belongs to, and what that user may do, by the API server's own decision."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from cluster.clock import Clock
from cluster.errors import ActionError
from controller.kube.request import Body

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


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


class Post(Protocol):
    """Creates an object that the API server answers at once."""

    def __call__(self, path: str, body: Body) -> Awaitable[bytes]:
        """Response body. Raises ActionError."""
        ...


class _TokenUser(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _TokenUser = msgspec.field(default_factory=_TokenUser)
    audiences: tuple[str, ...] = ()


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


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
        key = hashlib.sha256(msgspec.json.encode((user.name, user.groups, user.uid))).digest()
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
        return User(status.user.username, status.user.groups, status.user.uid)

    async def _allows(self, user: User, access: Access) -> bool:
        resource, _, subresource = access.resource.partition("/")
        attributes = {
            "verb": access.verb,
            "group": access.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": access.namespace,
            "name": access.name,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "groups": list(user.groups),
                "uid": user.uid,
                "resourceAttributes": attributes,
            },
        }
        answer = await self._review("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return msgspec.json.decode(answer, type=_AccessReview).status.allowed

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
