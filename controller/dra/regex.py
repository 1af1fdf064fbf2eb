"""Patterns of selectors: what means the same to RE2 and to Python, and cannot take long.

Anyone who may make a ResourceClaim writes them, and Python's `re` goes back over what it tried: `(a+)+!` takes twice as
long for each further sign, for ever with forty. RE2 does not. So only patterns are taken that can try few ways: nothing
behind a group is repeated, and in each alternative little is.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from controller.dra.undecided import SelectorError

MOST_REPEATS = 3
"""In one alternative. With texts of 64 signs some 3 ms at worst (`a*a*a*b`), 0.05 s for a pattern full of such."""
LONGEST_PATTERN = 128
LONGEST_TEXT = 64
"""Of an attribute, by the API server's rule."""


def found_in(text: str, pattern: str) -> bool:
    """Whether the pattern is somewhere in the text. Raises SelectorError for one that is not supported."""
    if len(text) > LONGEST_TEXT:
        raise SelectorError(f"a text of {len(text)} signs is not searched, {LONGEST_TEXT} are the most")
    return _compiled(pattern).search(text) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> "re.Pattern[str]":
    # RE2 has neither of these; what is left means the same to both.
    if "(?" in pattern or re.search(r"\\\d", pattern):
        raise SelectorError(f"the pattern {pattern!r} is not supported")
    if len(pattern) > LONGEST_PATTERN:
        raise SelectorError(f"a pattern of {len(pattern)} signs is not supported, {LONGEST_PATTERN} are the most")
    if not _is_quick(pattern):
        raise SelectorError(
            f"the pattern {pattern!r} is not supported: a group is repeated, or more than {MOST_REPEATS} parts of one "
            "alternative are"
        )
    try:
        return re.compile(pattern)
    except re.error as error:
        raise SelectorError(f"the pattern {pattern!r}: {error}") from error


def _is_quick(pattern: str) -> bool:
    """Repeats (`* + ? {`), and choices within groups, are counted: each multiplies the ways that there are to try."""
    bare = "".join(_bare(pattern))
    if re.search(r"\)[*+?{]", bare):
        return False
    depth, ways = 0, 0
    for sign in bare:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            ways = 0
        elif sign in "*+?{|":
            ways += 1
            if ways > MOST_REPEATS:
                return False
    return True


def _bare(pattern: str) -> Iterator[str]:
    """The signs of a pattern that mean something; classes and escaped signs as a letter."""
    at = 0
    while at < len(pattern):
        sign, at = pattern[at], at + 1
        if sign == "\\":
            at += 1
        elif sign == "[":
            at += pattern.startswith("^", at)
            at += pattern.startswith("]", at)  # the first one is a sign of the class
            while at < len(pattern) and pattern[at] != "]":
                at += 2 if pattern[at] == "\\" else 1
            at += 1
        else:
            yield sign
            continue
        yield "c"
