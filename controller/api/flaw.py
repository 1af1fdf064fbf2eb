"""Flaws: what is wrong between the fields of one object, each with the path to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong in an object. The words stand behind the path: `spec.grid` *is missing*."""

    path: Path
    problem: str
    remedy: str = ""


class Edged(Protocol):
    """Anything with the edges of length buckets."""

    @property
    def input_tokens(self) -> tuple[int, ...]: ...
    @property
    def output_tokens(self) -> tuple[int, ...]: ...


def rising_flaws(edges: Sequence[int], path: Path) -> Iterator[Flaw]:
    for n, (low, high) in enumerate(pairwise(edges), start=1):
        if high <= low:
            yield Flaw((*path, n), f"is {high} after {low}", "edges rise strictly")


def row_flaws(rows: Sequence[Sequence[float]], grid: Edged, path: Path) -> Iterator[Flaw]:
    """Rows follow the input edges."""
    height = len(grid.input_tokens)
    if len(rows) != height:
        yield Flaw(path, f"has {len(rows)} row(s), inputTokens has {height} edge(s)", "write one row per input edge")


def column_flaws(rows: Sequence[Sequence[float]], grid: Edged, path: Path) -> Iterator[Flaw]:
    """Columns follow the output edges."""
    width = len(grid.output_tokens)
    for n, row in enumerate(rows):
        if len(row) != width:
            yield Flaw(
                (*path, n),
                f"has {len(row)} number(s), outputTokens has {width} edge(s)",
                "write one number per output edge",
            )


def repeat_flaws(values: Sequence[str], path: Path) -> Iterator[Flaw]:
    """A list that is a set names nothing twice."""
    for n, value in enumerate(values):
        if value in values[:n]:
            yield Flaw((*path, n), f"names {value} a second time", "name each once")
