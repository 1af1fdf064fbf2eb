"""Flaws: inconsistencies between the fields of one object, each with its path."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

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
