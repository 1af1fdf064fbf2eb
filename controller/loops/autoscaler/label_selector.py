"""Label selectors as text (`policy=chat`, `policy in (a,b)`), as clients of an aggregated API send them."""

import re
from collections.abc import Callable, Mapping

Labels = Mapping[str, str]
Selector = Callable[[Labels], bool]
_KEY = r"([A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_VALUE = r"[-A-Za-z0-9_.]*"
_EQUALITY = re.compile(rf"\s*{_KEY}\s*(==|=|!=)\s*({_VALUE})\s*")
_SET = re.compile(rf"\s*{_KEY}\s+(in|notin)\s*\(\s*({_VALUE}(\s*,\s*{_VALUE})*)\s*\)\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*{_KEY}\s*")


class BadSelectorError(ValueError):
    """The text is no label selector."""


def selector_from(text: str) -> Selector:
    """Predicate of a selector; an empty one selects everything.

    Raises BadSelectorError. Source: Kubernetes documentation, "Labels and Selectors".
    """
    requirements = [_requirement(part) for part in re.split(r",(?![^(]*\))", text)] if text.strip() else []
    return lambda labels: all(requirement(labels) for requirement in requirements)


def _requirement(text: str) -> Selector:
    if found := _EQUALITY.fullmatch(text):
        key, operator, value = found[1], found[3], found[4]
        return _within(key, frozenset({value}), is_in=operator != "!=")
    if found := _SET.fullmatch(text):
        values = frozenset(value.strip() for value in found[4].split(","))
        return _within(found[1], values, is_in=found[3] == "in")
    if found := _EXISTS.fullmatch(text):
        is_wanted, key = not found[1], found[2]
        return lambda labels: (key in labels) is is_wanted
    raise BadSelectorError(f"{text.strip()[:100]!r} is no requirement of a label selector")


def _within(key: str, values: frozenset[str], *, is_in: bool) -> Selector:
    if is_in:
        return lambda labels: key in labels and labels[key] in values
    return lambda labels: labels.get(key) not in values
