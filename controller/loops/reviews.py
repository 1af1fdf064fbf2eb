"""Reviews of tokens and accesses by the API server, in fair turns and with a short memory."""

import asyncio
import hashlib
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from cluster.clock import Clock
from cluster.errors import UNREADABLE, ActionError
from controller.fair_shares import FairTurns, TooManyWaitError
from controller.kube.request import Body, asked_of
from controller.objects.documents import at

YES_FOR_S = 60.0
"""Time for which a yes counts without another review. The API server caches webhooks' decisions for minutes; a minute
bounds how long a revoked token or permission is still accepted."""
NO_FOR_S = 10.0
MOST_KNOWN = 16_384
"""Remembered answers of each kind: three for each agent of 5,000 nodes."""
AT_ONCE, LEAST_S = 8, 0.2
"""Reviews of one address, or of one user, at a time, and how long each counts: 40 a second, half for one subject."""
AT_ONCE_OF_ALL = 64
MOST_WAITING = 100
"""Reviews of one address, or of one user, that wait, half of them of one subject: 2.5 s. More are refused at once."""
WAIT_S = 5.0
"""Longest wait for a turn and the answer."""


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
    extra: Mapping[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


Key = TypeVar("Key")
Answer = TypeVar("Answer")


class _Memory(Generic[Key, Answer]):
    """Answers of a while. Those that say no are kept apart, so that they push no other out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._yes: dict[Key, tuple[Answer, float]] = {}
        self._no: dict[Key, tuple[Answer, float]] = {}

    def of(self, key: Key) -> Answer | None:
        answer, until_s = self._yes.get(key) or self._no.get(key) or (None, 0.0)
        return answer if self._clock() < until_s else None

    def keep(self, key: Key, answer: Answer, *, is_yes: bool) -> None:
        kept = self._yes if is_yes else self._no
        (self._no if is_yes else self._yes).pop(key, None)
        kept.pop(key, None)
        if len(kept) >= MOST_KNOWN:
            del kept[next(iter(kept))]  # the oldest
        kept[key] = (answer, self._clock() + (YES_FOR_S if is_yes else NO_FOR_S))


class _Reviewer:
    """Sends reviews, in turns of addresses or users, and within one of them in turns of its subjects."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._all = FairTurns(AT_ONCE_OF_ALL)
        self._of: dict[str, FairTurns] = {}
        self._prune_at = AT_ONCE_OF_ALL

    async def review(self, asker: str, subject: str, path: str, body: Body) -> bytes:
        """Raises TooBusyError."""
        turns = self._of.get(asker)
        if turns is None:
            if len(self._of) >= self._prune_at:
                self._of = {name: each for name, each in self._of.items() if not each.is_idle}
                self._prune_at = AT_ONCE_OF_ALL + 2 * len(self._of)
            turns = self._of[asker] = FairTurns(AT_ONCE, LEAST_S, MOST_WAITING)
        try:
            async with asyncio.timeout(WAIT_S), turns.turn(subject), self._all.turn(asker):
                return await self._post(path, body)
        except TooManyWaitError as error:
            raise TooBusyError(f"too many reviews: {error}") from error
        except TimeoutError as error:
            raise TooBusyError("too many reviews: no answer within the time limit") from error
        except ActionError as error:
            raise TooBusyError(f"the API server does not answer: {error}") from error


class TokenReviews:
    """Whose tokens these are. One instance per event loop."""

    def __init__(self, post: Post, clock: Clock, audience: str = "") -> None:
        """clock: monotonic, seconds. audience: audience that a token must be for; empty: the API server's own."""
        self._reviewer, self._audience = _Reviewer(post), audience
        self._known: _Memory[bytes, tuple[User | None]] = _Memory(clock)
        """By the hash of a token, so that none is kept."""

    async def user_of(self, token: str, address: str) -> User | None:
        """User of a token that is valid and for the audience. Raises TooBusyError.

        address: where it came from. Its wrong tokens delay no other address, and those of one subject no other subject.
        """
        key = hashlib.sha256(token.encode()).digest()
        if (known := self._known.of(key)) is not None:
            return known[0]
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience] if self._audience else []},
        }
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        answer = await self._reviewer.review(address, subject_in(token), path, body)
        status = msgspec.json.decode(answer, type=_TokenReview).status
        # An authenticator that knows no audiences leaves the field empty: its tokens are for the API server.
        is_ours = not self._audience or self._audience in status.audiences
        user = status.user if status.authenticated and is_ours else None
        self._known.keep(key, (user,), is_yes=user is not None)
        return user


def subject_in(token: str) -> str:
    """The subject that a token claims to be of, which nobody has checked; empty where it claims none."""
    try:
        payload = token.split(".")[1]
        claimed = at(msgspec.json.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))), "sub")
    except (IndexError, *UNREADABLE):
        return ""
    return claimed[:256] if isinstance(claimed, str) else ""


class AccessReviews:
    """Whether users may do something. One instance per event loop."""

    def __init__(self, post: Post, clock: Clock, audience: str = "") -> None:
        """clock, audience: as those of `TokenReviews`."""
        self._tokens, self._reviewer = TokenReviews(post, clock, audience), _Reviewer(post)
        self._known: _Memory[tuple[bytes, Access], bool] = _Memory(clock)

    async def allows_token(self, token: str, address: str, access: Access) -> bool:
        """Whether the token's user may do this. Raises TooBusyError."""
        user = await self._tokens.user_of(token, address)
        return user is not None and await self.allows_user(user, access)

    async def allows_user(self, user: User, access: Access) -> bool:
        """Whether an authenticated user may do this. Raises TooBusyError."""
        who = {"user": user.username, "groups": list(user.groups), "uid": user.uid}
        key = hashlib.sha256(msgspec.json.encode(who)).digest(), access
        if (known := self._known.of(key)) is not None:
            return known
        asked = asked_of(access.verb, access.group, access.resource, access.namespace, access.name)
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**who, "resourceAttributes": asked},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._reviewer.review(user.username, access.namespace, path, body)
        allowed = at(msgspec.json.decode(answer), "status", "allowed") is True
        self._known.keep(key, allowed, is_yes=allowed)
        return allowed
