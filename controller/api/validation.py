"""Pruning of objects before validation: nulls are dropped, and of core/v1 objects all fields that placement ignores."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

from cluster.errors import Mistake, meant
from cluster.field_errors import fields_at, in_words, model_in, plain
from controller.api.fields import DNS_LABEL_PATTERN, LABEL_PATTERN, LABEL_VALUE_PATTERN, NAME_PATTERN, Loose, Strict
from controller.api.rule import Path

LEVELS = 150
"""Levels of maps and lists that are looked into: more than an object is accepted with (controller/api/structs.py), few
enough to recurse."""


def pruned(content: Any, model: type[BaseModel], *, sorts: tuple[type[BaseModel], ...] = (Loose,)) -> Any:
    """Plain data for `model`, not yet validated.

    A field that is null counts as left out, as on the API server; null in a list stays, and is an error there.
    Pruning first matters for `kubectl get -o json`, nine tenths of which placement does not read.

    sorts: base classes of the models whose unknown fields are dropped.
    """
    if type(content) is list:
        return [pruned(item, model, sorts=sorts) for item in content]
    if type(content) is not dict or not issubclass(model, sorts):
        return without_nulls(content)
    return {
        key: without_nulls(content[key]) if inner is None else pruned(content[key], inner, sorts=sorts)
        for key, inner in _inner_models(model).items()
        if content.get(key) is not None
    }


def known_part(content: Any, model: type[BaseModel]) -> Any:
    """Plain data from the API server, which has already refused fields that its own CRD does not have.

    Remaining fields that `model` does not have come from a later release's CRDs, which an older controller ignores.
    """
    return pruned(content, model, sorts=(Loose, Strict))


def without_nulls(value: Any, levels: int = LEVELS) -> Any:
    """The value without nulls in maps; of maps and lists so many levels, below which there is nothing."""
    if type(value) is dict:
        inside = value.items() if levels else ()
        return {str(key): without_nulls(inner, levels - 1) for key, inner in inside if inner is not None}
    if type(value) is list:
        return [without_nulls(inner, levels - 1) for inner in value] if levels else []
    return value


@cache
def _inner_models(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Fields by their names in manifests, each with its model if it has one."""
    return {str(field.alias): model_in(field.annotation) for field in model.model_fields.values()}


SHOWN = 5
"""Number of errors in one message; further ones are reported once these are corrected."""

PATTERNS = {
    NAME_PATTERN: "names consist of lower-case letters, digits, - and ., as the API server requires",
    LABEL_PATTERN: "a label key looks like topology.kubernetes.io/zone",
    LABEL_VALUE_PATTERN: "a label value consists of letters, digits, -, _ and .",
    DNS_LABEL_PATTERN: "it consists of lower-case letters, digits and -",
}
"""Plain-language descriptions of patterns."""


def mistake_from(wrong: Any, place_of: Callable[[Path], str], model: type[BaseModel]) -> Mistake:
    """A pydantic error in plain words, with the field's name in the manifest."""
    path: Path = tuple(part for part in wrong["loc"] if part != "[key]")
    place = place_of(path)
    match wrong["type"]:
        case "missing":
            field = fields_at(model, path[:-1]).get(str(path[-1]))
            return Mistake(place, "is missing", field.description or "" if field else "")
        case "extra_forbidden":
            return Mistake(place, "there is no such field", meant(str(path[-1]), fields_at(model, path[:-1])))
        case "string_type" if isinstance(wrong["input"], bool | int | float):
            return Mistake(place, f"should be text, not {plain(wrong['input'])}", "put it in quotes")
        case "value_error":
            return Mistake(place, str(wrong["ctx"]["error"]))
        case "string_pattern_mismatch":
            pattern = wrong["ctx"]["pattern"]
            return Mistake(
                place, f"{plain(wrong['input'])} is not allowed", PATTERNS.get(pattern, f"it should match {pattern}")
            )
    return Mistake(place, in_words(wrong))


def words_of(mistaken: Sequence[Mistake]) -> str:
    """Text of the first errors for the message of a condition, each with its field."""
    # Without the object's name, which its own status need not repeat.
    fields = [each.place.partition(", ")[2] for each in mistaken[:SHOWN]]
    problems = [each.problem for each in mistaken]
    return "; ".join(
        f"{field}: {problem}" if field else problem for field, problem in zip(fields, problems, strict=False)
    )
