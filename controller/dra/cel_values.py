"""Values, comparisons and methods of device selectors, as in kube-scheduler's CEL.

Source: Kubernetes 1.36, dynamic-resource-allocation/cel/compile.go.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import total_ordering
from typing import Any

from controller.api.notation import quantity
from controller.dra.regex import found_in
from controller.dra.undecided import SelectorError


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """Semantic version. Build metadata does not affect the order. Source: semver.org 2.0.0, section 11."""

    core: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    def __lt__(self, other: "Version") -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[Any, ...]:
        # Numbers sort before words, and a release after all of its pre-releases.
        parts = tuple((0, int(p), "") if p.isdigit() and len(p) < 19 else (1, 0, p) for p in self.pre)
        return (self.core, not self.pre, parts)


def version_from(text: str) -> Version:
    match = re.fullmatch(r"(\d{1,18})\.(\d{1,18})\.(\d{1,18})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", text)
    if match is None:
        raise SelectorError(f"{text!r} is not a semantic version")
    major, minor, patch, pre = match.groups()
    return Version((int(major), int(minor), int(patch)), tuple(pre.split(".")) if pre else ())


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attribute values by domain; a missing domain is empty."""

    by_domain: Mapping[str, Mapping[str, Any]]


def boolean(value: Any) -> bool:
    """The value if it is a boolean. Raises SelectorError otherwise."""
    if isinstance(value, bool):
        return value
    raise SelectorError(f"{value!r} is not true or false")


def get(of: Any, key: Any) -> Any:
    if isinstance(of, Attributes):
        return of.by_domain.get(str(key), {})
    if isinstance(of, Mapping) and key in of:
        return of[key]
    raise SelectorError(f"{key} does not exist")


def _is_equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _is_less(a: Any, b: Any) -> bool:
    if type(a) is not type(b) or not isinstance(a, int | str) or isinstance(a, bool):
        raise SelectorError(f"{a!r} and {b!r} cannot be compared by < or >")
    return bool(a < b)


def _is_in(key: Any, of: Any) -> bool:
    if isinstance(of, Attributes):
        return key in of.by_domain
    if isinstance(of, Mapping):
        return key in of
    if isinstance(of, list):
        return any(_is_equal(key, each) for each in of)
    raise SelectorError(f"`in` does not apply to {of!r}")


COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": _is_equal,
    "!=": lambda a, b: not _is_equal(a, b),
    "<": _is_less,
    ">": lambda a, b: _is_less(b, a),
    "<=": lambda a, b: not _is_less(b, a),
    ">=": lambda a, b: not _is_less(a, b),
    "in": _is_in,
}


def quantity_of(text: Any) -> Decimal:
    try:
        return quantity(str(text))
    except ValueError as error:
        raise SelectorError(str(error)) from error


def _ordered(a: Any, b: Any) -> int:
    if type(a) is not type(b) or not isinstance(a, Decimal | Version):
        raise SelectorError(f"{a!r} and {b!r} cannot be compared")
    return int(a > b) - int(a < b)


METHODS: Mapping[str, tuple[type | tuple[type, ...], int, Callable[..., Any]]] = {
    "startsWith": (str, 1, str.startswith),
    "endsWith": (str, 1, str.endswith),
    "contains": (str, 1, lambda text, part: part in text),
    "matches": (str, 1, found_in),
    "lowerAscii": (str, 0, str.lower),
    "upperAscii": (str, 0, str.upper),
    "compareTo": ((Decimal, Version), 1, _ordered),
    "isGreaterThan": ((Decimal, Version), 1, lambda a, b: _ordered(a, b) > 0),
    "isLessThan": ((Decimal, Version), 1, lambda a, b: _ordered(a, b) < 0),
}
"""Methods by name: type of the receiver, number of arguments, function."""


def call(name: str, of: Any, arguments: list[Any]) -> Any:
    kind, count, work = METHODS[name]
    is_text = kind is str and not all(isinstance(each, str) for each in arguments)
    if not isinstance(of, kind) or len(arguments) != count or is_text:
        raise SelectorError(f"{of!r} has no {name}() of {arguments!r}")
    return work(of, *arguments)
