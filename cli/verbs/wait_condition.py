"""Condition of `tonnage wait --for`, from its text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

Object = dict[str, Any]
HELP = "write delete, create, condition=NAME, condition=NAME=VALUE or jsonpath='{.PATH}'=VALUE"


@dataclass(frozen=True, slots=True)
class WaitCondition:
    """Condition on one object."""

    words: str
    """Text of the option."""
    is_met: Callable[[Object | None], bool]
    """Whether the object, or None where it does not exist, meets the condition."""
    needs_object: bool = True
    """Whether an object that does not exist is an error, rather than something to wait for."""


def wait_condition(text: str | WaitCondition) -> WaitCondition:
    """Condition that the value of `--for` names, as kubectl reads it. Raises click.BadParameter."""
    if isinstance(text, WaitCondition):
        return text
    kind, _, rest = text.partition("=")
    if text == "delete":
        return WaitCondition(text, lambda obj: obj is None, needs_object=False)
    if text == "create":
        return WaitCondition(text, lambda obj: obj is not None, needs_object=False)
    if kind == "condition" and rest:
        name, _, value = rest.partition("=")
        return WaitCondition(text, lambda obj: has_condition(obj, name, value or "True"))
    if kind == "jsonpath" and rest.startswith("{"):
        path, brace, value = rest.rpartition("}")
        if brace and (value == "" or value.startswith("=")):
            return WaitCondition(text, _at_path(path + brace, value.removeprefix("=") if value else None))
    raise click.BadParameter(f"{text!r} is not a condition; {HELP}")


def has_condition(obj: Object | None, name: str, value: str) -> bool:
    """Whether the object has the condition with this status, and for its present spec; names ignore case."""
    status = (obj or {}).get("status") or {}
    generation = (obj or {}).get("metadata", {}).get("generation", 0)
    return any(
        each.get("type", "").lower() == name.lower()
        and each.get("status", "").lower() == value.lower()
        and each.get("observedGeneration", status.get("observedGeneration", generation)) >= generation
        for each in status.get("conditions") or ()
    )


def _at_path(path: str, value: str | None) -> Callable[[Object | None], bool]:
    def is_met(obj: Object | None) -> bool:
        from cli.printing.jsonpath import jsonpath

        found = "" if obj is None else jsonpath(path)(obj)
        return found != "" if value is None else found == value

    return is_met
