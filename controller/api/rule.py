"""Validation rules between the fields of an object, each written for the API server (CEL) and for files (Python)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from controller.api.flaw import Flaw

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule. Both its forms are tested with the same cases (tests/builders/crd_cases.py)."""

    at: tuple[str, ...]
    """Path of `self` in the object, by the names of the manifest; `[]` steps into a list's items."""
    cel: str
    message: str
    """Error and remedy, printed after the path of the field. It contains no figures of the case: the API server
    estimates the cost of converting a number to text as unlimited, and would refuse the rule."""
    flaws: Callable[[Any], Iterable[Flaw]] | None = None
    """The rule in Python, for an object whose fields are each valid. None: the rule compares with the object before an
    update, which a file does not contain, or the field's type enforces it."""

    @property
    def schema(self) -> Schema:
        return {"rule": self.cel, "message": self.message}


def unchanging(*at: str, remedy: str) -> Rule:
    """Rule that the field is immutable after creation."""
    return Rule(at, "self == oldSelf", f"is immutable; {remedy}")


LONGEST_LABEL_VALUE = 63


def fits_label(label: str) -> Rule:
    """Rule that the object's name fits into this label of pods; label values are shorter than names may be."""
    words = f"is longer than {LONGEST_LABEL_VALUE} characters, the limit for the pods' label {label}"

    def flaws(obj: Any) -> Iterator[Flaw]:
        if len(obj.metadata.name) > LONGEST_LABEL_VALUE:
            yield Flaw(("metadata", "name"), words, "choose a shorter name")

    cel = f"self.metadata.name.size() <= {LONGEST_LABEL_VALUE}"
    return Rule((), cel, f"metadata.name {words}; choose a shorter name", flaws)
