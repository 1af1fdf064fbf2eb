"""Printer columns of kubectl, and the scale subresource of a kind."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    """JSONPath into the object."""
    type: Literal["string", "integer", "number", "date"]
    description: str
    is_wide: bool = False
    """Whether the column is shown only with `-o wide`."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Scale subresource, which `kubectl scale`, autoscalers and disruption budgets read and set."""

    spec_path: str
    status_path: str
    selector_path: str


AGE = Column("Age", ".metadata.creationTimestamp", "date", "Time since the object was created.")


def condition(name: str, words: str) -> Column:
    """Column with the status of a condition. words: description of the column."""
    return Column(name, f'.status.conditions[?(@.type=="{name}")].status', "string", words)


def reason(name: str) -> Column:
    """Column with the reason of a condition, shown only with `-o wide`."""
    path = f'.status.conditions[?(@.type=="{name}")].reason'
    return Column("Reason", path, "string", f"Reason of the condition {name}.", is_wide=True)


ACCEPTED = condition("Accepted", "Whether the object and its references are valid.")
