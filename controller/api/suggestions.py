"""What somebody probably meant who wrote a name that is none."""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(word: str, known: Iterable[str]) -> str:
    """`did you mean gputypes?`, or what there is."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.6)
    alike = near or get_close_matches(word.lower(), [name for name in names if name.lower() == word.lower()], n=1)
    if alike:
        return f"did you mean {alike[0]}?"
    if not names:
        return "there is none to choose from"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"known: {shown}"
