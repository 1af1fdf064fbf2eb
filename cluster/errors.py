"""Error tree, whose classes tell the catcher what to do next, and mistakes in what people write, with remedies."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

UNREADABLE = (ValueError, TypeError, ArithmeticError, RecursionError)
"""Errors of decoding bytes that others wrote: msgspec's own, which are ValueErrors, text that is no UTF-8, numbers
beyond 64 bits, and values that nest too deep."""


class TonnageError(Exception):
    """Root of every error that Tonnage raises on purpose."""


class ObservationError(TonnageError):
    """The world could not be observed completely: skip this cycle, nothing was decided."""


class ActionError(TonnageError):
    """One action failed: drop it; the next cycle decides again from a new observation."""


class ConfigError(TonnageError):
    """Input written by people is wrong: stop before anything is done, and report every mistake at once."""

    def __init__(self, mistakes: "tuple[Mistake, ...] | Mistake") -> None:
        self.mistakes = (mistakes,) if isinstance(mistakes, Mistake) else tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple["Mistake", ...]]]:
        """Pickles the error with all its mistakes, so that it can cross processes (from a worker to its parent)."""
        return (type(self), (self.mistakes,))


class ControlPlaneError(TonnageError):
    """A local control plane cannot be started, stopped or reached; the message states a remedy."""


class BuildError(ControlPlaneError):
    """Programs of the local control plane are not available on this machine: tests that need them are skipped."""


class GuestError(TonnageError):
    """A guest with a real kernel cannot be had on this machine, or ended: tests that need it are skipped, or fail."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One error in the input: its place, the problem and a remedy."""

    place: str
    """Place of the error: `file, document 2, spec.slo.tpotSeconds` or `pods.csv, line 7, column gpu_milli`."""
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" + (f"; {self.remedy}" if self.remedy else "")


def tried(step: Callable[[], T], otherwise: T, mistakes: list[Mistake]) -> T:
    """Result of a step that checks input; `otherwise` when it raises ConfigError, whose mistakes join `mistakes`.

    Lets a check of several inputs report all their mistakes at once.
    """
    try:
        return step()
    except ConfigError as error:
        mistakes.extend(error.mistakes)
        return otherwise


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name that is most like a word; empty where none is like it."""
    from difflib import get_close_matches  # a millisecond of every command, for the few that are mistyped

    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.6)
    alike = near or get_close_matches(word.lower(), [name for name in names if name.lower() == word.lower()], n=1)
    return alike[0] if alike else ""


def meant(word: str, known: Iterable[str]) -> str:
    """Suggestion such as `did you mean gputypes?`, or a list of the known names."""
    names = sorted(known)
    if near := nearest(word, names):
        return f"did you mean {near}?"
    if not names:
        return "none exist"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"known: {shown}"
