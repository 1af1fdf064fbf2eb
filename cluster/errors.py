"""The error tree: a class tells its catcher what to do next."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class TonnageError(Exception):
    """Root of every error that Tonnage raises on purpose."""


class ObservationError(TonnageError):
    """The world could not be seen whole: skip this cycle, nothing was decided."""


class ActionError(TonnageError):
    """One action failed: drop it; the next cycle decides afresh from what it sees."""


class ConfigError(TonnageError):
    """Input that people wrote is wrong: stop before anything is done, name every mistake at once."""

    def __init__(self, mistakes: "tuple[Mistake, ...] | Mistake") -> None:
        self.mistakes = (mistakes,) if isinstance(mistakes, Mistake) else tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple["Mistake", ...]]]:
        """Errors cross process borders (a replay worker's to its parent) with their mistakes whole."""
        return (type(self), (self.mistakes,))


class ControlPlaneError(TonnageError):
    """A control plane of our own cannot be started, stopped or reached: the message says what helps."""


class BuildError(ControlPlaneError):
    """Its programs cannot be had on this machine: tests that need them are skipped with this reason."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong in the input: where, what, and what helps."""

    place: str
    """Where to look: `file, document 2, spec.slo.tpotSeconds` or `pods.csv, line 7, column gpu_milli`."""
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" + (f"; {self.remedy}" if self.remedy else "")


def tried(step: Callable[[], T], otherwise: T, mistakes: list[Mistake]) -> T:
    """What a step of checking input gives; `otherwise` when it raises ConfigError, whose mistakes join `mistakes`.

    So that whoever checks several things can name all that is wrong at once.
    """
    try:
        return step()
    except ConfigError as error:
        mistakes.extend(error.mistakes)
        return otherwise
