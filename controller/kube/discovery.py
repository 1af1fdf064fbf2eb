"""API discovery: resources that a server serves, and the one that a word on a command line means."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from cluster.errors import ObservationError
from controller.api.labels import CATEGORY
from controller.api.suggestions import meant
from controller.kube.connection import Connection
from controller.kube.errors import NOT_INSTALLED
from controller.kube.structs import Slim

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""Media type of all groups in one response. Stable since Kubernetes 1.30, the oldest that the chart allows."""


@dataclass(frozen=True, slots=True)
class ApiResource:
    """Resource in the preferred version of its group."""

    group: str
    """API group; empty for core/v1."""
    version: str
    kind: str
    plural: str
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    is_namespaced: bool = True
    verbs: frozenset[str] = frozenset()

    @property
    def full_kind(self) -> str:
        """Kind and group as kubectl prints them before a name: `modelservice.tonnage.dev`, `pod`."""
        return f"{self.kind.lower()}.{self.group}" if self.group else self.kind.lower()

    @property
    def full_name(self) -> str:
        """Plural and group, as in the API server's messages: `modelservices.tonnage.dev`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """Path of the collection in a namespace, or in all namespaces when none is given."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{namespace}" if namespace and self.is_namespaced else ""
        return f"{root}{within}/{self.plural}"

    def path(self, namespace: str, name: str) -> str:
        return f"{self.collection(namespace)}/{name}"


@dataclass(frozen=True, slots=True)
class Discovered:
    """Resources of a server: the core group first, then in the server's order of preference."""

    resources: tuple[ApiResource, ...]
    older: tuple[ApiResource, ...] = ()
    """The same resources in versions that are served but not preferred."""
    stale: tuple[str, ...] = field(default=())
    """Groups whose API server did not respond, so that their resources may be missing."""

    def named(self, word: str) -> ApiResource:
        """Resource by plural, singular, short name or kind, optionally followed by `.group` or `.version.group`.

        Raises ObservationError when no resource has that name.
        """
        found = next(self._candidates(word.lower()), None)
        if found is None:
            raise ObservationError(f'the server doesn\'t have a resource type "{word}"; {self._help(word)}')
        return found

    def of_kind(self, api_version: str, kind: str) -> ApiResource | None:
        """Resource of the apiVersion and kind at the top of a manifest."""
        each = (*self.resources, *self.older)
        return next((r for r in each if (r.api_version, r.kind) == (api_version, kind)), None)

    def in_category(self, category: str) -> tuple[ApiResource, ...]:
        """Resources of a category that can be listed, in the order of the server."""
        return tuple(r for r in self.resources if category in r.categories and "list" in r.verbs)

    def words(self) -> Iterator[str]:
        """Plurals of all resources that can be listed, for shell completion."""
        return (r.plural for r in self.resources if "list" in r.verbs)

    def _candidates(self, word: str) -> Iterator[ApiResource]:
        name, _, group = word.partition(".")
        for resource in self.resources:
            if word in _names(resource):
                yield resource
        for resource in (*self.resources, *self.older):
            groups = (resource.group, f"{resource.version}.{resource.group}".rstrip("."))
            if group and name in _names(resource) and group in groups:
                yield resource

    def _help(self, word: str) -> str:
        ours = [r.plural for r in self.in_category(CATEGORY)]
        if not ours:
            return NOT_INSTALLED
        missing = f"; no response from {', '.join(self.stale)}" if self.stale else ""
        return meant(word, ours) + missing


def _names(resource: ApiResource) -> tuple[str, ...]:
    return (resource.plural, resource.singular, resource.kind.lower(), *resource.short_names)


class _Scope(Slim, frozen=True):
    kind: str = ""


class _Resource(Slim, frozen=True):
    resource: str
    response_kind: _Scope = _Scope()
    scope: str = "Namespaced"
    singular_resource: str = ""
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class _Version(Slim, frozen=True):
    version: str
    resources: tuple[_Resource, ...] = ()
    freshness: str = "Current"


class _GroupMeta(Slim, frozen=True):
    name: str = ""


class _Group(Slim, frozen=True):
    metadata: _GroupMeta = _GroupMeta()
    versions: tuple[_Version, ...] = ()


class _Groups(Slim, frozen=True):
    items: tuple[_Group, ...] = ()


async def discover(connection: Connection) -> Discovered:
    """Resources of the server, read from its discovery endpoints. Raises KubeReadError, ObservationError."""
    core, others = await asyncio.gather(
        connection.read("/api", accept=AGGREGATED), connection.read("/apis", accept=AGGREGATED)
    )
    return discovered(core, others)


def discovered(*answers: bytes) -> Discovered:
    """Resources in these documents of aggregated discovery, together. Raises ObservationError."""
    try:
        groups = [group for body in answers for group in msgspec.json.decode(body, type=_Groups).items]
    except msgspec.MsgspecError as error:
        raise ObservationError(f"reading API discovery: {error}; the server is older than 1.30") from error
    resources: dict[tuple[str, str], ApiResource] = {}
    each = tuple(_resources(groups))
    for resource in each:
        resources.setdefault((resource.group, resource.plural), resource)
    older = [resource for resource in each if resources[resource.group, resource.plural] is not resource]
    stale = tuple(g.metadata.name for g in groups if any(v.freshness == "Stale" for v in g.versions))
    return Discovered(tuple(resources.values()), tuple(older), stale)


def _resources(groups: Iterable[_Group]) -> Iterator[ApiResource]:
    for group in groups:
        for version in group.versions:
            for each in version.resources:
                yield ApiResource(
                    group=group.metadata.name,
                    version=version.version,
                    kind=each.response_kind.kind,
                    plural=each.resource,
                    singular=each.singular_resource,
                    short_names=each.short_names,
                    categories=each.categories,
                    is_namespaced=each.scope == "Namespaced",
                    verbs=frozenset(each.verbs),
                )
