"""Validation messages: pydantic's errors in plain words, with the field's name in the manifest."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel

from cluster.errors import Mistake, meant
from cluster.field_errors import fields_at, in_words, plain
from controller.api.fields import DNS_LABEL_PATTERN, LABEL_PATTERN, LABEL_VALUE_PATTERN, NAME_PATTERN
from controller.api.flaw import Path

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
    return "; ".join(f"{_field(each)}{each.problem}" for each in mistaken[:SHOWN])


def _field(mistake: Mistake) -> str:
    """Field of the error, without the object's name, which its own status need not repeat."""
    _, _, field = mistake.place.partition(", ")
    return f"{field}: " if field else ""
