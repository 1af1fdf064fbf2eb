"""Objects that a command names: manifests of any kind, and kinds and names read as kubectl reads them."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cli.inputs.cluster import LiveCluster
from cluster.errors import ConfigError, Mistake, TonnageError

if TYPE_CHECKING:
    from controller.kube.discovery import ApiResource
    from controller.objects.documents import Document

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as its manifest states it."""

    content: Object
    place: str
    """File, document and line, for error messages."""

    @property
    def api_version(self) -> str:
        return str(self.content["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.content["kind"])

    @property
    def name(self) -> str:
        return str(self.content["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        found = self.content["metadata"].get("namespace")
        return None if found is None else str(found)


def manifests_in(files: Sequence[str]) -> tuple[Manifest, ...]:
    """Objects of files and folders, in their order. Raises ConfigError with every error in all of them."""
    from controller.objects.documents import read_documents

    documents, mistakes, _ = read_documents(files, sys.stdin)
    made: list[Manifest] = []
    for document in documents:
        wrong = list(_manifest_mistakes(document))
        mistakes += wrong
        if not wrong:
            made.append(Manifest(dict(document.content), document.place()))
    if not documents and not mistakes:
        mistakes.append(Mistake(" ".join(files), "contains no objects", "name files or folders with manifests"))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return tuple(made)


def _manifest_mistakes(document: "Document") -> Sequence[Mistake]:
    from controller.api.kinds import OWN_KINDS, kind_of
    from controller.api.validation import pruned
    from controller.objects.read import checked

    content = document.content
    if not isinstance(content, Mapping):
        return (Mistake(document.place(), "is not an object", "write apiVersion, kind, metadata"),)
    missing = [field for field in ("apiVersion", "kind") if not isinstance(content.get(field), str)]
    if missing:
        return tuple(Mistake(document.place(path=(field,)), "is missing") for field in missing)
    metadata = content.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        return (Mistake(document.place(path=("metadata", "name")), "is missing", "give the object a name"),)
    kind = kind_of(content["apiVersion"], content["kind"])
    if kind not in OWN_KINDS or kind is None:
        return ()
    subject = f"{kind.name}/{metadata['name']}"
    _, mistakes = checked(pruned(content, kind.model), kind, lambda path: document.place(subject, path))
    return tuple(mistakes)


@dataclass(frozen=True, slots=True)
class ResourceArgument:
    """One resource type, and the names of its requested objects."""

    resource: "ApiResource"
    names: tuple[str, ...] = ()
    """Requested names; empty: all objects."""


def parse_resource_arguments(cluster: LiveCluster, what: tuple[str, ...]) -> list[ResourceArgument]:
    """Resources and names of `KIND NAME...`, `KIND,KIND` or `KIND/NAME...`. Raises ConfigError."""
    if any("/" in word for word in what):
        wrong = [word for word in what if word.count("/") != 1 or not all(word.split("/"))]
        if wrong:
            problem = "mixes KIND/NAME with a bare name"
            raise ConfigError(Mistake(wrong[0], problem, "write KIND NAME NAME, or KIND/NAME KIND/NAME"))
        named: dict[str, ResourceArgument] = {}
        for kind, name in (word.split("/") for word in what):
            resource = cluster.discovered.named(kind)
            before = named.get(resource.full_name, ResourceArgument(resource))
            named[resource.full_name] = replace(before, names=(*before.names, name))
        return list(named.values())
    kinds, names = what[0].split(","), what[1:]
    resources: dict[str, ApiResource] = {}
    for kind in filter(None, kinds):
        for resource in category_of(cluster, kind) or (cluster.discovered.named(kind),):
            resources.setdefault(resource.full_name, resource)
    if not resources:
        raise ConfigError(Mistake(what[0], "has no kind", "write modelservices, gangs, nodes, ..."))
    if names and category_of(cluster, what[0]):
        raise ConfigError(Mistake(what[0], "is a category of kinds, and names need one kind", "name one kind"))
    return [ResourceArgument(resource, names) for resource in resources.values()]


def category_of(cluster: LiveCluster, word: str) -> "tuple[ApiResource, ...]":
    """Resources of a category; empty for any other word.

    Here `all` means Tonnage's kinds, unlike kubectl's `all` (pods, services and more).
    """
    from controller.api.labels import CATEGORY

    return cluster.discovered.in_category(CATEGORY if word == "all" else word)


def name_of(obj: Object) -> str:
    """Name with kind and group, such as `modelservice.tonnage.dev/chat`."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    kind = str(obj.get("kind", "")).lower()
    return f"{kind}.{group}/{obj['metadata']['name']}" if group else f"{kind}/{obj['metadata']['name']}"


async def resource_of(cluster: LiveCluster, manifest: Manifest) -> "tuple[LiveCluster, ApiResource]":
    """Resource of a manifest, and the cluster with the discovery used.

    Discovery is repeated for an unknown kind, because an earlier manifest may have defined it.

    Raises TonnageError when the server has no such kind.
    """
    from controller.kube.discovery import discover

    resource = cluster.discovered.of_kind(manifest.api_version, manifest.kind)
    if resource is None:
        cluster = replace(cluster, discovered=await discover(cluster.connection))
        resource = cluster.discovered.of_kind(manifest.api_version, manifest.kind)
    if resource is None:
        words = f'{manifest.place}: no matches for kind "{manifest.kind}" in version "{manifest.api_version}"'
        raise TonnageError(f"{words}; {_remedy(manifest)}")
    return cluster, resource


def _remedy(manifest: Manifest) -> str:
    """What helps where the server has no such kind: its definition, or the right name of one of Tonnage's kinds."""
    from cluster.errors import meant
    from controller.api.kinds import OWN_KINDS
    from controller.api.labels import API_VERSION, GROUP

    if manifest.api_version.partition("/")[0] != GROUP:
        return "install its CustomResourceDefinition first"
    if manifest.api_version != API_VERSION:
        return f"write {API_VERSION}"
    names = {kind.name for kind in OWN_KINDS}
    return "install Tonnage's kinds first: tonnage crds" if manifest.kind in names else meant(manifest.kind, names)
