"""Both endpoints over real sockets, with a cluster that answers from memory."""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from controller.kube.connection import LoopThread
from controller.kube.request import Body, Query
from controller.loops.autoscaler.endpoints import Endpoints, PushEndpoint
from controller.loops.autoscaler.external_metrics import ExternalMetrics
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.policies import DesiredReplicas
from controller.loops.loop import LoopClocks
from controller.loops.reviews import AccessReviews, Post
from controller.loops.server_tls import ServerTls
from controller.metrics.registry import Meter
from tests.builders.certificates import Authority
from tests.builders.leading import Leading
from tests.until import until

METRICS = "/apis/external.metrics.k8s.io/v1beta1/namespaces/team-a/tonnage_desired_replicas"


@dataclass
class FakeCluster:
    """Authenticates every token as `pusher`, which may do everything."""

    config_map: bytes = b"{}"
    written: list[str] = field(default_factory=list)

    async def read(self, path: str, query: Query | None = None) -> bytes:
        return self.config_map

    async def write(self, method: str, path: str, body: Body | None = None) -> bytes:
        self.written.append(path)
        status = {"authenticated": True, "user": {"username": "pusher"}, "audiences": ["tonnage"], "allowed": True}
        return json.dumps({"status": status}).encode()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def _endpoints(cluster: Any, stack: ExitStack) -> Endpoints:
    kube = LoopThread("kubernetes")
    stack.callback(kube.close)
    return Endpoints(cluster, kube, stack)


class Policies:
    """One policy, whose requests may be pushed, with 7 recommended replicas."""

    def pushed_roles(self, name: str) -> list[str]:
        return ["requests"]

    def desired(self, now_s: float) -> list[DesiredReplicas]:
        return [DesiredReplicas("team-a", "chat", "llama", 7, 0.0)]


def cluster_post(endpoints: Endpoints) -> Post:
    """As `LoopContext.post`."""

    async def post(path: str, body: Body) -> bytes:
        return await endpoints._kube.run_from_another(endpoints._connection.write("POST", path, body))

    return post


def _push(endpoints: Endpoints, leader: Leading, measured: Measured) -> PushEndpoint:
    policies: Any = Policies()
    clocks = LoopClocks(time.monotonic, time.time)
    reviews = AccessReviews(cluster_post(endpoints), time.monotonic, "tonnage")
    return PushEndpoint(measured, reviews, policies, leader, clocks, Meter())


def _post(port: int, body: bytes, path: str = "/v1/demand") -> tuple[int, dict[str, str]]:
    headers = {"Authorization": "Bearer token"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the test's own server
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers)


def test_a_sample_is_pushed_over_http(stack: ExitStack) -> None:
    cluster, measured = FakeCluster(), Measured()
    endpoints = _endpoints(cluster, stack)
    leader = Leading()
    push = _push(endpoints, leader, measured)
    port = endpoints.serve_push(push, ("127.0.0.1", 0, "autoscaler.push.port"))
    body = json.dumps({"policy": "team-a/chat", "requests": 3}).encode()

    assert _post(port, body)[0] == 202
    assert measured.of("team-a/chat").newest["requests"].value == 3
    assert len(cluster.written) == 2
    assert _post(port, body, "/v2/demand")[0] == 404
    assert _post(port, b" " * 70_000)[0] == 413
    leader.leads = False
    status, headers = _post(port, body)
    assert (status, headers["Retry-After"], headers["Connection"]) == (503, "1", "close")


def test_the_external_metrics_api_answers_the_front_alone(stack: ExitStack, tmp_path: Path) -> None:
    front, own = Authority(tmp_path / "front"), Authority(tmp_path / "own")
    client, serving = front.vouches_for("front-proxy-client"), own.vouches_for("localhost")
    stranger = own.vouches_for("stranger")
    data = {
        "requestheader-client-ca-file": front.certificate.read_text(encoding="utf-8"),
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
    }
    endpoints = _endpoints(FakeCluster(json.dumps({"data": data}).encode()), stack)
    tls = ServerTls(str(serving.certificate), str(serving.key), time.monotonic, "autoscaler.external_metrics.tls")
    policies: Any = Policies()
    port = endpoints.serve_external_metrics(
        ExternalMetrics(policies, AccessReviews(cluster_post(endpoints), time.monotonic), time.time),
        ("127.0.0.1", 0, "autoscaler.external_metrics.port"),
        tls,
    )

    def ask(certificate: Path | None, key: Path | None, path: str = METRICS) -> bytes:
        context = ssl.create_default_context(cafile=str(own.certificate))
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        request = urllib.request.Request(f"https://localhost:{port}{path}", headers={"X-Remote-User": "hpa"})
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:  # noqa: S310 - likewise
                read: bytes = answer.read()
                return read
        except (urllib.error.URLError, OSError):
            return b""

    found = until(lambda: ask(client.certificate, client.key), "the front is known")
    assert json.loads(found)["items"][0]["value"] == "7"
    assert ask(stranger.certificate, stranger.key) == b""
    assert ask(None, None) == b""


def test_a_port_that_is_taken_is_a_mistake_of_the_settings(stack: ExitStack) -> None:
    endpoints = _endpoints(FakeCluster(), stack)
    push = _push(endpoints, Leading(), Measured())
    port = endpoints.serve_push(push, ("127.0.0.1", 0, "autoscaler.push.port"))

    with pytest.raises(ConfigError, match=r"autoscaler\.push\.port"):
        endpoints.serve_push(push, ("127.0.0.1", port, "autoscaler.push.port"))


def test_a_certificate_that_cannot_be_read_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"autoscaler\.external_metrics\.tls"):
        ServerTls(str(tmp_path / "crt"), str(tmp_path / "key"), time.monotonic, "autoscaler.external_metrics.tls")
