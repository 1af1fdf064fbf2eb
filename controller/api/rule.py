"""Validation rules between the fields of an object, each written for the API server (CEL) and for files (Python)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Flaw:
    """One inconsistency in an object. `problem` continues a sentence that starts with the path (`spec.grid`)."""

    path: Path
    problem: str
    remedy: str = ""


class Edged(Protocol):
    """Object with the upper edges of token-length buckets."""

    @property
    def input_tokens(self) -> tuple[int, ...]: ...
    @property
    def output_tokens(self) -> tuple[int, ...]: ...


def rising_flaws(edges: Sequence[int], path: Path) -> Iterator[Flaw]:
    for n, (low, high) in enumerate(pairwise(edges), start=1):
        if high <= low:
            yield Flaw((*path, n), f"is {high} after {low}", "edges rise strictly")


def row_flaws(rows: Sequence[Sequence[float]], grid: Edged, path: Path) -> Iterator[Flaw]:
    """Flaws of a matrix that has not exactly one row per input edge."""
    height = len(grid.input_tokens)
    if len(rows) != height:
        yield Flaw(path, f"has {len(rows)} row(s), inputTokens has {height} edge(s)", "write one row per input edge")


def column_flaws(rows: Sequence[Sequence[float]], grid: Edged, path: Path) -> Iterator[Flaw]:
    """Flaws of each row that has not exactly one number per output edge."""
    width = len(grid.output_tokens)
    for n, row in enumerate(rows):
        if len(row) != width:
            yield Flaw(
                (*path, n),
                f"has {len(row)} number(s), outputTokens has {width} edge(s)",
                "write one number per output edge",
            )


def repeat_flaws(values: Sequence[str], path: Path) -> Iterator[Flaw]:
    """Flaws of a set-like list: entries that occur twice."""
    for n, value in enumerate(values):
        if value in values[:n]:
            yield Flaw((*path, n), f"names {value} a second time", "name each once")


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
