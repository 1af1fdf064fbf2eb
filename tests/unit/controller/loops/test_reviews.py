import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import pytest

from cluster.errors import ActionError
from controller.kube.request import Body
from controller.loops.reviews import AT_ONCE, LEAST_S, NO_FOR_S, WAIT_S, Access, AccessReviews, TooBusyError, User
from tests.clock import HandClock, run_in_no_time

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
    assert _run(_reviews(FakeApiServer()).allows_token("good", "10.0.0.1", PUSH))


@pytest.mark.parametrize(
    ("token", "access"),
    [("bad", PUSH), ("good", replace(PUSH, namespace="team-b")), ("good", replace(PUSH, name="other"))],
)
def test_nobody_else_may(token: str, access: Access) -> None:
    assert not _run(_reviews(FakeApiServer()).allows_token(token, "10.0.0.1", access))


def test_a_token_for_another_audience_is_no_token() -> None:
    assert not _run(_reviews(FakeApiServer(audiences=["vault"])).allows_token("good", "10.0.0.1", PUSH))
    assert not _run(_reviews(FakeApiServer(audiences=[])).allows_token("good", "10.0.0.1", PUSH))


def test_a_decision_is_remembered_for_a_minute() -> None:
    server, clock = FakeApiServer(), HandClock()
    reviews = _reviews(server, clock)

    async def scenario() -> None:
        assert await reviews.allows_token("good", "10.0.0.1", PUSH)
        server.may.clear()
        assert await reviews.allows_token("good", "10.0.0.1", PUSH)
        clock.now_s = 61
        assert not await reviews.allows_token("good", "10.0.0.1", PUSH)

    _run(scenario())
    assert len(server.seen) == 4  # a token and an access review, twice


def test_a_decision_is_that_of_one_user_and_one_object() -> None:
    server = FakeApiServer()
    reviews = _reviews(server)

    async def scenario() -> None:
        assert await reviews.allows_token("good", "10.0.0.1", PUSH)
        assert not await reviews.allows_token("good", "10.0.0.1", replace(PUSH, name="other"))
        assert not await reviews.allows_token("bad", "10.0.0.1", PUSH)
        assert not await reviews.allows_user(User("stranger"), PUSH)
        assert await reviews.allows_user(User("pusher"), PUSH)

    _run(scenario())


def token_of(subject: str, number: int = 0) -> str:
    """A token that claims to be of a subject, as the API server's tokens do."""
    payload = msgspec.json.encode({"sub": subject, "jti": str(number)})
    return f"e30.{urlsafe_b64encode(payload).decode().rstrip('=')}.signature"


class Flood:
    """Rightful pushes beside wrong tokens, on a clock of their own; the API server takes 5 ms for each review."""

    def __init__(self, rightful: Mapping[str, str]) -> None:
        """rightful: user of each token."""
        may = {(user, "team-a", "chat") for user in rightful.values()}
        self.clock, self.server = HandClock(), FakeApiServer(dict(rightful), may=may)
        self.reviews = AccessReviews(self._post, self.clock, audience="tonnage")
        self.answers: list[float] = []
        """Seconds until each rightful push was allowed."""

    async def _post(self, path: str, body: Body) -> bytes:
        await asyncio.sleep(0.005)
        return await self.server.post(path, body)

    async def _push(self, token: str, at_s: float, address: str) -> None:
        await asyncio.sleep(at_s)
        assert await self.reviews.allows_token(token, address, PUSH)
        self.answers.append(self.clock.now_s - at_s)

    async def _err(self, token: str, at_s: float, address: str) -> None:
        await asyncio.sleep(at_s)
        with suppress(TooBusyError):
            assert not await self.reviews.allows_token(token, address, PUSH)

    def passes(self, wrong: Sequence[tuple[str, str]], wrong_per_s: float, address: str) -> None:
        """Eight rightful pushes a second, and so many wrong ones. wrong: tokens and addresses, in order."""

        async def story() -> None:
            good = [self._push(token, n / 8, address) for n, token in enumerate(self.server.users)]
            bad = [self._err(token, n / wrong_per_s, at) for n, (token, at) in enumerate(wrong)]
            await asyncio.gather(*good, *bad)

        run_in_no_time(story(), self.clock)


@pytest.mark.parametrize("wrong_per_s", [30, 300])
@pytest.mark.parametrize("far", [False, True], ids=["of the same address", "of another address"])
def test_all_of_eighty_rightful_pushes_pass_beside_wrong_tokens(wrong_per_s: int, *, far: bool) -> None:
    """A budget for all let 4 of them through."""
    flood = Flood({token_of("pusher", n): "pusher" for n in range(80)})
    wrong = [(f"wrong-{n}", "10.0.0.9" if far else "10.0.0.1") for n in range(wrong_per_s * 10)]

    flood.passes(wrong, wrong_per_s, "10.0.0.1")

    assert len(flood.answers) == 80
    assert max(flood.answers) < 1.0


def test_tokens_that_claim_to_be_of_others_delay_no_other_address() -> None:
    flood = Flood({token_of("pusher", n): "pusher" for n in range(80)})
    wrong = [(token_of("pusher" if n % 2 else f"anybody-{n}", -n), "10.0.0.9") for n in range(3000)]

    flood.passes(wrong, 300, "10.0.0.1")

    assert len(flood.answers) == 80
    assert max(flood.answers) < 1.0


def test_wrong_tokens_of_one_address_cannot_load_the_api_server() -> None:
    flood = Flood({})

    flood.passes([(token_of(f"anybody-{n}"), "10.0.0.9") for n in range(3000)], 300, "10.0.0.1")

    assert len(flood.server.seen) <= (10 + WAIT_S) * AT_ONCE / LEAST_S + AT_ONCE
    assert len(flood.server.seen) > 10 * AT_ONCE / LEAST_S * 0.9


def test_a_wrong_token_is_reviewed_once_in_a_while() -> None:
    flood = Flood({})

    flood.passes([("wrong", "10.0.0.9")] * 300, 30, "10.0.0.1")

    assert len(flood.server.seen) <= 1 + 10 / NO_FOR_S


def test_an_api_server_that_does_not_answer_allows_nothing() -> None:
    with pytest.raises(TooBusyError, match="does not answer"):
        _run(_reviews(FakeApiServer(is_down=True)).allows_token("good", "10.0.0.1", PUSH))
