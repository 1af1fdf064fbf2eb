"""CEL selectors of devices: the part of the language that chooses devices in practice, and a refusal of the rest.

Supported: literals, lists, `&& || !`, comparisons, `in`, `has()`, `device.driver`, `device.attributes[domain].name`,
`device.capacity[domain].name`, `quantity()`, `semver()`, and the methods of METHODS. Anything else, such as `cel.bind`
or `exists()`, is refused as a whole: a selector that is half understood would choose wrong devices.

Values behave as kube-scheduler's: a domain that a device lacks is empty, an attribute that it lacks is an error,
and values of different types are never equal. Source: Kubernetes 1.36, dynamic-resource-allocation/cel/compile.go.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, total_ordering
from typing import Any

from controller.api.quantity import quantity
from controller.dra.objects import Attribute, Device


class UnsupportedSelectorError(ValueError):
    """The expression uses what is not supported here, or is no CEL at all."""


class SelectorError(ValueError):
    """The expression cannot be decided for this device, such as for an attribute that it lacks."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version. Source: semver.org 2.0.0, section 11; builds do not order."""

    core: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    def __lt__(self, other: "Version") -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[Any, ...]:
        # Numbers before words; a version without a pre-release after all of its pre-releases.
        parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in self.pre)
        return (self.core, not self.pre, parts)


def version_from(text: str) -> Version:
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", text)
    if match is None:
        raise SelectorError(f"{text!r} is no semantic version")
    major, minor, patch, pre = match.groups()
    return Version((int(major), int(minor), int(patch)), tuple(pre.split(".")) if pre else ())


@dataclass(frozen=True, slots=True)
class _Attributes:
    """Values by domain; a domain that is not there is empty."""

    by_domain: Mapping[str, Mapping[str, Any]]


Eval = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression."""

    text: str
    run: Eval

    def matches(self, driver: str, device: Device) -> bool:
        """Raises SelectorError when it cannot be decided."""
        found = self.run({"device": _facts(driver, device)})
        if not isinstance(found, bool):
            raise SelectorError(f"{self.text!r} is no yes or no")
        return found


@lru_cache(maxsize=1024)
def selector(expression: str) -> Selector:
    """Raises UnsupportedSelectorError."""
    parser = _Parser(expression)
    run = parser.either()
    parser.expect("")
    return Selector(expression, run)


def _facts(driver: str, device: Device) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in device.attributes.items():
        domain, _, bare = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[bare] = value_of(attribute)
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in device.capacity.items():
        domain, _, bare = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[bare] = quantity(amount.value)
    return {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": _Attributes(attributes),
        "capacity": _Attributes(capacity),
    }


def value_of(attribute: Attribute) -> Any:
    """The value that a selector sees. Raises SelectorError for a type that is not supported."""
    for value in (attribute.integer, attribute.boolean, attribute.string):
        if value is not None:
            return value
    if attribute.version is not None:
        return version_from(attribute.version)
    raise SelectorError("an attribute has a list for a value, which is not supported")


_TOKEN = re.compile(
    r"""\s*(?:(?P<op>&&|\|\||==|!=|<=|>=|[<>!()\[\],.])|(?P<int>-?\d+(?![\w.]))|(?P<name>[A-Za-z_]\w*)"""
    r"""|(?P<text>"(?:[^"\\\n]|\\["'\\n t])*"|'(?:[^'\\\n]|\\["'\\nt])*'))"""
)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnsupportedSelectorError(f"{text[at : at + 20].strip()!r} in {text!r} is not supported")
        yield str(match.lastgroup), match.group(str(match.lastgroup))
        at = match.end()
    yield "end", ""


class _Parser:
    """By recursive descent, into functions of the variables."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at += token[0] != "end"
        return token

    def _took(self, *words: str) -> str | None:
        kind, word = self._tokens[self._at]
        if kind != "text" and word in words:
            return self._next()[1]
        return None

    def expect(self, word: str) -> None:
        kind, found = self._next()
        if kind == "text" or found != word:
            raise UnsupportedSelectorError(f"{found or 'the end'!r} in {self._text!r} is not supported")

    def either(self) -> Eval:
        found = self._both()
        while self._took("||"):
            found = _shortcut(found, self._both(), decisive=True)
        return found

    def _both(self) -> Eval:
        found = self._compared()
        while self._took("&&"):
            found = _shortcut(found, self._compared(), decisive=False)
        return found

    def _compared(self) -> Eval:
        left = self._unary()
        if operator := self._took("==", "!=", "<", "<=", ">", ">=", "in"):
            right = self._unary()
            compare = _COMPARE[operator]
            return lambda v: compare(left(v), right(v))
        return left

    def _unary(self) -> Eval:
        if self._took("!"):
            inner = self._unary()
            return lambda v: not _yes_or_no(inner(v))
        return self._reached()

    def _reached(self) -> Eval:
        found = self._first()
        while step := self._took(".", "["):
            found = self._indexed(found) if step == "[" else self._member(found)
        return found

    def _indexed(self, of: Eval) -> Eval:
        key = self.either()
        self.expect("]")
        return lambda v: _get(of(v), key(v))

    def _member(self, of: Eval) -> Eval:
        kind, name = self._next()
        if kind != "name":
            raise UnsupportedSelectorError(f"{name!r} in {self._text!r} is not supported")
        if not self._took("("):
            return lambda v: _get(of(v), name)
        arguments = self._arguments(")")
        if name not in METHODS:
            raise UnsupportedSelectorError(f"{name}() in {self._text!r} is not supported")
        return lambda v: _call(name, of(v), [each(v) for each in arguments])

    def _arguments(self, end: str) -> list[Eval]:
        found: list[Eval] = []
        while not self._took(end):
            if found:
                self.expect(",")
            found.append(self.either())
        return found

    def _first(self) -> Eval:
        kind, word = self._next()
        if kind == "text":
            text = _unquoted(word)
            return lambda _: text
        if kind == "int":
            number = int(word)
            return lambda _: number
        if word == "(":
            inner = self.either()
            self.expect(")")
            return inner
        if word == "[":
            items = self._arguments("]")
            return lambda v: [each(v) for each in items]
        if kind == "name":
            return self._named(word)
        raise UnsupportedSelectorError(f"{word or 'the end'!r} in {self._text!r} is not supported")

    def _named(self, word: str) -> Eval:
        if word in ("true", "false"):
            return lambda _: word == "true"
        if word == "device":
            return lambda v: v["device"]
        if word in ("has", "quantity", "semver") and self._took("("):
            arguments = self._arguments(")")
            if len(arguments) == 1:
                return _FUNCTIONS[word](arguments[0])
        raise UnsupportedSelectorError(f"{word!r} in {self._text!r} is not supported")


def _unquoted(word: str) -> str:
    plain = {"n": "\n", "t": "\t"}
    return re.sub(r"\\(.)", lambda m: plain.get(m.group(1), m.group(1)), word[1:-1])


def _shortcut(left: Eval, right: Eval, *, decisive: bool) -> Eval:
    """`||` and `&&`: the side that decides wins, also over an error of the other, as in CEL."""

    def run(v: Mapping[str, Any]) -> bool:
        try:
            if _yes_or_no(left(v)) is decisive:
                return decisive
        except SelectorError:
            if _yes_or_no(right(v)) is decisive:
                return decisive
            raise
        return _yes_or_no(right(v))

    return run


def _yes_or_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise SelectorError(f"{value!r} is no yes or no")


def _get(of: Any, key: Any) -> Any:
    if isinstance(of, _Attributes):
        return of.by_domain.get(str(key), {})
    if isinstance(of, Mapping) and key in of:
        return of[key]
    raise SelectorError(f"there is no {key}")


def _is_equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _is_less(a: Any, b: Any) -> bool:
    if type(a) is not type(b) or not isinstance(a, int | str) or isinstance(a, bool):
        raise SelectorError(f"{a!r} and {b!r} cannot be compared by < or >")
    return bool(a < b)


def _is_in(key: Any, of: Any) -> bool:
    if isinstance(of, _Attributes):
        return key in of.by_domain
    if isinstance(of, Mapping):
        return key in of
    if isinstance(of, list):
        return any(_is_equal(key, each) for each in of)
    raise SelectorError(f"nothing can be in {of!r}")


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": _is_equal,
    "!=": lambda a, b: not _is_equal(a, b),
    "<": _is_less,
    ">": lambda a, b: _is_less(b, a),
    "<=": lambda a, b: not _is_less(b, a),
    ">=": lambda a, b: not _is_less(a, b),
    "in": _is_in,
}


def _has(inner: Eval) -> Eval:
    def run(v: Mapping[str, Any]) -> bool:
        try:
            inner(v)
        except SelectorError:
            return False
        return True

    return run


def _quantity(text: Any) -> Decimal:
    try:
        return quantity(str(text))
    except ValueError as error:
        raise SelectorError(str(error)) from error


_FUNCTIONS: Mapping[str, Callable[[Eval], Eval]] = {
    "has": _has,
    "quantity": lambda inner: lambda v: _quantity(inner(v)),
    "semver": lambda inner: lambda v: version_from(str(inner(v))),
}


def _ordered(a: Any, b: Any) -> int:
    if type(a) is not type(b) or not isinstance(a, Decimal | Version):
        raise SelectorError(f"{a!r} and {b!r} cannot be compared")
    return int(a > b) - int(a < b)


def _matches(text: str, pattern: str) -> bool:
    # RE2 has neither of these; what is left means the same to both.
    if "(?" in pattern or re.search(r"\\\d", pattern):
        raise SelectorError(f"the pattern {pattern!r} is not supported")
    try:
        return re.search(pattern, text) is not None
    except re.error as error:
        raise SelectorError(f"the pattern {pattern!r}: {error}") from error


METHODS: Mapping[str, tuple[type | tuple[type, ...], int, Callable[..., Any]]] = {
    "startsWith": (str, 1, str.startswith),
    "endsWith": (str, 1, str.endswith),
    "contains": (str, 1, lambda text, part: part in text),
    "matches": (str, 1, _matches),
    "lowerAscii": (str, 0, str.lower),
    "upperAscii": (str, 0, str.upper),
    "compareTo": ((Decimal, Version), 1, _ordered),
    "isGreaterThan": ((Decimal, Version), 1, lambda a, b: _ordered(a, b) > 0),
    "isLessThan": ((Decimal, Version), 1, lambda a, b: _ordered(a, b) < 0),
}
"""By name: of what they are methods, how many arguments they take, and what they do."""


def _call(name: str, of: Any, arguments: list[Any]) -> Any:
    kind, count, work = METHODS[name]
    is_text = kind is str and not all(isinstance(each, str) for each in arguments)
    if not isinstance(of, kind) or len(arguments) != count or is_text:
        raise SelectorError(f"{of!r} has no {name}() of {arguments!r}")
    return work(of, *arguments)
