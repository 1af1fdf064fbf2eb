"""Answers of an API server as bytes: lists and watch events of small objects."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from controller.api.kinds import KINDS
from controller.kube.request import Refusal

Object = dict[str, Any]
CLUSTER_WIDE = {
    *(kind.name for kind in KINDS if not kind.is_namespaced), "PersistentVolume", "StorageClass", "CSINode"
}  # fmt: skip

EXPIRED = Refusal(410, "Expired", "too old resource version: 5 (9)")
CUT = Refusal(0, "NoAnswer", "no answer: ClientPayloadError")


def listed(objects: Iterable[Object] = (), version: int = 1, continue_: str = "") -> bytes:
    return json.dumps(
        {"metadata": {"resourceVersion": str(version), "continue": continue_}, "items": list(objects)}
    ).encode()


def event(kind: str, obj: Object, version: int) -> bytes:
    return json.dumps({"type": kind, "object": at(obj, version)}).encode()


def added(obj: Object, version: int) -> bytes:
    return event("ADDED", obj, version)


def modified(obj: Object, version: int) -> bytes:
    return event("MODIFIED", obj, version)


def deleted(obj: Object, version: int) -> bytes:
    return event("DELETED", obj, version)


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {}}, version)


def error(code: int, reason: str, message: str) -> bytes:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return json.dumps({"type": "ERROR", "object": status}).encode()


def at(obj: Object, version: int) -> Object:
    """The object as it is at that version."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def as_stored(obj: Mapping[str, Any], version: int = 1) -> Object:
    """A manifest as an API server keeps it: quantities as text, defaults and its own fields filled in."""
    made: Object = json.loads(json.dumps(obj))
    metadata = {"uid": f"uid-{obj['metadata']['name']}", "generation": 1, "managedFields": [{"manager": "kubectl"}]}
    made["metadata"] = {**metadata, **made["metadata"], "resourceVersion": str(version)}
    if made["kind"] not in CLUSTER_WIDE:
        made["metadata"].setdefault("namespace", "default")
    return _quantities_as_text(made) if made["apiVersion"] == "v1" else made


def _quantities_as_text(value: Any, *, here: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            key: _quantities_as_text(
                inner, here=here or key in ("requests", "limits", "overhead", "allocatable", "capacity")
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_quantities_as_text(inner, here=here) for inner in value]
    return str(value) if here else value
