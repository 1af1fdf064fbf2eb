"""`--sort-by`: what is expected was printed by kubectl 1.36 for such values, but where a line says not."""

from typing import Any

import pytest

from cli.printing.fields import in_order
from cluster.errors import ConfigError


def order(*values: Any, by: str = ".a.b") -> list[Any]:
    objects = [{"a": {} if value is None else {"b": value}} for value in values]
    return [each["a"].get("b") for each in in_order(by, objects, lambda obj: obj)]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (("x2", "x10", "x1", "x"), ["x", "x1", "x10", "x2"]),
        (("10", "9"), ["9", "10"]),
        (("1Gi", "900Mi", "2e9", "1k", "500m"), ["500m", "1k", "900Mi", "1Gi", "2e9"]),
        (("10", "x", "9x"), ["10", "9x", "x"]),
        ((2, 10, 1.5), [1.5, 2, 10]),
        (([2, 1], [1, 9], [1]), [[1], [1, 9], [2, 1]]),
        ((3, None, 1), [None, 1, 3]),
        ((True, False), [False, True]),
        ((), []),
    ],
)
def test_objects_come_in_the_order_of_the_field(values: tuple[Any, ...], wanted: list[Any]) -> None:
    assert order(*values) == wanted


@pytest.mark.parametrize("path", ["a.b", ".a.b", "{.a.b}", "{a.b}", " .a.b "])
def test_braces_and_the_first_dot_may_be_left_out(path: str) -> None:
    assert order(2, 1, by=path) == [1, 2]


@pytest.mark.parametrize(
    ("values", "path"),
    [((1, 2), ".a.nothing"), (({"x": 1}, {"x": 2}), ".a.b"), ((1, "x"), ".a.b"), ((1,), "{.a}{.b}"), ((1,), ".a[")],
)
def test_a_field_that_cannot_be_sorted_by_is_an_error(values: tuple[Any, ...], path: str) -> None:
    with pytest.raises(ConfigError, match="--sort-by"):
        order(*values, by=path)


def test_what_is_equal_keeps_its_order() -> None:
    """Ours: kubectl leaves it open."""
    things = [("x", 1), ("y", 0), ("z", 1)]

    assert in_order(".n", things, lambda thing: {"n": thing[1]}) == [("y", 0), ("x", 1), ("z", 1)]
