"""`--sort-by`: kubectl's order of objects, by one field.

One difference: objects with equal values, or without the field, keep the server's order; kubectl leaves that order
undefined.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cmp_to_key
from typing import Any, TypeVar

from cli.printing.jsonpath import field_values
from cluster.errors import ConfigError, Mistake

T = TypeVar("T")

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def in_order(expression: str, things: Sequence[T], object_of: Callable[[T], Any]) -> list[T]:
    """Things sorted by the first value of a field of their objects; those without the field come first.

    expression: `.metadata.name`, with or without braces and the first dot. Raises ConfigError if it is invalid, no
    object has the field, or its values cannot be compared.
    """
    values_of = field_values(expression, option="--sort-by")
    keyed = [(found[0] if (found := values_of(object_of(thing))) else None, thing) for thing in things]
    if things and all(value is None for value, _ in keyed):
        problem = "is not a field of any object in the list"
        raise ConfigError(Mistake(f"--sort-by {expression}", problem, "see -o json for their fields"))

    def order(one: tuple[Any, T], other: tuple[Any, T]) -> int:
        try:
            return _order(one[0], other[0])
        except TypeError as error:
            raise ConfigError(Mistake(f"--sort-by {expression}", f"cannot be compared: {error}")) from error

    return [thing for _, thing in sorted(keyed, key=cmp_to_key(order))]


def _order(one: Any, other: Any) -> int:
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(one, str) and isinstance(other, str):
        return _order_of_texts(one, other)
    if isinstance(one, list) and isinstance(other, list):
        parts = (_order(a, b) for a, b in zip(one, other, strict=False))
        return next((part for part in parts if part), len(one) - len(other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return (one > other) - (one < other)
    raise TypeError(f"a {type(one).__name__} and a {type(other).__name__}")


def _order_of_texts(one: str, other: str) -> int:
    """-1, 0 or 1: quantities by value if both are quantities (`900Mi` before `1Gi`), otherwise text order."""
    first, second = _quantity(one), _quantity(other)
    if first is not None and second is not None:
        return (first > second) - (first < second)
    return (one > other) - (one < other)


def _quantity(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups(default="")
    if suffix.endswith("i"):
        unit: Fraction = Fraction(2) ** (10 * "KMGTPE".index(suffix[0]) + 10)
        return Fraction(number) * unit
    scale: Fraction = Fraction(10) ** (int(exponent) if exponent else _POWERS.get(suffix, 0))
    return Fraction(number) * scale
