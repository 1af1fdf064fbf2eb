"""Objects of Tonnage's kinds with what the operator reports of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from controller.api.conditions import READY, ObservedStatus, condition_of

Object = dict[str, Any]
S = TypeVar("S", bound=ObservedStatus)


@dataclass(frozen=True, slots=True)
class Reported(Generic[S]):
    """Object read from the API."""

    namespace: str
    """Empty for a kind without namespaces."""
    name: str
    spec: Object
    status: S

    @property
    def ready(self) -> tuple[str, str]:
        """Status and reason of its condition Ready."""
        found = condition_of(self.status.conditions, READY)
        return (found.status, found.reason) if found else ("Unknown", "NotReported")


def reported(objects: Iterable[Object], kind: type[S]) -> list[Reported[S]]:
    """The objects by namespace and name. kind: of their statuses; one that cannot be read counts as none."""
    made = [
        Reported(
            each["metadata"].get("namespace", ""),
            each["metadata"]["name"],
            each.get("spec") or {},
            kind.read(each.get("status") or {}),
        )
        for each in objects
    ]
    return sorted(made, key=lambda each: (each.namespace, each.name))
