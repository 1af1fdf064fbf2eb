"""Objects of Tonnage's kinds with what the operator reports of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from controller.api.conditions import ObservedStatus

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


def reported(objects: Iterable[Object], kind: type[S]) -> list[Reported[S]]:
    """The objects by namespace and name. kind: of their statuses; one that cannot be read counts as none."""
    made = [Reported(each, kind.read(each.get("status") or {})) for each in objects]
    return sorted(made, key=lambda each: (each.namespace, each.name))
