"""Suggestions for unknown names: the nearest known one."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name that is most like a word; empty where none is like it."""
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
