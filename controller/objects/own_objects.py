"""Objects of Tonnage's kinds from the API server, validated by the same models as manifests."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from cluster.errors import Mistake
from controller.api.kind import Kind
from controller.api.structs import DEEPEST, OwnObject, nests_too_deep, plain
from controller.api.validation import known_part
from controller.kube.cache import Resource
from controller.objects.read import Read, checked, place_in_cluster, unreadable


def own_resource(kind: Kind) -> Resource[OwnObject]:
    """Resource of one of Tonnage's kinds, for its cache."""
    return Resource(kind.part, kind.path, OwnObject, is_namespaced=kind.is_namespaced)


def own_from(name: str, kind: Kind, obj: OwnObject) -> Read[Any] | tuple[Mistake, ...]:
    """The object, or all its errors. The API server admits an invalid one only while its CRD is older than this code.

    name: `name`, or `namespace/name` where the kind has namespaces.
    """
    place = partial(place_in_cluster, f"{kind.name}/{name}")
    try:
        meta = obj.metadata
        content = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": meta.name, **({"namespace": meta.namespace} if kind.is_namespaced else {})},
            "spec": plain(obj.spec),
            "status": plain(obj.status),
        }
        if nests_too_deep(content):
            return (Mistake(place(("spec",)), f"has more than {DEEPEST} levels", "nest less deeply"),)
        made, mistakes = checked(known_part(content, kind.model), kind, place)
    except Exception as error:  # noqa: BLE001 - one object must not stop the others
        return (unreadable(place(()), error),)
    return tuple(mistakes) or Read(made, kind)


def by_object(mistakes: Iterable[Mistake]) -> dict[str, tuple[Mistake, ...]]:
    """Errors of a live cluster by object, `ModelService/chat/llama`."""
    found: dict[str, tuple[Mistake, ...]] = {}
    for mistake in mistakes:
        subject = mistake.place.partition(", ")[0]
        found[subject] = (*found.get(subject, ()), mistake)
    return found
