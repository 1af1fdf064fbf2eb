"""RBAC permissions of the operator, by feature: the chart's roles grant them and `tonnage doctor` checks them.

`make chart` writes it into the chart.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import yaml

from controller.api.foreign_kinds import FOREIGN_KINDS
from controller.api.kind import PLANNING, Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.labels import GROUP

HEAD = "# Made by `make chart` from controller/api; a test fails when it is out of date.\n"


@dataclass(frozen=True, slots=True)
class Permission:
    """Permission for one verb on one resource."""

    verb: str
    group: str
    """API group; empty for core/v1."""
    resource: str
    """Plural, with the subresource if any: `pods/binding`."""
    namespace: str = ""
    """Namespace; empty: all of them."""
    name: str = ""

    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        plural, slash, sub = self.resource.partition("/")
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {plural}{group}{slash}{sub}{where}"


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission for several verbs on several resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]

    def permissions(self) -> Iterator[Permission]:
        return (Permission(verb, self.group, resource) for resource in self.resources for verb in self.verbs)


_READ = ("list", "watch")
PLACING: Mapping[str, tuple[Grant, ...]] = {
    "gate": (Grant("", ("pods",), ("patch",)),),
    "bind": (Grant("", ("pods/binding",), ("create",)),),
    # Kubernetes 1.36 requires resourceclaims/binding besides resourceclaims/status. The pod itself is bound or ungated.
    "dra": (
        Grant("resource.k8s.io", ("deviceclasses", "resourceclaims", "resourceslices"), _READ),
        Grant("resource.k8s.io", ("resourceclaims", "resourceclaims/binding", "resourceclaims/status"), ("patch",)),
        Grant("", ("pods/binding",), ("create",)),
        Grant("", ("pods",), ("patch",)),
    ),
}
"""Permissions by placement mode."""

_TOKENS = Grant("authentication.k8s.io", ("tokenreviews",), ("create",))
_ACCESS = Grant("authorization.k8s.io", ("subjectaccessreviews",), ("create",))
DEMAND: Mapping[str, tuple[Grant, ...]] = {
    # Which metrics there are is known to their adapter alone.
    "custom-metrics": (Grant("custom.metrics.k8s.io", ("*",), ("get",)),),
    "push": (_TOKENS, _ACCESS),
    "external-metrics": (_ACCESS,),
    # Server-side apply is a patch that may create. Names are the policies', so the grant cannot be restricted to any.
    "config-maps": (Grant("", ("configmaps",), ("create", "patch")),),
}
"""Permissions of the autoscaler's sources, endpoints and ConfigMaps, by the setting that enables each."""
OPTIONAL = ("power", "isolation", "autoscale", "health", "routes", *DEMAND)
"""Features that the settings enable, or not."""


def features(kinds: Iterable[Kind] = KINDS) -> Mapping[str, tuple[Grant, ...]]:
    """Grants by feature, named like the chart's roles: `read` and `report` for planning, one for each fast loop."""
    watched = tuple(kind for kind in kinds if kind.watched_by)
    loops = sorted({kind.watched_by for kind in watched} - {PLANNING})
    planned = _watched_by(PLANNING, watched)
    core = tuple(kind for kind in planned if not kind.is_own)
    # Grants to read what other projects say of pods that start together; a kind that is missing is left out.
    groups = sorted({kind.group for kind in FOREIGN_KINDS})
    return {
        "read": (
            *_reading("", core),
            *_reading(GROUP, own_kinds(planned)),
            Grant("", ("namespaces", "persistentvolumeclaims", "persistentvolumes", "resourcequotas"), _READ),
            Grant("storage.k8s.io", ("csinodes", "storageclasses"), _READ),
            Grant("apps", ("deployments",), _READ),
            Grant("policy", ("poddisruptionbudgets",), _READ),
            Grant("kueue.x-k8s.io", ("admissionchecks", "resourceflavors", "workloads"), _READ),
            *(
                Grant(group, tuple(dict.fromkeys(kind.plural for kind in FOREIGN_KINDS if kind.group == group)), _READ)
                for group in groups
            ),
        ),
        **{loop: _loop(_watched_by(loop, watched)) for loop in loops},
        "power": (*_loop(_watched_by("power", watched)), _TOKENS),
        "report": (
            *_writing_status(own_kinds(planned)),
            Grant("kueue.x-k8s.io", ("admissionchecks/status", "workloads/status"), ("patch",)),
            Grant("events.k8s.io", ("events",), ("create", "patch")),
        ),
        # Scale subresources are granted by the chart's autoscaler.targets: which kinds there are, only users know.
        "autoscale": (Grant("autoscaling", ("horizontalpodautoscalers",), _READ),),
        "health": (
            *_loop(_watched_by("health", watched)),
            Grant(GROUP, ("faultincidents",), ("create", "delete")),
            Grant("", ("nodes", "nodes/status"), ("patch",)),
        ),
        "evict": (Grant("", ("pods/eviction",), ("create",)),),
        # Server-side apply is a patch that may create.
        "serve": (Grant("apps", ("deployments",), ("create", "patch")),),
        "routes": (
            Grant("gateway.networking.k8s.io", ("httproutes",), ("create", "deletecollection", "patch")),
            Grant("inference.networking.k8s.io", ("inferencepools",), ("create", "deletecollection", "patch")),
        ),
        "serve-dra": (Grant("resource.k8s.io", ("resourceclaimtemplates",), ("create", "patch")),),
        **{f"place-{mode}": grants for mode, grants in PLACING.items()},
        **DEMAND,
    }


def _watched_by(loop: str, kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """Kinds that one loop watches, in the order of their plurals."""
    return tuple(sorted((kind for kind in kinds if kind.watched_by == loop), key=lambda kind: kind.plural))


def _loop(kinds: tuple[Kind, ...]) -> tuple[Grant, ...]:
    return (*_reading(GROUP, kinds), *_writing_status(kinds))


def _reading(group: str, kinds: Iterable[Kind]) -> Iterator[Grant]:
    if resources := tuple(kind.plural for kind in kinds):
        yield Grant(group, resources, _READ)


def _writing_status(kinds: Iterable[Kind]) -> Iterator[Grant]:
    """Grant to write the statuses of Tonnage's kinds, which have no other writer."""
    if resources := tuple(f"{kind.plural}/status" for kind in kinds if kind.has_status):
        yield Grant(GROUP, resources, ("patch",))


def of_people(kinds: Iterable[Kind] = KINDS) -> Mapping[str, tuple[Grant, ...]]:
    """Grants that the roles `view` and `edit` of Kubernetes are given; its `admin` has those of `edit`.

    Whoever edits a ModelService runs pods by it, as with a Deployment, so none of it is for `view`.
    """
    owned = sorted((kind for kind in own_kinds(kinds) if kind.is_namespaced), key=lambda kind: kind.plural)
    plurals = tuple(kind.plural for kind in owned)
    parts = tuple(f"{kind.plural}/status" for kind in owned if kind.has_status)
    scales = tuple(f"{kind.plural}/scale" for kind in owned if kind.scale)
    return {
        "view": (Grant(GROUP, plurals, ("get", *_READ)), Grant(GROUP, (*scales, *parts), ("get",))),
        "edit": (
            Grant(GROUP, plurals, ("create", "delete", "deletecollection", "patch", "update")),
            *([Grant(GROUP, scales, ("patch", "update"))] if scales else []),
        ),
    }


def roles_yaml(kinds: Iterable[Kind] = KINDS) -> str:
    """Rules of each role, by feature, in the form that the chart reads."""
    people = {f"aggregate-to-{role}": grants for role, grants in of_people(kinds).items()}
    roles = {
        name: [
            {"apiGroups": [grant.group], "resources": list(grant.resources), "verbs": list(grant.verbs)}
            for grant in grants
        ]
        for name, grants in {**features(kinds), **people}.items()
    }
    return HEAD + yaml.safe_dump(roles, sort_keys=False, width=120, default_flow_style=None)


def needed(
    placers: frozenset[str],
    lease: tuple[str, str],
    enabled: Collection[str] = ("autoscale",),
    kinds: Iterable[Kind] = KINDS,
) -> Iterator[tuple[str, Permission]]:
    """(feature, permission) of everything that an operator with these placement modes does.

    lease: (namespace, name). enabled: features of OPTIONAL that the settings enable.
    """
    for feature, grants in features(kinds).items():
        _, is_of_one_mode, mode = feature.partition("-")
        if feature in enabled if feature in OPTIONAL else not is_of_one_mode or mode in placers:
            yield from ((feature, permission) for grant in grants for permission in grant.permissions())
    namespace, name = lease
    group = "coordination.k8s.io"
    yield "lead", Permission("create", group, "leases", namespace)
    yield from (("lead", Permission(verb, group, "leases", namespace, name)) for verb in ("get", "update"))
    if "autoscale" in enabled:
        yield "lead", Permission("create", "", "configmaps", namespace)
        saved = f"{name}-load-fits-0"
        yield from (("lead", Permission(verb, "", "configmaps", namespace, saved)) for verb in ("get", "patch"))
