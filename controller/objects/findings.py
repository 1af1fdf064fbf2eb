"""Findings while objects become a snapshot: errors, which stop it, and notes, which do not."""

from collections.abc import Mapping, Sequence

from cluster.errors import ConfigError, Mistake
from cluster.plans import Reason
from controller.objects.read import Note


class Findings:
    """Collects errors and notes until all input is checked, so that its author sees all of them at once."""

    def __init__(self, notes: Sequence[Note] = ()) -> None:
        self.mistakes: list[Mistake] = []
        self._notes = list(notes)

    def mistake(self, mistake: Mistake) -> None:
        self.mistakes.append(mistake)

    def note(self, about: str, code: str, words: str, figures: Mapping[str, float] | None = None) -> None:
        self._notes.append(Note(about, Reason(code, words, figures or {})))

    def note_many(self, kind: str, code: str, names: Sequence[str], words: str) -> None:
        """Add one note that holds for many objects, so that a large fleet does not flood the output.

        words: continue a sentence whose subject is the objects, such as "12 pods".
        """
        if names:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.note(f"{kind}/{min(names)}{others}", code, words, {"objects": len(names)})

    def extend(self, more: "Findings") -> None:
        self.mistakes += more.mistakes
        self._notes += more.notes

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._notes)

    def stop_on_mistakes(self) -> None:
        """Raises ConfigError with all errors, if there are any."""
        if self.mistakes:
            raise ConfigError(tuple(self.mistakes))
