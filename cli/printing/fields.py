"""kubectl's dialect of JSONPath in its commonly used parts, for `-o jsonpath=`.

jsonpath-ng, the best maintained library, implements another dialect: no text around expressions, no `{range}`, no
escapes in names, and different filters. Scripts written for kubectl would mean something else.
Source: kubernetes.io, "JSONPath Support". A missing key or index prints nothing. One difference: integers and floats
are comparable, where kubectl fails.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from cluster.errors import ConfigError, Mistake

Select = Callable[[Any, Any], Iterator[Any]]
"""(root, value) → values of one step of a path."""
Values = Callable[[Any, Any], list[Any]]
"""(root, value) → values of a whole path."""
Printer = Callable[[Any, Any], str]
"""(root, value) → text of a part of a template."""

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_SPLIT = re.compile(r"\{((?:[^{}'\"]|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")*)\}")
_NAME = re.compile(r"(?:\\.|[^.\[\]\\\s])+")
_FILTER = re.compile(r"""((?:'[^']*'|"[^"]*"|[^'"=!<>])+?)\s*(?:(==|!=|<=|>=|<|>)\s*(.+))?$""", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def jsonpath(template: str) -> Callable[[Any], str]:
    """Function that prints an object by this template. Raises ConfigError if the template is invalid."""
    printer, rest = _printer(list(_tokens(template)), template, is_range=False)
    if rest:
        raise _wrong(template, "{end} without {range}")
    return lambda root: printer(root, root)


def _tokens(template: str) -> Iterator[tuple[bool, str]]:
    """(is an expression, its text)."""
    at = 0
    for match in _SPLIT.finditer(template):
        if "{" in template[at : match.start()]:
            break
        if match.start() > at:
            yield False, template[at : match.start()]
        yield True, match[1].strip()
        at = match.end()
    if "{" in template[at:]:
        raise _wrong(template, "a { is not closed")
    if at < len(template):
        yield False, template[at:]


def _printer(
    tokens: Sequence[tuple[bool, str]], template: str, *, is_range: bool
) -> tuple[Printer, Sequence[tuple[bool, str]]]:
    """Printer of these tokens up to the {end} of their range, and the tokens behind it."""
    parts: list[Printer] = []

    def printed(root: Any, here: Any) -> str:
        return "".join(part(root, here) for part in parts)

    while tokens:
        (is_expression, text), tokens = tokens[0], tokens[1:]
        if not is_expression:
            parts.append(partial(_constant, text))
        elif text == "end":
            return printed, tokens if is_range else [(True, text)]
        elif text.startswith("range ") or text == "range":
            body, tokens = _printer(tokens, template, is_range=True)
            parts.append(partial(_for_each, _path(text.removeprefix("range").strip(), template), body))
        elif text[:1] in ("'", '"'):
            parts.append(partial(_constant, _unquoted(text)))
        else:
            parts.append(partial(_all_of, _path(text, template)))
    return printed, ()  # as in kubectl, an open {range} extends to the end of the template


def _constant(text: str, _: Any, __: Any) -> str:
    return text


def _for_each(values: Values, body: Printer, root: Any, here: Any) -> str:
    return "".join(body(root, each) for each in values(root, here))


def _all_of(values: Values, root: Any, here: Any) -> str:
    return " ".join(
        each if isinstance(each, str) else json.dumps(each, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        for each in values(root, here)
    )


def _path(text: str, template: str) -> Values:
    """Function of `.spec.containers[*]['name']`, with or without a leading `$` or `@`."""
    steps: list[Select] = []
    rest = text
    if rest[:1] == "$":
        rest = rest[1:]
        steps.append(lambda root, _: iter((root,)))
    elif rest[:1] == "@":
        rest = rest[1:]
    while rest and rest != ".":
        if rest.startswith(".."):
            rest = rest[2:]
            steps.append(lambda _, value: _deeper(value))
            if rest[:1] in ("[", ""):
                continue
            rest = f".{rest}"
        elif rest[0] == "[":
            inside, rest = _bracket(rest, template)
            steps.append(_selection(inside.strip(), template))
        else:
            name = _NAME.match(rest.removeprefix("."))
            if name is None:
                raise _wrong(template, f"cannot read {rest!r}")
            rest = rest.removeprefix(".")[name.end() :]
            steps.append(partial(_member, re.sub(r"\\(.)", r"\1", name[0])))

    def values(root: Any, here: Any) -> list[Any]:
        found = [here]
        for step in steps:
            found = [value for each in found for value in step(root, each)]
        return found

    return values


def _bracket(text: str, template: str) -> tuple[str, str]:
    depth, quote = 0, ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "[]":
            depth += 1 if sign == "[" else -1
            if not depth:
                return text[1:at], text[at + 1 :]
    raise _wrong(template, "a [ is not closed")


def _selection(inside: str, template: str) -> Select:
    if inside == "*":
        return lambda _, value: _children(value)
    if inside.startswith("?(") and inside.endswith(")"):
        return _filter(inside[2:-1].strip(), template)
    alternatives = re.findall(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[^,]+", inside)
    chosen = [_one(each.strip(), template) for each in alternatives]
    return lambda root, value: (found for select in chosen for found in select(root, value))


def _one(text: str, template: str) -> Select:
    if text[:1] in ("'", '"'):
        values = _path(f".{text[1:-1]}", template)  # as in kubectl, a dot in quotes separates unless escaped by \
        return lambda root, value: iter(values(root, value))
    numbers = text.split(":")
    if len(numbers) > 3 or not all(re.fullmatch(r"-?\d+|", each.strip()) for each in numbers):
        raise _wrong(template, f"[{text}] is not an index, slice, name or filter")
    bounds = [int(each) if each.strip() else None for each in numbers]
    if len(bounds) == 1:
        index = bounds[0] or 0
        return lambda _, value: iter(
            value[index:][:1] if isinstance(value, list) and -len(value) <= index < len(value) else ()
        )
    return lambda _, value: iter(value[slice(*bounds)] if isinstance(value, list) else ())


def _filter(text: str, template: str) -> Select:
    match = _FILTER.match(text)
    if match is None:
        raise _wrong(template, f"cannot read the filter {text!r}")
    left, sign, right = match[1].strip(), match[2], (match[3] or "").strip()

    def operand(written: str) -> Callable[[Any, Any], list[Any]]:
        if written[:1] in ("@", "$"):
            return _path(written, template)
        try:
            value = _unquoted(written) if written[:1] in ("'", '"') else json.loads(written)
        except ValueError:
            raise _wrong(template, f"{written!r} is not a value: put text in quotes") from None
        return lambda _, __: [value]

    of_left = operand(left)
    if not sign:
        return lambda root, value: (each for each in _children(value) if of_left(root, each))
    of_right, holds = operand(right), _OPERATORS[sign]

    def keeps(root: Any, each: Any) -> bool:
        both = [*of_left(root, each)[:1], *of_right(root, each)[:1]]
        # Values of different types, such as true and 1, compare to false.
        kinds = {float if type(value) is int else type(value) for value in both}
        return len(both) == 2 and len(kinds) == 1 and holds(*both)

    return lambda root, value: (each for each in _children(value) if keeps(root, each))


def _member(name: str, _: Any, value: Any) -> Iterator[Any]:
    if name == "*":
        return _children(value)
    return iter((value[name],) if isinstance(value, dict) and name in value else ())


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        return (value[key] for key in sorted(value))
    return iter(value if isinstance(value, list) else ())


def _deeper(value: Any) -> Iterator[Any]:
    yield value
    for each in _children(value):
        yield from _deeper(each)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])


def _wrong(template: str, problem: str) -> ConfigError:
    return ConfigError(
        Mistake(f"-o jsonpath={template}", problem, "see kubectl's JSONPath: '{.items[*].metadata.name}'")
    )
