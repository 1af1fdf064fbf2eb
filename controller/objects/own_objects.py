"""Objects of Tonnage's kinds from the API server, validated by the same models as manifests."""

from collections.abc import Iterable
from typing import Any

import msgspec

from cluster.errors import Mistake
from controller.api.kind import Kind
from controller.api.pruning import known_part
from controller.kube.cache import Resource
from controller.kube.structs import OwnObject
from controller.objects.read import Read, checked, place_in_cluster


def own_resource(kind: Kind) -> Resource[OwnObject]:
    """Resource of one of Tonnage's kinds, for its cache."""
    return Resource(kind.part, kind.path, OwnObject, is_namespaced=kind.is_namespaced)


def own_from(name: str, kind: Kind, obj: OwnObject) -> Read[Any] | tuple[Mistake, ...]:
    """The object, or all its errors. The API server admits an invalid one only while its CRD is older than this code.

    name: `name`, or `namespace/name` where the kind has namespaces.
    """
    content = known_part(_content(kind, obj), kind.model)
    mistakes, made = [], None
    for each in checked(content, kind, lambda path: place_in_cluster(f"{kind.name}/{name}", path)):
        if isinstance(each, Mistake):
            mistakes.append(each)
        else:
            made = each
    return Read(made, kind) if made is not None and not mistakes else tuple(mistakes)


def _content(kind: Kind, obj: OwnObject) -> dict[str, Any]:
    meta = obj.metadata
    namespace = {"namespace": meta.namespace} if kind.is_namespaced else {}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": meta.name, **namespace},
        "spec": _plain(obj.spec),
        "status": _plain(obj.status),
    }


def _plain(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def by_object(mistakes: Iterable[Mistake]) -> dict[str, tuple[Mistake, ...]]:
    """Errors of a live cluster by object, `ModelService/chat/llama`."""
    found: dict[str, tuple[Mistake, ...]] = {}
    for mistake in mistakes:
        subject = mistake.place.partition(", ")[0]
        found[subject] = (*found.get(subject, ()), mistake)
    return found
