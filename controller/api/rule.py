"""Validation rules between the fields of an object, each written for the API server (CEL) and for files (Python)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_snake

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Flaw:
    """One inconsistency in an object. `problem` continues a sentence that starts with the path (`spec.grid`)."""

    path: Path
    problem: str
    remedy: str = ""


def row_flaws(rows: Sequence[Sequence[float]], input_tokens: Sequence[int], path: Path) -> Iterator[Flaw]:
    """Flaws of a matrix that has not exactly one row per input edge."""
    height = len(input_tokens)
    if len(rows) != height:
        yield Flaw(path, f"has {len(rows)} row(s), inputTokens has {height} edge(s)", "write one row per input edge")


def column_flaws(rows: Sequence[Sequence[float]], output_tokens: Sequence[int], path: Path) -> Iterator[Flaw]:
    """Flaws of each row that has not exactly one number per output edge."""
    width = len(output_tokens)
    for n, row in enumerate(rows):
        if len(row) != width:
            yield Flaw(
                (*path, n),
                f"has {len(row)} number(s), outputTokens has {width} edge(s)",
                "write one number per output edge",
            )


def repeat_flaws(part: BaseModel, path: Path) -> Iterator[Flaw]:
    """Flaws of the lists in a part that are sets, or that have key fields: entries that occur twice.

    For files only; the API server enforces list types itself.
    """
    for name, field in type(part).model_fields.items():
        value, inner = getattr(part, name), (*path, str(field.alias))
        if isinstance(value, BaseModel):
            yield from repeat_flaws(value, inner)
        elif isinstance(value, tuple):
            extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
            keys: Any = extra.get("x-kubernetes-list-map-keys")
            is_set = extra.get("x-kubernetes-list-type") == "set"
            entries = [getattr(item, to_snake(keys[0])) for item in value] if keys else list(value) if is_set else []
            for n, entry in enumerate(entries):
                if entry in entries[:n]:
                    yield Flaw((*inner, n), f"names {entry} a second time", "name each once")
            for n, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from repeat_flaws(item, (*inner, n))


Schema = dict[str, Any]
Flaws = Callable[[Any], Iterable[Flaw]]
"""Function of a whole object whose fields are each valid: its inconsistencies of one sort."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule. Both its forms are tested with the same cases (tests/builders/crd_cases.py)."""

    at: tuple[str, ...]
    """Path of `self` in the object, by the names of the manifest; `[]` steps into a list's items."""
    cel: str
    message: str
    """Error and remedy, printed after the path of the field. It contains no figures of the case: the API server
    estimates the cost of converting a number to text as unlimited, and would refuse the rule."""
    holds: Callable[[Any], bool] | None = None
    """The rule in Python, of the part at `at`, whose fields are each valid."""
    flaws: Flaws | None = None
    """The rule in Python, of the whole object, where it has more exact places or words than `holds`. Without both, the
    rule compares with the object before an update, which a file does not contain."""

    @property
    def schema(self) -> Schema:
        return {"rule": self.cel, "message": self.message}

    def violations(self, obj: BaseModel) -> Iterator[Flaw]:
        """Places in an object where the rule does not hold."""
        if self.flaws is not None:
            yield from self.flaws(obj)
        elif self.holds is not None:
            problem, _, remedy = self.message.partition("; ")
            for path, part in _parts(obj, self.at, ()):
                if not self.holds(part):
                    yield Flaw(path, problem, remedy)


def _parts(part: Any, at: tuple[str, ...], path: Path) -> Iterator[tuple[Path, Any]]:
    """Parts of an object at a rule's place, each with its path; none where a field on the way is left out."""
    if part is None:
        return
    if not at:
        yield path, part
    elif at[0] == "[]":
        for n, item in enumerate(part):
            yield from _parts(item, at[1:], (*path, n))
    else:
        yield from _parts(getattr(part, to_snake(at[0])), at[1:], (*path, at[0]))


def unchanging(*at: str, remedy: str) -> Rule:
    """Rule that the field is immutable after creation."""
    return Rule(at, "self == oldSelf", f"is immutable; {remedy}")


def rising(*at: str) -> Rule:
    """Rule that the edges at this path rise strictly."""

    def flaws(obj: Any) -> Iterator[Flaw]:
        for path, edges in _parts(obj, at, ()):
            for n, (low, high) in enumerate(pairwise(edges), start=1):
                if high <= low:
                    yield Flaw((*path, n), f"is {high} after {low}", "edges rise strictly")

    cel = "self.isSorted() && self.all(edge, self.exists_one(other, other == edge))"
    return Rule(at, cel, "edges rise strictly", flaws=flaws)


LONGEST_LABEL_VALUE = 63


def fits_label(label: str) -> Rule:
    """Rule that the object's name fits into this label of pods; label values are shorter than names may be."""
    words = f"is longer than {LONGEST_LABEL_VALUE} characters, the limit for the pods' label {label}"

    def flaws(obj: Any) -> Iterator[Flaw]:
        if len(obj.metadata.name) > LONGEST_LABEL_VALUE:
            yield Flaw(("metadata", "name"), words, "choose a shorter name")

    cel = f"self.metadata.name.size() <= {LONGEST_LABEL_VALUE}"
    return Rule((), cel, f"metadata.name {words}; choose a shorter name", flaws=flaws)
