import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import pytest

from cluster.errors import ActionError
from controller.kube.request import Body
from controller.loops.autoscaler.http_server import Access, AccessReviews, TooBusyError, User
from tests.clock import HandClock

T = TypeVar("T")
PUSH = Access("update", "tonnage.dev", "scalingpolicies/demand", "team-a", "chat")


@dataclass
class FakeApiServer:
    """Knows tokens, and what their users may do."""

    users: dict[str, str] = field(default_factory=lambda: {"good": "pusher"})
    audiences: list[str] = field(default_factory=lambda: ["tonnage"])
    may: set[tuple[str, str, str]] = field(default_factory=lambda: {("pusher", "team-a", "chat")})
    is_down: bool = False
    seen: list[Any] = field(default_factory=list)

    async def post(self, path: str, body: Body) -> bytes:
        assert isinstance(body, dict)
        self.seen.append(body)
        if self.is_down:
            raise ActionError("no answer")
        spec = body["spec"]
        if path.endswith("tokenreviews"):
            user = self.users.get(spec["token"])
            status = {"authenticated": user is not None, "user": {"username": user or ""}, "audiences": self.audiences}
            return msgspec.json.encode({"kind": "TokenReview", "status": status})
        what = spec["resourceAttributes"]
        assert (what["verb"], what["resource"], what["subresource"]) == ("update", "scalingpolicies", "demand")
        allowed = (spec["user"], what["namespace"], what["name"]) in self.may
        return msgspec.json.encode({"kind": "SubjectAccessReview", "status": {"allowed": allowed}})


def _reviews(server: FakeApiServer, clock: HandClock | None = None) -> AccessReviews:
    return AccessReviews(server.post, clock or HandClock(), audience="tonnage")


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_a_user_with_the_permission_may() -> None:
    assert _run(_reviews(FakeApiServer()).allows_token("good", PUSH))


@pytest.mark.parametrize(
    ("token", "access"),
    [("bad", PUSH), ("good", replace(PUSH, namespace="team-b")), ("good", replace(PUSH, name="other"))],
)
def test_nobody_else_may(token: str, access: Access) -> None:
    assert not _run(_reviews(FakeApiServer()).allows_token(token, access))


def test_a_token_for_another_audience_is_no_token() -> None:
    assert not _run(_reviews(FakeApiServer(audiences=["vault"])).allows_token("good", PUSH))
    assert not _run(_reviews(FakeApiServer(audiences=[])).allows_token("good", PUSH))


def test_a_decision_is_remembered_for_a_minute() -> None:
    server, clock = FakeApiServer(), HandClock()
    reviews = _reviews(server, clock)

    async def scenario() -> None:
        assert await reviews.allows_token("good", PUSH)
        server.may.clear()
        assert await reviews.allows_token("good", PUSH)
        clock.now_s = 61
        assert not await reviews.allows_token("good", PUSH)

    _run(scenario())
    assert len(server.seen) == 4  # a token and an access review, twice


def test_a_decision_is_that_of_one_user_and_one_object() -> None:
    server = FakeApiServer()
    reviews = _reviews(server)

    async def scenario() -> None:
        assert await reviews.allows_token("good", PUSH)
        assert not await reviews.allows_token("good", replace(PUSH, name="other"))
        assert not await reviews.allows_token("bad", PUSH)
        assert not await reviews.allows_user(User("stranger"), PUSH)
        assert await reviews.allows_user(User("pusher"), PUSH)

    _run(scenario())


def test_wrong_tokens_cannot_load_the_api_server() -> None:
    server, clock = FakeApiServer(), HandClock()
    reviews = _reviews(server, clock)

    async def scenario() -> None:
        for number in range(20):
            assert not await reviews.allows_token(f"bad-{number}", PUSH)
        with pytest.raises(TooBusyError, match="too many"):
            await reviews.allows_token("bad", PUSH)
        clock.now_s = 1
        assert not await reviews.allows_token("bad", PUSH)

    _run(scenario())


def test_an_api_server_that_does_not_answer_allows_nothing() -> None:
    with pytest.raises(TooBusyError, match="does not answer"):
        _run(_reviews(FakeApiServer(is_down=True)).allows_token("good", PUSH))
