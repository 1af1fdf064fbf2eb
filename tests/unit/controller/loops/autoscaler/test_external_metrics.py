import asyncio
import json
from typing import Any

import msgspec
import pytest

from controller.kube.request import Body
from controller.loops.autoscaler.external_metrics import ExternalMetrics, Front, FrontError, front_in
from controller.loops.autoscaler.http_server import Request, Response
from controller.loops.autoscaler.policies import DesiredReplicas
from controller.loops.reviews import AccessReviews
from tests.clock import HandClock

FRONT = Front("pem", ("front-proxy-client",), ("X-Remote-User",), ("X-Remote-Group",))
PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/team-a/tonnage_desired_replicas"
HPA = {"x-remote-user": "system:serviceaccount:kube-system:horizontal-pod-autoscaler", "x-remote-group": "a\nb"}
DESIRED = (
    DesiredReplicas("team-a", "chat", "llama", 7, 1_800_000_000.5),
    DesiredReplicas("team-a", "search", "embed", 2, 1_800_000_000.5),
    DesiredReplicas("team-b", "chat", "llama", 9, 1_800_000_000.5),
)


class Policies:
    def desired(self, now_s: float) -> tuple[DesiredReplicas, ...]:
        return DESIRED


def _ask(path: str = PATH, *, allowed: bool = True, front: Front | None = FRONT, **changes: Any) -> Response:
    reviewed: list[Any] = []

    async def post(path: str, body: Body) -> bytes:
        reviewed.append(body)
        return msgspec.json.encode({"status": {"allowed": allowed}})

    given = {"query": {}, "headers": HPA, "client": {"commonName": "front-proxy-client"}, "method": "GET", **changes}
    policies: Any = Policies()
    api = ExternalMetrics(policies, AccessReviews(post, HandClock()), HandClock())
    api.front = front
    response = asyncio.run(api.respond(Request(path=path, **given)))
    if response.status == 200 and "namespaces" in path:
        spec = reviewed[0]["spec"]
        assert (spec["user"], spec["groups"]) == (HPA["x-remote-user"], ["a", "b"])
        assert spec["resourceAttributes"]["namespace"] == "team-a"
    return response


def _values(response: Response) -> dict[str, str]:
    items = json.loads(response.body)["items"]
    return {item["metricLabels"]["policy"]: item["value"] for item in items}


def test_an_hpa_reads_the_desired_replicas_of_its_namespace() -> None:
    response = _ask()

    assert _values(response) == {"chat": "7", "search": "2"}
    document = json.loads(response.body)
    assert document["kind"] == "ExternalMetricValueList"
    assert document["items"][0]["metricName"] == "tonnage_desired_replicas"
    assert document["items"][0]["timestamp"] == "2027-01-15T08:00:00Z"


def test_a_selector_picks_the_policy() -> None:
    assert _values(_ask(query={"labelSelector": "policy=chat"})) == {"chat": "7"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/apis", "APIGroupList"),
        ("/apis/external.metrics.k8s.io", "APIGroup"),
        ("/apis/external.metrics.k8s.io/v1beta1", "APIResourceList"),
    ],
)
def test_clients_discover_the_api(path: str, kind: str) -> None:
    response = _ask(path)

    assert response.status == 200
    assert json.loads(response.body)["kind"] == kind


@pytest.mark.parametrize(
    "changes",
    [
        {"client": {}},
        {"client": {"commonName": "somebody"}},
        {"headers": {}},
        {"front": None},
    ],
)
def test_only_the_api_server_is_answered(changes: dict[str, Any]) -> None:
    assert _ask(**changes).status == 401
    assert _ask("/apis", **changes).status == 401


def test_any_certificate_of_the_front_will_do_where_it_names_none() -> None:
    assert _ask(front=Front("pem"), client={"commonName": "somebody"}).status == 200


def test_a_user_without_the_permission_sees_nothing() -> None:
    assert _ask(allowed=False).status == 403


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"path": PATH.replace("tonnage_desired_replicas", "queue_length")}, 404),
        ({"path": PATH + "/x"}, 404),
        ({"path": "/apis/apps/v1"}, 404),
        ({"method": "DELETE"}, 405),
        ({"query": {"labelSelector": "=,"}}, 400),
    ],
)
def test_what_does_not_exist_is_refused(changes: dict[str, Any], status: int) -> None:
    response = _ask(**changes)

    assert response.status == status
    assert json.loads(response.body)["kind"] == "Status"


def test_the_front_is_read_from_the_clusters_config_map() -> None:
    data = {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }

    front = front_in(json.dumps({"kind": "ConfigMap", "data": data}).encode())

    assert front == Front("PEM", ("front-proxy-client",), ("X-Remote-User",), ("X-Remote-Group",), ())


@pytest.mark.parametrize(
    "body", [b"{}", b'{"data":{"requestheader-client-ca-file":"PEM","requestheader-allowed-names":"x"}}']
)
def test_a_cluster_without_aggregation_has_no_front(body: bytes) -> None:
    with pytest.raises(FrontError):
        front_in(body)
