"""Description of a kind of object: its model, names, printer columns, watcher and validation rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from controller.api.fields import Loose, Strict
from controller.api.labels import API_VERSION, GROUP
from controller.api.rule import Flaw, Flaws, Rule, repeat_flaws


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of `kubectl get`."""

    name: str
    path: str
    """JSONPath into the object."""
    type: Literal["string", "integer", "number", "date"]
    description: str
    is_wide: bool = False
    """Whether the column is shown only with `-o wide`."""


@dataclass(frozen=True, slots=True)
class ScaleSubresource:
    """Scale subresource, which `kubectl scale`, autoscalers and disruption budgets read and set."""

    spec_path: str
    status_path: str
    selector_path: str


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since the object was created.")


def condition(name: str, words: str) -> PrinterColumn:
    """Column with the status of a condition. words: description of the column."""
    return PrinterColumn(name, f'.status.conditions[?(@.type=="{name}")].status', "string", words)


def reason(name: str) -> PrinterColumn:
    """Column with the reason of a condition, shown only with `-o wide`."""
    path = f'.status.conditions[?(@.type=="{name}")].reason'
    return PrinterColumn("Reason", path, "string", f"Reason of the condition {name}.", is_wide=True)


ACCEPTED = condition("Accepted", "Whether the object and its references are valid.")


PLANNING = "planning"


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind. Its CRD, watch, cache, RBAC, status writes, documentation and tables are derived from this."""

    model: type[Strict | Loose]
    plural: str
    """Resource name in paths and RBAC rules: `modelservices`."""
    is_namespaced: bool
    api_version: str = API_VERSION
    short_names: tuple[str, ...] = ()
    """Short names for kubectl: `msvc`."""
    columns: tuple[PrinterColumn, ...] = ()
    """Columns of `kubectl get`."""
    scale: ScaleSubresource | None = None
    """Scale subresource, if the kind has one."""
    rules: tuple[Rule, ...] = ()
    """Rules between fields, enforced by the API server and for files."""
    checks: tuple[Flaws, ...] = ()
    """Checks that only files need. Called with an object whose fields are each valid."""
    watched_by: str = PLANNING
    """Loop of the operator that lists and watches the kind: `planning`, or a fast loop by the name of its feature
    (`power`), whose role then grants access. Empty: not watched."""
    watched_as: str = ""
    """Name in `Snapshot.observed_at_s`, in logs and in metrics. Empty: the plural."""
    has_status: bool = True
    """Whether Tonnage writes its status."""

    @property
    def name(self) -> str:
        return self.model.__name__

    @property
    def is_own(self) -> bool:
        return self.api_version == API_VERSION

    @property
    def is_planned_from(self) -> bool:
        """Whether planning reads the kind. PowerDomains, for example, are read by the power loop only."""
        return self.watched_by == PLANNING

    @property
    def part(self) -> str:
        return self.watched_as or self.plural

    @property
    def path(self) -> str:
        """Path of the collection in all namespaces."""
        return f"{self._root}/{self.plural}"

    def path_of(self, name: str) -> str:
        """Path of one object. name: `name`, or `namespace/name` if the kind is namespaced."""
        namespace, _, bare = name.rpartition("/")
        within = f"/namespaces/{namespace}" if self.is_namespaced else ""
        return f"{self._root}{within}/{self.plural}/{bare}"

    @property
    def definition(self) -> str:
        """Name of the kind's CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"

    @property
    def _root(self) -> str:
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    def flaws(self, obj: Any) -> Iterator[Flaw]:
        """Inconsistencies between the fields of an object whose fields are each valid."""
        for rule in self.rules:
            yield from rule.violations(obj)
        if self.is_own:
            yield from repeat_flaws(obj.spec, ("spec",))
        for check in self.checks:
            yield from check(obj)
