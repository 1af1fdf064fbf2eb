"""Rules: what holds between the fields of an object, said once for the API server (CEL) and once for files (Python)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from controller.api.flaw import Flaw

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that must hold. Both judges are put to the same cases (tests/builders/crd_cases.py)."""

    at: tuple[str, ...]
    """The part of the object that `self` is, by the names of the manifest; `[]` steps into a list's items."""
    cel: str
    message: str
    """What is wrong and what helps; it stands behind the path of the field. Figures of the case are not in it: the API
    server takes the cost of turning a number into text for unlimited, and refuses the rule."""
    flaws: Callable[[Any], Iterable[Flaw]] | None = None
    """The same for an object whose fields are right one by one. None: it compares with the object as it was before,
    which a file does not know, or the type of the field sees to it."""

    @property
    def schema(self) -> Schema:
        return {"rule": self.cel, "message": self.message}


def unchanging(*at: str, remedy: str) -> Rule:
    """The field is what it was when the object was made."""
    return Rule(at, "self == oldSelf", f"does not change; {remedy}")


LONGEST_LABEL_VALUE = 63


def fits_label(label: str) -> Rule:
    """The object's name is a value of this label on pods, and those are shorter than names may be."""
    words = f"is longer than {LONGEST_LABEL_VALUE} characters, and pods carry it as {label}"

    def flaws(obj: Any) -> Iterator[Flaw]:
        if len(obj.metadata.name) > LONGEST_LABEL_VALUE:
            yield Flaw(("metadata", "name"), words, "choose a shorter name")

    cel = f"self.metadata.name.size() <= {LONGEST_LABEL_VALUE}"
    return Rule((), cel, f"metadata.name {words}; choose a shorter name", flaws)
