"""Objects of Tonnage's kinds with what the operator reports of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cli.printing.columns import since
from cli.printing.fields import jsonpath
from controller.api.conditions import READY, ObservedStatus, condition_of
from controller.api.kind import Kind

Object = dict[str, Any]
S = TypeVar("S", bound=ObservedStatus)


@dataclass(frozen=True, slots=True)
class Reported(Generic[S]):
    """Object read from the API."""

    obj: Object
    status: S

    @property
    def namespace(self) -> str:
        """Empty for a kind without namespaces."""
        return str(self.obj["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def spec(self) -> Object:
        return self.obj.get("spec") or {}

    @property
    def ready(self) -> tuple[str, str]:
        """Status and reason of its condition Ready."""
        found = condition_of(self.status.conditions, READY)
        return (found.status, found.reason) if found else ("Unknown", "NotReported")


def reported(objects: Iterable[Object], kind: type[S]) -> list[Reported[S]]:
    """The objects by namespace and name. kind: of their statuses; one that cannot be read counts as none."""
    made = [Reported(each, kind.read(each.get("status") or {})) for each in objects]
    return sorted(made, key=lambda each: (each.namespace, each.name))


def table_of(kind: Kind, reports: Iterable[Reported[S]], now_s: float) -> tuple[list[str], list[list[str]]]:
    """Headers, and a row for each object: the columns of the kind, as the server has them, the wide ones as well."""
    paths = [(column.type, jsonpath(f"{{{column.path}}}")) for column in kind.columns]
    first = ["NAMESPACE", "NAME"] if kind.is_namespaced else ["NAME"]
    rows = []
    for each in reports:
        cells = [since(value, now_s) if of == "date" else value for of, path in paths for value in (path(each.obj),)]
        own = [each.namespace, each.name] if kind.is_namespaced else [each.name]
        rows.append([*own, *(cell or "-" for cell in cells)])
    return [*first, *(column.name.upper() for column in kind.columns)], rows
