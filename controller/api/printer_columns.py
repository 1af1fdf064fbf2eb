"""How the API server shows a kind: columns of kubectl, and the scale subresource."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    """JSONPath from the object."""
    type: Literal["string", "integer", "number", "date"]
    description: str
    is_wide: bool = False
    """Only with `-o wide`."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What `kubectl scale`, autoscalers and disruption budgets read and set."""

    spec_path: str
    status_path: str
    selector_path: str


AGE = Column("Age", ".metadata.creationTimestamp", "date", "Time since the object was made.")


def condition(name: str, words: str) -> Column:
    """The status of a condition. words: what it says, for people."""
    return Column(name, f'.status.conditions[?(@.type=="{name}")].status', "string", words)


def reason(name: str) -> Column:
    """The reason of a condition, only with `-o wide`."""
    path = f'.status.conditions[?(@.type=="{name}")].reason'
    return Column("Reason", path, "string", f"Why it is, or is not, {name}.", is_wide=True)


ACCEPTED = condition("Accepted", "Whether the object is right beside the objects that it names.")
