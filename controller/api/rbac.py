"""What the operator must be allowed to do, by feature: what the chart's roles grant, and `tonnage doctor` asks for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.api.labels import API_VERSION

OURS = API_VERSION.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Permission:
    """One verb on one resource."""

    verb: str
    group: str
    """Empty for core/v1."""
    resource: str
    """With its subresource: `pods/binding`."""
    namespace: str = ""
    """Empty: in all of them."""
    name: str = ""

    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        plural, slash, sub = self.resource.partition("/")
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {plural}{group}{slash}{sub}{where}"


@dataclass(frozen=True, slots=True)
class Grant:
    """Several verbs on several resources of one group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]

    def permissions(self) -> Iterator[Permission]:
        return (Permission(verb, self.group, resource) for resource in self.resources for verb in self.verbs)


_SEE = ("list", "watch")
PLACING: Mapping[str, tuple[Grant, ...]] = {
    "gate": (Grant("", ("pods",), ("patch",)),),
    "bind": (Grant("", ("pods/binding",), ("create",)),),
    "dra": (
        Grant("resource.k8s.io", ("deviceclasses", "resourceclaims", "resourceslices"), _SEE),
        Grant("resource.k8s.io", ("resourceclaims", "resourceclaims/binding", "resourceclaims/status"), ("patch",)),
        Grant("", ("pods/binding",), ("create",)),
        Grant("", ("pods",), ("patch",)),
    ),
}
"""By way of placing."""
FEATURES: Mapping[str, tuple[Grant, ...]] = {
    "read": (
        Grant("", ("nodes", "pods"), _SEE),
        Grant(OURS, ("gangs", "gputypes", "modelprofiles", "modelservices"), _SEE),
        Grant("apps", ("deployments",), _SEE),
    ),
    "power": (
        Grant(OURS, ("powerdomains",), _SEE),
        Grant(OURS, ("powerdomains/status",), ("patch",)),
    ),
    "report": (
        Grant(OURS, ("gangs/status", "gputypes/status", "modelprofiles/status", "modelservices/status"), ("patch",)),
        Grant("events.k8s.io", ("events",), ("create", "patch")),
    ),
    "evict": (Grant("", ("pods/eviction",), ("create",)),),
    "serve": (Grant("apps", ("deployments",), ("create", "patch")),),
    "serve-dra": (Grant("resource.k8s.io", ("resourceclaimtemplates",), ("create", "patch")),),
    **{f"place-{way}": grants for way, grants in PLACING.items()},
}
"""As the chart names its roles."""


def needed(
    placers: frozenset[str], lease: tuple[str, str], *, leases_watts: bool = False
) -> Iterator[tuple[str, Permission]]:
    """(feature, permission) of everything that an operator with these ways of placing does.

    lease: (namespace, name). leases_watts: whether power is enabled.
    """
    for feature, grants in FEATURES.items():
        if feature == "power" and not leases_watts:
            continue
        _, is_of_one_way, way = feature.partition("-")
        if not is_of_one_way or way in placers:
            yield from ((feature, permission) for grant in grants for permission in grant.permissions())
    namespace, name = lease
    group = "coordination.k8s.io"
    yield "lead", Permission("create", group, "leases", namespace)
    yield from (("lead", Permission(verb, group, "leases", namespace, name)) for verb in ("get", "update"))
