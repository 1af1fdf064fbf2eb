"""Regular expressions of selectors, limited to those that mean the same in RE2 and Python and cannot take long.

Any user who may create a ResourceClaim writes them, and Python's `re` backtracks: `(a+)+!` doubles its time with each
further character and never ends with forty. RE2 does not backtrack. So only patterns with little backtracking are
accepted: no group is repeated, and each alternative has few repetitions.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from controller.dra.undecided import SelectorError

MOST_REPEATS = 3
"""Maximum number of repetitions in one alternative. For a text of 64 characters it takes some 3 ms at worst
(`a*a*a*b`), and 0.05 s for a pattern full of such alternatives."""
LONGEST_PATTERN = 128
LONGEST_TEXT = 64
"""Maximum length of an attribute, as the API server validates it."""


def found_in(text: str, pattern: str) -> bool:
    """Whether the pattern matches anywhere in the text. Raises SelectorError for an unsupported pattern."""
    if len(text) > LONGEST_TEXT:
        raise SelectorError(f"a text of {len(text)} characters is too long to be searched, the limit is {LONGEST_TEXT}")
    return _compiled(pattern).search(text) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> "re.Pattern[str]":
    # RE2 supports neither of these; the rest means the same in both.
    if "(?" in pattern or re.search(r"\\\d", pattern):
        raise SelectorError(f"the pattern {pattern!r} is not supported")
    if len(pattern) > LONGEST_PATTERN:
        raise SelectorError(f"a pattern of {len(pattern)} characters is too long, the limit is {LONGEST_PATTERN}")
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
    """Whether each alternative has few repetitions (`* + ? {`) and choices within groups: each multiplies the
    attempts."""
    bare = "".join(_bare(pattern))
    if re.search(r"\)[*+?{]", bare):
        return False
    depth, repeats = 0, 0
    for sign in bare:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            repeats = 0
        elif sign in "*+?{|":
            repeats += 1
            if repeats > MOST_REPEATS:
                return False
    return True


def _bare(pattern: str) -> Iterator[str]:
    """Characters of a pattern with a syntactic meaning; a class or an escaped character becomes a letter."""
    at = 0
    while at < len(pattern):
        sign, at = pattern[at], at + 1
        if sign == "\\":
            at += 1
        elif sign == "[":
            at += pattern.startswith("^", at)
            at += pattern.startswith("]", at)  # the first one is a member of the class
            while at < len(pattern) and pattern[at] != "]":
                at += 2 if pattern[at] == "\\" else 1
            at += 1
        else:
            yield sign
            continue
        yield "c"
