"""Regular expressions in selectors: those that mean the same in RE2, and only those that take bounded time."""

import pytest

from controller.dra.regex import found_in
from controller.dra.undecided import SelectorError


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^NVIDIA-(A100|H100)-.*$", True),
        ("[A-Z]+-A100", True),
        (r"\(x+\)+", False),
        ("[(a+)+]*A100", True),
        (".*H100.*|.*A100.*|.*B200.*", True),
        ("a100", False),
    ],
)
def test_a_pattern_with_little_backtracking_is_searched(pattern: str, *, found: bool) -> None:
    assert found_in("NVIDIA-A100-SXM4-80GB", pattern) is found


@pytest.mark.parametrize(
    "pattern",
    [
        "^(([A-Za-z0-9-])+)+!$",
        "(a|a)*b",
        "(a+){2,}",
        r"\[(a+)+[]x]",  # the bracket before is an escaped sign, not a class that hides the group
        "a*a*a*a*b",
        "(a|a)(a|a)(a|a)(a|a)b",
        "a?" * 30 + "b",
        "a" * 129,
        "(?i)a100",
        r"(a)\1",
        "(a",
    ],
)
def test_what_could_take_long_or_means_something_else_is_refused(pattern: str) -> None:
    with pytest.raises(SelectorError):
        found_in("a" * 40, pattern)


def test_a_text_that_is_longer_than_any_attribute_is_not_searched() -> None:
    with pytest.raises(SelectorError, match="65 characters"):
        found_in("a" * 65, "a")
