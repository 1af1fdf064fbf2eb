"""API discovery: resources that a server serves, and the one that a word on a command line means."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.errors import ObservationError
from controller.api.labels import CATEGORY
from controller.kube.api_server import ApiServer
from controller.kube.request import NOT_INSTALLED

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
        name, _, group = word.lower().partition(".")
        for resource in self.resources:
            if word.lower() in _names(resource):
                return resource
        for resource in (*self.resources, *self.older):
            groups = (resource.group, f"{resource.version}.{resource.group}".rstrip("."))
            if group and name in _names(resource) and group in groups:
                return resource
        raise ObservationError(f'the server doesn\'t have a resource type "{word}"; {self._help(word)}')

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

    def _help(self, word: str) -> str:
        ours = self.in_category(CATEGORY)
        if not ours:
            return NOT_INSTALLED
        from cluster.errors import meant, nearest

        missing = f"; no response from {', '.join(self.stale)}" if self.stale else ""
        if near := nearest(word, [name for each in ours for name in (each.plural, *each.short_names)]):
            return f"did you mean {near}?{missing}"
        return meant("", [f"{each.plural} ({', '.join(each.short_names)})" for each in ours]) + missing


def _names(resource: ApiResource) -> tuple[str, ...]:
    return (resource.plural, resource.singular, resource.kind.lower(), *resource.short_names)


async def discover(connection: ApiServer) -> Discovered:
    """Resources of the server, read from its discovery endpoints. Raises KubeReadError, ObservationError."""
    core = await connection.read("/api", accept=AGGREGATED)
    return discovered(core, await connection.read("/apis", accept=AGGREGATED))


def discovered(*answers: bytes) -> Discovered:
    """Resources in these documents of aggregated discovery, together. Raises ObservationError."""
    try:
        groups = [group for body in answers for group in json.loads(body).get("items") or ()]
        each = [
            ApiResource(
                group=_name(group),
                version=version["version"],
                kind=(found.get("responseKind") or {}).get("kind", ""),
                plural=found["resource"],
                singular=found.get("singularResource", ""),
                short_names=tuple(found.get("shortNames") or ()),
                categories=tuple(found.get("categories") or ()),
                is_namespaced=found.get("scope", "Namespaced") == "Namespaced",
                verbs=frozenset(found.get("verbs") or ()),
            )
            for group in groups
            for version in group.get("versions") or ()
            for found in version.get("resources") or ()
        ]
        stale = tuple(
            _name(group)
            for group in groups
            if any(version.get("freshness") == "Stale" for version in group.get("versions") or ())
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        words = f"{type(error).__name__}: {error}"
        raise ObservationError(f"reading API discovery: {words}; the server is older than 1.30") from error
    resources: dict[tuple[str, str], ApiResource] = {}
    for resource in each:
        resources.setdefault((resource.group, resource.plural), resource)
    older = [resource for resource in each if resources[resource.group, resource.plural] is not resource]
    return Discovered(tuple(resources.values()), tuple(older), stale)


def _name(group: Mapping[str, Any]) -> str:
    return str((group.get("metadata") or {}).get("name", ""))
