"""External metrics API (external.metrics.k8s.io): desired replicas of each ScalingPolicy, for an HPA or KEDA to act on.

Every replica serves it, from the statuses that the leader writes. Requests come from the API server, which shows its
own certificate and names the user in headers; they are authorised again by that user's permissions.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from cluster.clock import Clock
from cluster.errors import UNREADABLE
from controller.api.notation import rfc3339
from controller.loops.autoscaler.http_server import Request, Response
from controller.loops.autoscaler.policies import PolicyReader
from controller.loops.reviews import Access, AccessReviews, TooBusyError, User

Labels = Mapping[str, str]
Selector = Callable[[Labels], bool]
_KEY = r"([A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_VALUE = r"[-A-Za-z0-9_.]*"
_EQUALITY = re.compile(rf"\s*{_KEY}\s*(==|=|!=)\s*({_VALUE})\s*")
_SET = re.compile(rf"\s*{_KEY}\s+(in|notin)\s*\(\s*({_VALUE}(\s*,\s*{_VALUE})*)\s*\)\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*{_KEY}\s*")


class BadSelectorError(ValueError):
    """The text is no label selector."""


def selector_from(text: str) -> Selector:
    """Predicate of a selector; an empty one selects everything.

    Raises BadSelectorError. Source: Kubernetes documentation, "Labels and Selectors".
    """
    requirements: list[tuple[str, frozenset[str] | None, bool]] = []
    for part in re.split(r",(?![^(]*\))", text) if text.strip() else ():
        if found := _EQUALITY.fullmatch(part):
            requirements.append((found[1], frozenset({found[4]}), found[3] != "!="))
        elif found := _SET.fullmatch(part):
            values = frozenset(value.strip() for value in found[4].split(","))
            requirements.append((found[1], values, found[3] == "in"))
        elif found := _EXISTS.fullmatch(part):
            requirements.append((found[2], None, not found[1]))
        else:
            raise BadSelectorError(f"{part.strip()[:100]!r} is no requirement of a label selector")

    def selects(labels: Labels) -> bool:
        return all(
            (key in labels and (values is None or labels[key] in values)) is is_wanted
            for key, values, is_wanted in requirements
        )

    return selects


GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
ROOT = f"/apis/{GROUP}"
METRIC = "tonnage_desired_replicas"
"""Name of the external metric, and of the same gauge in /metrics."""


@dataclass(frozen=True, slots=True)
class Front:
    """How the API server identifies itself and its users, by the ConfigMap extension-apiserver-authentication."""

    authority: str
    """PEM of the CA that signs its client certificate; empty: the server has no aggregation."""
    names: tuple[str, ...] = ()
    """Allowed common names of that certificate; empty: any."""
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    uid_headers: tuple[str, ...] = ()


class FrontError(ValueError):
    """The ConfigMap is no description of a front."""


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


def front_in(config_map: bytes) -> Front:
    """Front of a ConfigMap. Raises FrontError.

    Source: Kubernetes documentation, "Configure the Aggregation Layer".
    """
    try:
        data = msgspec.json.decode(config_map, type=_ConfigMap).data
        front = Front(
            data.get("requestheader-client-ca-file", ""),
            _names(data, "requestheader-allowed-names"),
            _names(data, "requestheader-username-headers"),
            _names(data, "requestheader-group-headers"),
            _names(data, "requestheader-uid-headers"),
        )
    except UNREADABLE as error:
        raise FrontError(f"extension-apiserver-authentication: {error}") from error
    if not front.authority:
        raise FrontError("the API server has no aggregation layer (--requestheader-client-ca-file)")
    return front


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    return msgspec.json.decode(data.get(key, "[]"), type=tuple[str, ...])


class ExternalMetrics:
    """Responses of the API."""

    def __init__(self, policies: PolicyReader, reviews: AccessReviews, wall_clock: Clock) -> None:
        self._policies, self._reviews, self._wall_clock = policies, reviews, wall_clock
        self.front: Front | None = None
        """How the API server identifies itself; None while that is not known."""

    async def respond(self, request: Request) -> Response:
        """Response to a request of the API server."""
        front = self.front
        name = _header(request, front.user_headers) if front is not None else ""
        is_front = (
            front is not None
            and request.client
            and (not front.names or request.client.get("commonName") in front.names)
        )
        if front is None or not is_front or not name:
            refused = _status(401, "Unauthorized", "only the API server may ask, with its client certificate")
            return replace(refused, headers={"Connection": "close"})
        groups = tuple(filter(None, _header(request, front.group_headers).split("\n")))
        user = User(name, groups, _header(request, front.uid_headers))
        if request.method != "GET":
            return _status(405, "MethodNotAllowed", "metrics can only be read")
        if request.path.rstrip("/") in _DISCOVERY:
            return _json(200, _DISCOVERY[request.path.rstrip("/")])
        parts = request.path.removeprefix(f"{ROOT}/{VERSION}/namespaces/").split("/")
        if not request.path.startswith(f"{ROOT}/{VERSION}/namespaces/") or len(parts) != 2:
            return _status(404, "NotFound", f"there is no {request.path[:200]}")
        namespace, metric = parts
        try:
            if not await self._reviews.allows_user(user, Access("get", GROUP, metric, namespace, "")):
                words = f'user "{name}" cannot get {metric} in the namespace "{namespace}"'
                return _status(403, "Forbidden", words)
            if metric != METRIC:
                return _status(404, "NotFound", f"there is no metric {metric[:200]}; the only one is {METRIC}")
            selects = selector_from(request.query.get("labelSelector", ""))
        except TooBusyError as error:
            return _status(503, "ServiceUnavailable", str(error))
        except BadSelectorError as error:
            return _status(400, "BadRequest", str(error))
        desired = self._policies.desired(self._wall_clock())
        items = [
            {
                "metricName": METRIC,
                "metricLabels": dict(each.labels),
                "timestamp": rfc3339(each.at_s),
                "value": str(each.replicas),
            }
            for each in sorted(desired, key=lambda each: each.policy)
            if each.namespace == namespace and selects(each.labels)
        ]
        kind = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}"}
        return _json(200, {**kind, "metadata": {}, "items": items})


def _header(request: Request, names: Iterable[str]) -> str:
    """First of these headers that the request has; several of one name are joined by line breaks."""
    return next((request.headers[name.lower()] for name in names if name.lower() in request.headers), "")


_PREFERRED = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_GROUP = {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [_PREFERRED]}
_DISCOVERY: Mapping[str, Any] = {
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [{**_GROUP, "preferredVersion": _PREFERRED}]},
    ROOT: {**_GROUP, "preferredVersion": _PREFERRED},
    f"{ROOT}/{VERSION}": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            {
                "name": METRIC,
                "singularName": "",
                "namespaced": True,
                "kind": "ExternalMetricValueList",
                "verbs": ["get"],
            }
        ],
    },
}


def _json(status: int, document: Mapping[str, Any]) -> Response:
    return Response(status, json.dumps(document).encode())


def _status(status: int, reason: str, words: str) -> Response:
    kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return _json(status, {**kind, "reason": reason, "message": words, "code": status})
