"""Requests to an API server: verb and resource for the metrics, and the types of query and body."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cluster.errors import ActionError, ObservationError
from controller.api.labels import GROUP

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Content type of a server-side apply. Its body is sent as JSON, which is valid YAML."""

Query = Mapping[str, str]
Body = Mapping[str, Any] | list[Any]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """Completed request, as the metrics count it; its label values are few."""

    verb: str
    """RBAC verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`."""
    resource: str
    """Resource with its subresource: `pods`, `pods/binding`, `leases`."""
    status: int
    """HTTP status; 0 without a response."""
    for_s: float
    """Time until the response headers arrived, seconds."""


def resource_of(path: str) -> str:
    """Resource of a path: `pods/binding` for `/api/v1/namespaces/ns/pods/p/binding`; else the path's first part."""
    rest = _resource_parts(path)
    return "/".join((*rest[:1], *rest[2:3])) or path.strip("/").partition("/")[0]


def _resource_parts(path: str) -> list[str]:
    """Resource, name and subresource of a path, as far as present."""
    first, *rest = path.strip("/").split("/")
    rest = rest[{"api": 1, "apis": 2}.get(first, len(rest)) :]
    return rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest


def verb_of(method: str, path: str, query: Query) -> str:
    """RBAC verb of a request."""
    if method != "GET":
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    if query.get("watch") == "true":
        return "watch"
    return "list" if len(_resource_parts(path)) == 1 else "get"


Sleep = Callable[[float], Awaitable[None]]
"""Waits for a number of seconds: `asyncio.sleep`, which tests replace."""

NOT_INSTALLED = (
    "Tonnage's kinds are not installed: tonnage crds | kubectl apply --server-side -f -, or install the chart"
)
NOT_FOUND, GONE, GATEWAY_TIMEOUT = 404, 410, 504
ABSENT = (403, NOT_FOUND)
"""HTTP statuses of a kind that may not be listed, or is not served."""
_NOT_SERVED = b"404 page not found"
"""Response body for a path that belongs to no API group or resource; a missing object gets a Status instead."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a request failed."""

    status: int
    """HTTP status; 0 without a response."""
    reason: str
    """Reason code of the API server: `NotFound`, `Expired`; `NoAnswer` without a response, `NoConnection` unsent."""
    words: str
    retry_after_s: float | None = None
    """Time after which the server accepts a retry, seconds."""
    causes: tuple["RefusalCause", ...] = ()
    """Invalid fields, where the server reports them."""


@dataclass(frozen=True, slots=True)
class RefusalCause:
    """One cause of a refusal, as in meta/v1 StatusCause."""

    reason: str = ""
    message: str = ""
    field: str = ""


class KubeReadError(ObservationError):
    """A read failed."""

    def __init__(self, doing: str, refusal: Refusal) -> None:
        super().__init__(f"{doing}: {refusal.words}")
        self.refusal = refusal


class KubeWriteError(ActionError):
    """A write failed. With `NoAnswer` it is unknown whether the write took effect; the watch will show."""

    def __init__(self, doing: str, refusal: Refusal) -> None:
        super().__init__(f"{doing}: {refusal.words}")
        self.refusal = refusal


def is_version_lost(refusal: Refusal) -> bool:
    """Whether the server no longer has that resourceVersion, or does not have it yet."""
    return refusal.status == GONE or refusal.reason in ("Expired", "Gone") or is_behind(refusal)


def is_behind(refusal: Refusal) -> bool:
    """Whether the server does not have that resourceVersion yet: it was restored from a backup."""
    return refusal.status == GATEWAY_TIMEOUT and "resource version" in refusal.words.lower()


def refusal_in(status: Mapping[str, Any], code: int) -> Refusal:
    """Refusal in a meta/v1 Status, with which the API server reports an error, as a response or inside a watch.

    code: HTTP status of the response, where the Status names none. Raises ValueError, TypeError or AttributeError for
    any other content.
    """
    details = status.get("details") or {}
    wait_s = details.get("retryAfterSeconds")
    causes = tuple(
        RefusalCause(*(str(each.get(name) or "") for name in ("reason", "message", "field")))
        for each in details.get("causes") or ()
    )
    return Refusal(
        int(status.get("code") or code),
        str(status.get("reason") or "Unknown"),
        str(status.get("message") or f"status {code}"),
        None if wait_s is None else float(wait_s),
        causes,
    )


def refusal_of(status: int, path: str, body: bytes, retry_after: str = "") -> Refusal:
    """Refusal in an unsuccessful response: a Status, or plain text of a proxy, an authoriser or the server.

    retry_after: Retry-After header, empty without one; it counts where the Status gives no time.
    """
    try:
        refusal = refusal_in(json.loads(body), status)
    except (ValueError, TypeError, AttributeError):  # no Status
        if status == NOT_FOUND and body.strip() == _NOT_SERVED:
            remedy = f"; {NOT_INSTALLED}" if f"/apis/{GROUP}/" in path else ""
            refusal = Refusal(status, "NotFound", f"the server serves no {path}{remedy}")
        else:
            text = body[:200].decode(errors="replace").strip()
            refusal = Refusal(status, "Unknown", f"status {status}: {text}")
    if refusal.retry_after_s is None and retry_after.isascii() and retry_after.isdigit():
        return replace(refusal, retry_after_s=float(retry_after))
    return refusal


def warning_text(header: str) -> str:
    """Text of a Warning header, `299 - "use v2"`. Source: RFC 7234, section 5.5."""
    _, quote, rest = header.partition('"')
    text, end, _ = rest.rpartition('"')
    return text.replace('\\"', '"') if quote and end else header


def asked_of(verb: str, group: str, resource: str, namespace: str, name: str) -> dict[str, str]:
    """Attributes of an access review. resource: plural, with the subresource if any."""
    plural, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    return {**asked, "namespace": namespace, "name": name}
