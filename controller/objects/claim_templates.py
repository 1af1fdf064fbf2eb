"""Volume claims that Kubernetes makes for pods in files: of a StatefulSet's templates, and of ephemeral volumes."""

from collections.abc import Iterator, Mapping
from typing import Any

from controller.objects.documents import at

Map = Mapping[str, Any]


def with_templates(pod: Map, owner: Map) -> Map:
    """The pod with the volumes that a StatefulSet gives it, in place of its own of the same name."""
    names = [name for name, _ in _templates(owner)]
    spec = pod.get("spec")
    if not names or not isinstance(spec, Mapping):
        return pod
    own = [each for each in _volumes(pod) if each.get("name") not in names]
    made = [{"name": n, "persistentVolumeClaim": {"claimName": f"{n}-{pod['metadata']['name']}"}} for n in names]
    return {**pod, "spec": {**spec, "volumes": [*own, *made]}}


def claims_of(pod: Map, owner: Map | None = None) -> Iterator[dict[str, Any]]:
    """Claims that are made for a pod. owner: the object of which the pod is."""
    name = pod["metadata"]["name"]
    for of, content in _templates(owner or {}):
        yield _claim(f"{of}-{name}", pod, content)
    for volume in _volumes(pod):
        template = at(volume, "ephemeral", "volumeClaimTemplate")
        if isinstance(template, Mapping):
            own = [{"kind": "Pod", "name": name, "controller": True}]
            yield _claim(f"{name}-{volume.get('name')}", pod, template, ownerReferences=own)


def _claim(name: str, pod: Map, template: Map, **metadata: object) -> dict[str, Any]:
    annotations = at(template, "metadata", "annotations") or {}
    namespace = pod["metadata"].get("namespace", "default")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations, **metadata},
        "spec": template.get("spec", {}),
    }


def _templates(owner: Map) -> Iterator[tuple[str, Map]]:
    """Names and contents of a StatefulSet's templates."""
    written = at(owner, "spec", "volumeClaimTemplates") if owner.get("kind") == "StatefulSet" else None
    for each in written if isinstance(written, list) else ():
        if name := at(each, "metadata", "name"):
            yield str(name), each


def _volumes(pod: Map) -> list[Map]:
    written = at(pod, "spec", "volumes")
    return [each for each in written if isinstance(each, Mapping)] if isinstance(written, list) else []
