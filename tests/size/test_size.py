"""Small stays small: every count of the product is within its ceiling, and no ceiling stands far above it."""

from functools import cache
from pathlib import Path

import pytest

from tests.size import counts as size

ROOT = Path(__file__).parents[2]
FLOORS = frozenset(size.FLOORS)
SLACK = 0.02
"""Share by which a ceiling may stand above what is there, so that a small change need not touch it."""
LEAST_SLACK = 1.0
LOWER = "lower it: python -m tests.size --lower"


@cache
def found() -> dict[str, float]:
    return size.counts(ROOT)


@pytest.mark.parametrize("name", sorted(size.ceilings()))
def test_a_count_is_within_its_ceiling_and_the_ceiling_is_near(name: str) -> None:
    count, limit = found()[name], size.ceilings()[name]
    slack = max(LEAST_SLACK, SLACK * limit)

    if name in FLOORS:
        assert count >= limit, f"{name}: {count:.1f} is below the floor of {limit:g}: shorter must not mean denser"
        return
    assert count <= limit, f"{name}: {count:.1f} is above the ceiling of {limit:g}; make room (CONTRIBUTING.md)"
    assert limit <= count + slack, f"{name}: the ceiling of {limit:g} is far above {count:.1f}; {LOWER}"


def test_every_count_that_grows_with_the_code_has_a_ceiling() -> None:
    wanted = {name for name in found() if name not in size.UNBOUNDED}

    assert set(size.ceilings()) == wanted


def test_a_function_that_is_used_twice_or_is_public_is_not_one_called_once(tmp_path: Path) -> None:
    text = "def _once(): ...\ndef _twice(): ...\ndef public(): return _once() + _twice() + _twice()\n"

    assert [node.name for node in size.called_once(size.source_of(tmp_path / "a.py", text))] == ["_once"]


def test_a_public_class_name_in_two_files_is_found(tmp_path: Path) -> None:
    read = [size.source_of(Path(name), "class Answer: ...\nclass _Own: ...\n") for name in ("a.py", "b.py")]

    assert size.names_twice(read) == {"Answer": [Path("a.py"), Path("b.py")]}


def test_the_parameters_of_a_constructor_are_counted_without_self() -> None:
    text = "class A:\n    def __init__(self, a, *, b): ...\n"

    assert list(size.constructors([size.source_of(Path("a.py"), text)])) == [(2, "a.py: A")]
