"""Requests to an API server: verb and resource for the metrics, and the types of query and body."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Content type of a server-side apply. Its body is sent as JSON, which is valid YAML."""

Query = Mapping[str, str]
Body = Mapping[str, Any] | list[Any]


@dataclass(frozen=True, slots=True)
class Request:
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
