"""PromQL of one service: a preset's expressions with matchers that no label of a policy can widen."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import Template
from typing import Any

from autoscaler.demand.presets import LengthOf, Preset, Quantity

QUANTITY = "tonnage_quantity"
"""Label that tells the results of a combined query apart."""
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_MATCHED = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=")


class BadLabelsError(ValueError):
    """Labels of a policy that a preset cannot use."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of rates, seconds."""

    rate_s: float = 60.0
    """Window of rates; at least two scrape intervals, or there is nothing to subtract."""
    lengths_s: float = 3600.0
    """Window of request lengths; long, because lengths change slower than rates."""


@dataclass(frozen=True, slots=True)
class Service:
    """Matchers of the series of one service."""

    matchers: str
    without_model: str
    """The same without a matcher of the label `model`."""


def service_of(preset: Preset, namespace: str, labels: Mapping[str, str]) -> Service:
    """Matchers of a policy's service, limited to its namespace.

    Raises BadLabelsError for labels that are missing, malformed, or set by the preset itself.
    """
    for name in preset.required:
        if name not in labels:
            raise BadLabelsError(f"preset {preset.name} needs the label {name}")
    in_scope = {name: labels[name] for name in preset.required if f"{{{name}}}" in preset.scope}
    for value in (namespace, *in_scope.values()):
        if not _OBJECT_NAME.fullmatch(value):
            raise BadLabelsError(f"{value!r} is no name of an object")
    pattern = "=~" in preset.scope
    scope = preset.scope.format(
        **{name: _in_pattern(value) if pattern else value for name, value in in_scope.items()},
        namespace=_in_pattern(namespace) if pattern else namespace,
    )
    taken = {*_MATCHED.findall(re.sub(r'"[^"]*"', "", preset.scope)), "__name__"}
    rest = {name: value for name, value in labels.items() if name not in in_scope}
    for name in rest:
        if name in taken or not _LABEL_NAME.fullmatch(name):
            raise BadLabelsError(f"the label {name!r} cannot be chosen with preset {preset.name}")
    every = [scope, *(f'{name}="{escaped(value)}"' for name, value in sorted(rest.items()))]
    return Service(",".join(every), ",".join(each for each in every if not each.startswith("model=")))


def escaped(value: str) -> str:
    """Text inside a PromQL string in double quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def combined(preset: Preset, service: Service, quantities: Iterable[Quantity], windows: Windows) -> str:
    """One query for several quantities, so that they describe the same instant; each result is named by QUANTITY.

    Quantities that the preset does not have are left out; empty: none is left.
    """
    expressions = {name: preset.expressions[name] for name in quantities if name in preset.expressions}
    return labelled(expressions, service, windows)


def labelled(expressions: Mapping[Any, str], service: Service, windows: Windows) -> str:
    """One query for several expressions of a preset; each result has the expression's key as its label QUANTITY."""
    return " or ".join(
        f'label_replace({_filled(expression, service, windows)}, "{QUANTITY}", "{name}", "", "")'
        for name, expression in expressions.items()
    )


def lengths_query(preset: Preset, service: Service, which: LengthOf, windows: Windows) -> str:
    """Query of the buckets of request lengths; empty where the preset has none."""
    return _filled(preset.lengths[which], service, windows) if which in preset.lengths else ""


def _filled(expression: str, service: Service, windows: Windows) -> str:
    return Template(expression).substitute(
        m=service.matchers,
        o=service.without_model,
        w=_duration(windows.rate_s),
        s=f"{windows.rate_s:g}",
        l=_duration(windows.lengths_s),
    )


def _duration(length_s: float) -> str:
    return f"{round(length_s * 1000)}ms"


def _in_pattern(name: str) -> str:
    """Name of an object inside a regular expression inside a PromQL string."""
    return name.replace(".", "\\\\.")
