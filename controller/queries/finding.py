"""Finding of `tonnage doctor`: the result of one check, with its remedy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failure", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    check: str
    """Name of the check: `crds`, `rbac`, `lease`, ..."""
    verdict: Verdict
    words: str
    remedy: str = ""
    """What to do; empty when nothing is wrong."""


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
