"""What a kind of object is: its model, its names and columns, what watches it, and what is checked of it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from controller.api.fields import Loose, Strict
from controller.api.flaw import Flaw
from controller.api.labels import API_VERSION, GROUP
from controller.api.printer_columns import Column, Scale
from controller.api.rule import Rule

PLANNING = "planning"


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind. Its definition, watch, cache, rights, status writes, pages and rows in every list follow from this."""

    name: str
    model: type[Strict | Loose]
    plural: str
    """Resource name in paths and rights: `modelservices`."""
    is_namespaced: bool
    api_version: str = API_VERSION
    short_names: tuple[str, ...] = ()
    """Short names for kubectl: `msvc`."""
    columns: tuple[Column, ...] = ()
    """Columns of `kubectl get`."""
    scale: Scale | None = None
    """Scale subresource, for a kind that has one."""
    rules: tuple[Rule, ...] = ()
    """What must hold between the fields, for the API server and for files."""
    checks: tuple[Callable[[Any], Iterable[Flaw]], ...] = ()
    """What only files need to be checked for. Called with an object whose fields are right one by one."""
    watched_by: str = PLANNING
    """Loop of the operator that lists and watches it: `planning`, or a fast loop by the name of its feature (`power`),
    whose role then grants it. Empty: nothing watches it."""
    watched_as: str = ""
    """Part of `Snapshot.observed_at_s`, of logs and metrics. Empty: the plural."""
    has_status: bool = True
    """Whether Tonnage writes its status."""

    @property
    def is_own(self) -> bool:
        return self.api_version == API_VERSION

    @property
    def is_planned_from(self) -> bool:
        """Whether planning reads it. A PowerDomain is read by the fast loop alone."""
        return self.watched_by == PLANNING

    @property
    def part(self) -> str:
        return self.watched_as or self.plural

    @property
    def path(self) -> str:
        """Path of the collection in all namespaces."""
        return f"{self._root}/{self.plural}"

    def path_of(self, name: str) -> str:
        """Path of one object. name: `name`, or `namespace/name` where the kind has namespaces."""
        namespace, _, bare = name.rpartition("/")
        within = f"/namespaces/{namespace}" if self.is_namespaced else ""
        return f"{self._root}{within}/{self.plural}/{bare}"

    @property
    def definition(self) -> str:
        """Name of its CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"

    @property
    def _root(self) -> str:
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    def flaws(self, obj: Any) -> Iterator[Flaw]:
        """What is wrong between the fields of an object whose fields are right one by one."""
        for check in (*(rule.flaws for rule in self.rules if rule.flaws), *self.checks):
            yield from check(obj)
