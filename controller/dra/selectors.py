"""CEL selectors of devices: the part of the language that is used for devices in practice; the rest is refused.

Supported: literals, lists, `&& || !`, comparisons, `in`, `has()`, `device.driver`, `device.attributes[domain].name`,
`device.capacity[domain].name`, `quantity()`, `semver()`, and the methods of METHODS. Anything else, such as `cel.bind`
or `exists()`, makes the whole selector invalid: a partly understood selector would choose wrong devices.

Values behave as in kube-scheduler: a missing domain is empty, a missing attribute is an error, and values of different
types are never equal. Source: Kubernetes 1.36, dynamic-resource-allocation/cel/compile.go.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any

from controller.api.notation import quantity
from controller.dra.cel_values import COMPARE, METHODS, Attributes, boolean, call, get, quantity_of, version_from
from controller.dra.objects import Attribute, Capacity, Device
from controller.dra.undecided import SelectorError, UnsupportedSelectorError

Eval = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Selector:
    """Compiled selector."""

    text: str
    run: Eval

    def matches(self, driver: str, device: Device) -> bool:
        """Whether it selects the device. Raises SelectorError when it cannot be evaluated."""
        return self.selects(facts_of(driver, device))

    def selects(self, facts: Mapping[str, Any]) -> bool:
        """Whether it selects the device with these facts, likewise."""
        found = self.run({"device": facts})
        if not isinstance(found, bool):
            raise SelectorError(f"{self.text!r} is not true or false")
        return found


@lru_cache(maxsize=1024)
def selector(expression: str) -> Selector:
    """Selector of a CEL expression. Raises UnsupportedSelectorError."""
    parser = _Parser(expression)
    run = parser.either()
    parser.expect("")
    return Selector(expression, run)


def facts_of(driver: str, device: Device) -> dict[str, Any]:
    """What selectors may ask of a device. Raises SelectorError where it has what is not supported."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in device.attributes.items():
        domain, _, bare = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[bare] = value_of(attribute)
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in device.capacity.items():
        domain, _, bare = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[bare] = _amount(name, amount)
    return {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": Attributes(attributes),
        "capacity": Attributes(capacity),
    }


def _amount(name: str, amount: Capacity) -> Decimal:
    try:
        return quantity(amount.value)
    except ValueError as error:  # a driver may publish any amount, negative ones too
        raise SelectorError(f"the capacity {name} {error}") from error


def value_of(attribute: Attribute) -> Any:
    """Value of an attribute in CEL. Raises SelectorError for an unsupported type."""
    for value in (attribute.integer, attribute.boolean, attribute.string):
        if value is not None:
            return value
    if attribute.version is not None:
        return version_from(attribute.version)
    raise SelectorError("an attribute is a list, which is not supported")


_TOKEN = re.compile(
    r"""\s*(?:(?P<op>&&|\|\||==|!=|<=|>=|[<>!()\[\],.])|(?P<int>-?\d{1,19}(?![\w.]))|(?P<name>[A-Za-z_]\w*)"""
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


MOST_TOKENS, DEEPEST = 400, 20
"""Maximum number of tokens and nesting depth. Chosen: far more than hand-written expressions have. Any user who may
create a ResourceClaim may write 10,000 characters, and one nested deeper than Python's stack would end each cycle."""


class _Parser:
    """Recursive-descent parser that compiles an expression into functions of the variables."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(islice(_tokens(text), MOST_TOKENS + 1))
        if len(self._tokens) > MOST_TOKENS:
            raise UnsupportedSelectorError(f"more than {MOST_TOKENS} tokens are not supported")
        self._at = self._depth = 0

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
        with self._deeper():
            found = self._both()
            while self._took("||"):
                found = _shortcut(found, self._both(), decisive=True)
            return found

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > DEEPEST:
            raise UnsupportedSelectorError(f"a nesting deeper than {DEEPEST} is not supported")
        yield
        self._depth -= 1

    def _both(self) -> Eval:
        found = self._compared()
        while self._took("&&"):
            found = _shortcut(found, self._compared(), decisive=False)
        return found

    def _compared(self) -> Eval:
        left = self._unary()
        if operator := self._took("==", "!=", "<", "<=", ">", ">=", "in"):
            right = self._unary()
            compare = COMPARE[operator]
            return lambda v: compare(left(v), right(v))
        return left

    def _unary(self) -> Eval:
        if self._took("!"):
            with self._deeper():
                inner = self._unary()
            return lambda v: not boolean(inner(v))
        return self._reached()

    def _reached(self) -> Eval:
        found = self._first()
        while step := self._took(".", "["):
            found = self._indexed(found) if step == "[" else self._member(found)
        return found

    def _indexed(self, of: Eval) -> Eval:
        key = self.either()
        self.expect("]")
        return lambda v: get(of(v), key(v))

    def _member(self, of: Eval) -> Eval:
        kind, name = self._next()
        if kind != "name":
            raise UnsupportedSelectorError(f"{name!r} in {self._text!r} is not supported")
        if not self._took("("):
            return lambda v: get(of(v), name)
        arguments = self._arguments(")")
        if name not in METHODS:
            raise UnsupportedSelectorError(f"{name}() in {self._text!r} is not supported")
        return lambda v: call(name, of(v), [each(v) for each in arguments])

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
    """`||` and `&&` of CEL: the side that decides wins, even over an error of the other side."""

    def run(v: Mapping[str, Any]) -> bool:
        try:
            if boolean(left(v)) is decisive:
                return decisive
        except SelectorError:
            if boolean(right(v)) is decisive:
                return decisive
            raise
        return boolean(right(v))

    return run


def _has(inner: Eval) -> Eval:
    def run(v: Mapping[str, Any]) -> bool:
        try:
            inner(v)
        except SelectorError:
            return False
        return True

    return run


_FUNCTIONS: Mapping[str, Callable[[Eval], Eval]] = {
    "has": _has,
    "quantity": lambda inner: lambda v: quantity_of(inner(v)),
    "semver": lambda inner: lambda v: version_from(str(inner(v))),
}
