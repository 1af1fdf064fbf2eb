import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from controller.loops.autoscaler.endpoints import PATH, BadPushError, PushEndpoint, pushed
from controller.loops.autoscaler.http_server import Request, Response
from controller.loops.autoscaler.measured import Measured
from controller.loops.loop import LoopClocks
from controller.metrics.registry import Meter
from tests.builders.leading import Leading
from tests.clock import HandClock
from tests.unit.controller.loops.test_reviews import FakeApiServer, _reviews

NAME = "team-a/chat"
NOW_S = 1_000_000.0


@dataclass
class Stage:
    """A push endpoint with one policy, which lets requests and the queue be pushed."""

    server: FakeApiServer = field(default_factory=FakeApiServer)
    measured: Measured = field(default_factory=Measured)
    monotonic: HandClock = field(default_factory=HandClock)
    leads: bool = True
    policies: dict[str, list[str]] = field(default_factory=lambda: {NAME: ["requests", "queue"]})

    def __post_init__(self) -> None:
        reviews, me = _reviews(self.server, self.monotonic), cast("Any", self)
        self._endpoint = PushEndpoint(
            self.measured, reviews, me, Leading(leads=self.leads), LoopClocks(self.monotonic, HandClock(NOW_S)), Meter()
        )

    def pushed_roles(self, name: str) -> list[str] | None:
        return self.policies.get(name)

    def push(self, authorization: str = "Bearer good", **body: Any) -> Response:
        content = json.dumps({"policy": NAME, "requests": 12.5, **body}).encode()
        asked = Request("POST", PATH, {}, {"authorization": authorization}, content)
        return asyncio.run(self._endpoint.respond(asked))


def test_a_pushed_sample_is_measured_at_its_instant() -> None:
    stage = Stage()

    assert stage.push(at=NOW_S - 5, queue=3).status == 202
    newest = stage.measured.of(NAME).newest
    assert (newest["requests"].value, newest["requests"].at_s) == (12.5, NOW_S - 5)
    assert newest["queue"].value == 3


def test_a_pushed_histogram_is_the_joint_distribution() -> None:
    stage = Stage()
    histogram = {"inputTokens": [100, 200], "outputTokens": [50], "requests": [[30], [10]]}

    assert stage.push(histogram=histogram).status == 202
    lengths = stage.measured.of(NAME).lengths
    assert lengths is not None
    assert lengths.share.tolist() == [[0.75], [0.25]]


@pytest.mark.parametrize("authorization", ["", "Basic good", "Bearer", "Bearer  "])
def test_a_push_without_a_token_is_unauthorized(authorization: str) -> None:
    assert Stage().push(authorization).status == 401


@pytest.mark.parametrize(
    ("authorization", "policy"), [("Bearer bad", NAME), ("Bearer good", "team-b/chat"), ("Bearer good", "team-a/none")]
)
def test_nobody_without_the_permission_learns_whether_a_policy_exists(authorization: str, policy: str) -> None:
    stage = Stage()

    assert stage.push(authorization, policy=policy).status == 403
    assert not stage.measured.of(policy).newest


def test_a_policy_that_does_not_exist_takes_nothing() -> None:
    assert Stage(policies={}).push().status == 404


def test_a_role_with_another_source_cannot_be_pushed() -> None:
    stage = Stage()

    assert stage.push(outputTokens=4).status == 400
    assert not stage.measured.of(NAME).newest


def test_ten_pushes_at_once_and_then_one_a_second() -> None:
    stage = Stage()

    assert [stage.push().status for _ in range(11)] == [202] * 10 + [429]
    stage.monotonic.now_s += 1
    assert [stage.push().status for _ in range(2)] == [202, 429]


def test_a_replica_that_does_not_lead_sends_the_sender_elsewhere() -> None:
    reply = Stage(leads=False).push()

    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")


def test_a_push_is_not_taken_while_it_cannot_be_authorised() -> None:
    assert Stage(server=FakeApiServer(is_down=True)).push().status == 503


def _histogram(**changes: Any) -> dict[str, Any]:
    return {"histogram": {"inputTokens": [100, 200], "outputTokens": [50], "requests": [[30], [10]], **changes}}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"requests": -1},
        {"requests": 1e13},
        {"requests": "12"},
        {"requests": 1, "at": NOW_S + 60},
        {"requests": 1, "at": -1},
        {"requests": 1, "surprise": 2},
        {"requests": 1, "policy": "chat"},
        {"requests": 1, "policy": "a/b/c"},
        _histogram(inputTokens=[200, 100]),
        _histogram(inputTokens=[0, 100]),
        _histogram(inputTokens=[100, 100]),
        _histogram(inputTokens=list(range(1, 100))),
        _histogram(requests=[[30]]),
        _histogram(requests=[[30, 1], [10, 1]]),
        _histogram(requests=[[-30], [10]]),
    ],
)
def test_what_is_no_sample_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadPushError):
        pushed(json.dumps({"policy": NAME, **body}).encode(), NOW_S)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{", b'{"policy":"a/b","requests":NaN}', b'{"policy":"a/b","requests":1e999}'),
        *(b'{"policy":"a/\xff"}', b'{"other":' + b"[" * 100_000),
    ],
    ids=range(7),
)
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadPushError):
        pushed(body, NOW_S)


def test_a_clock_a_little_ahead_is_now() -> None:
    assert pushed(json.dumps({"policy": NAME, "load": 1, "at": NOW_S + 20}).encode(), NOW_S).at_s == NOW_S


def test_a_few_requests_are_no_distribution() -> None:
    body = json.dumps({"policy": NAME, **_histogram(requests=[[3], [1]])}).encode()

    assert pushed(body, NOW_S).lengths is None
