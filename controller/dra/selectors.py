"""CEL selectors of devices, evaluated by Google's CEL with the functions that kube-scheduler adds to it.

Those are `quantity()` and `semver()` with their comparisons, and the extensions for strings, bindings and optional
values. Values behave as in kube-scheduler: a missing domain is empty, a missing attribute is an error, and values of
different types are never equal. Source: Kubernetes 1.36, dynamic-resource-allocation/cel/compile.go.
"""

import re
import time
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from controller.api.notation import quantity
from controller.dra.objects import Attribute, Device

if TYPE_CHECKING:
    from cel_expr_python import cel

LONGEST = 10_240
"""Most characters of a selector. Source: resource/v1 types.go, `CELSelectorExpressionMaxLength`."""
ALLOWED_S, ALLOWED_EACH_S = 0.05, 0.0005
"""CPU time that a selector may take in all, and more for each device. Chosen: hand-written ones take 20 µs a device.
Anybody who may create a ResourceClaim may write one whose loops take milliseconds on each of 8,000 devices."""

_DOMAIN = re.compile(r"""\[\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\]""")
_VERSION = re.compile(r"(\d{1,18}\.\d{1,18}\.\d{1,18})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class UnsupportedSelectorError(ValueError):
    """The expression is not valid CEL, or uses an unsupported part of it."""


class SelectorError(ValueError):
    """The expression cannot be evaluated for a device, for example because the device lacks an attribute."""


class Selector:
    """Compiled selector."""

    def __init__(self, text: str) -> None:
        """Raises UnsupportedSelectorError."""
        if len(text) > LONGEST:
            raise UnsupportedSelectorError(f"a selector of {len(text)} characters is too long, the limit is {LONGEST}")
        self.text = text
        try:
            self._expression = _environment().compile(text)
        except RuntimeError as error:
            words = str(error).partition("Syntax error: ")[2] or str(error).partition("<input>")[2] or str(error)
            raise UnsupportedSelectorError(f"{text!r} is not supported: {words.splitlines()[0][:200]}") from error
        self.domains = frozenset(single or double for single, double in _DOMAIN.findall(text))
        """Domains that it names; those that a device lacks must be among its facts, empty."""
        self._evaluations = 0
        self._spent_s = 0.0

    def matches(self, driver: str, device: Device) -> bool:
        """Whether it selects the device. Raises SelectorError when it cannot be evaluated."""
        return self.selects(facts_of(driver, device, self.domains))

    def selects(self, facts: "cel.Activation") -> bool:
        """Whether it selects the device with these facts, likewise."""
        if self._spent_s > ALLOWED_S + ALLOWED_EACH_S * self._evaluations:
            raise SelectorError(f"{self.text!r} takes too long to evaluate")
        start_s = time.thread_time()
        try:
            found = self._expression.eval(activation=facts).value()
        except (RuntimeError, MemoryError) as error:
            raise SelectorError(f"{self.text!r}: {error}") from error
        finally:
            self._evaluations += 1
            self._spent_s += time.thread_time() - start_s
        if isinstance(found, bool):
            return found
        code, _, words = str(found).partition(": ")
        raise SelectorError(words if code.isupper() else f"{self.text!r} is not true or false")


selector = lru_cache(maxsize=1024)(Selector)
"""Selector of a CEL expression, compiled once. Raises UnsupportedSelectorError."""


def facts_of(driver: str, device: Device, domains: Collection[str]) -> "cel.Activation":
    """What selectors that name these domains may ask of a device.

    Raises SelectorError where it has what is not supported.
    """
    attributes: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    for name, attribute in device.attributes.items():
        domain, _, bare = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[bare] = value_of(attribute)
    capacity: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    for name, amount in device.capacity.items():
        domain, _, bare = name.rpartition("/")
        try:
            capacity.setdefault(domain or driver, {})[bare] = _quantity(str(amount.value))
        except ValueError as error:  # a driver may publish any amount, negative ones too
            raise SelectorError(f"the capacity {name} {error}") from error
    facts = {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": attributes,
        "capacity": capacity,
    }
    return _environment().Activation(data={"device": facts})


def value_of(attribute: Attribute) -> Any:
    """Value of an attribute in CEL. Raises SelectorError for an unsupported type."""
    for value in (attribute.integer, attribute.boolean, attribute.string):
        if value is not None:
            return value
    if attribute.version is not None:
        return _semver(attribute.version)
    raise SelectorError("an attribute is a list, which is not supported")


@cache
def _environment() -> "cel.Env":
    """CEL of kube-scheduler. Quantities and versions, of which the library has no types, are maps with one key."""
    # 11 MB, which only operators that read ResourceClaims need.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    text, values, boolean = cel.Type.STRING, cel.Type.MAP, cel.Type.BOOL
    two = [values, values]
    functions = [
        cel.FunctionDecl("quantity", [cel.Overload("string_to_quantity", values, [text], False, _quantity)]),
        cel.FunctionDecl("semver", [cel.Overload("string_to_semver", values, [text], False, _semver)]),
        cel.FunctionDecl("compareTo", [cel.Overload("compare_to", cel.Type.INT, two, True, _compared)]),
        cel.FunctionDecl("isGreaterThan", [cel.Overload("is_greater_than", boolean, two, True, _is_greater)]),
        cel.FunctionDecl("isLessThan", [cel.Overload("is_less_than", boolean, two, True, _is_less)]),
    ]
    extensions = [ext_bindings.ExtBindings(), ext_strings.ExtStrings(), ext_optional.ExtOptional()]
    return cel.NewEnv(variables={"device": cel.Type.DYN}, extensions=extensions, functions=functions)


def _quantity(written: str) -> dict[str, str]:
    """Quantity in a form that is equal for equal amounts. Raises ValueError."""
    return {"quantity": format(quantity(written).normalize(), "f")}


def _semver(written: str) -> dict[str, str]:
    """Semantic version without its build metadata, which does not count. Raises SelectorError."""
    match = _VERSION.fullmatch(written)
    if match is None:
        raise SelectorError(f"{written!r} is not a semantic version")
    core, pre = match.groups()
    numbers = ".".join(str(int(number)) for number in core.split("."))
    return {"semver": f"{numbers}-{pre}" if pre else numbers}


def _compared(a: Mapping[str, str], b: Mapping[str, str]) -> int:
    """Order of two quantities or two versions: -1, 0 or 1. Raises ValueError for anything else.

    Source of the latter: semver.org 2.0.0, section 11.
    """
    if a.keys() != b.keys() or a.keys() not in ({"quantity"}, {"semver"}):
        raise ValueError(f"{a!r} and {b!r} cannot be compared")
    low, high = (
        quantity(each["quantity"]) if "quantity" in each else _version_order(each["semver"]) for each in (a, b)
    )
    return int(low > high) - int(low < high)


def _is_greater(a: Mapping[str, str], b: Mapping[str, str]) -> bool:
    return _compared(a, b) > 0


def _is_less(a: Mapping[str, str], b: Mapping[str, str]) -> bool:
    return _compared(a, b) < 0


def _version_order(version: str) -> Any:
    """Sort key: numbers before words, and a release after all of its pre-releases."""
    core, is_early, pre = version.partition("-")
    parts = tuple((0, int(p), "") if p.isdigit() and len(p) < 19 else (1, 0, p) for p in pre.split("."))
    return tuple(map(int, core.split("."))), not is_early, parts if is_early else ()
