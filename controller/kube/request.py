"""Requests to an API server as they are named and counted, and the types of what they carry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Server-side apply. Its body is sent as JSON, which is YAML."""

Query = Mapping[str, str]
Body = Mapping[str, Any] | list[Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One request that was made, for whoever counts them. Its labels have few values."""

    verb: str
    """As RBAC speaks of it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`."""
    resource: str
    """`pods`, `pods/binding`, `leases`."""
    status: int
    """HTTP status, 0 when no answer came."""
    for_s: float
    """Until the head of the answer was there."""


def resource_of(path: str) -> str:
    """`pods/binding` of `/api/v1/namespaces/ns/pods/p/binding`; of other paths, their first part."""
    rest = _resource_parts(path)
    return "/".join((*rest[:1], *rest[2:3])) or path.strip("/").partition("/")[0]


def _resource_parts(path: str) -> list[str]:
    """Resource, name and subresource of a path, as far as it has them."""
    first, *rest = path.strip("/").split("/")
    rest = rest[{"api": 1, "apis": 2}.get(first, len(rest)) :]
    return rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest


def verb_of(method: str, path: str, query: Query) -> str:
    """As RBAC speaks of it."""
    if method != "GET":
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    if query.get("watch") == "true":
        return "watch"
    return "list" if len(_resource_parts(path)) == 1 else "get"
