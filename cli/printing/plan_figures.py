"""Figures of a plan in print: numbers, money, instances, reasons and routes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

from cluster.plans import Reason, ServicePlan
from cluster.workloads import InstanceType

Document = dict[str, Any]


def figure(value: float | None) -> float | None:
    """Number for a document, rounded to nine places and twelve digits, so that all machines write the same."""
    if value is None or not isfinite(value):
        return None
    return float(f"{round(float(value), 9):.12g}") + 0.0  # + 0.0 turns -0.0 into 0.0


def routes(service: ServicePlan) -> Iterator[Document]:
    """One entry per bucket with demand: its largest lengths, and each instance type's fraction of the requests."""
    routing = service.routing
    if routing is None:
        return
    for i, j in np.argwhere(routing.weight.sum(axis=2) > 0).tolist():
        shares = zip(map(str, routing.instance_types), routing.weight[i, j].tolist(), strict=True)
        yield {
            "input_tokens": routing.grid.input_tokens[i],
            "output_tokens": routing.grid.output_tokens[j],
            "shares": {name: figure(share) for name, share in sorted(shares) if share > 0},
        }


def plain(value: Any) -> Any:
    """A value of a plan as a document has it: rounded numbers, sorted mappings, and dataclasses by their fields."""
    match value:
        case Reason():
            figures = {name: figure(number) for name, number in sorted(value.figures.items())}
            return {"code": value.code, "words": value.words, "figures": figures}
        case tuple() | list():
            return [plain(each) for each in value]
        case Mapping():
            return {str(name): plain(each) for name, each in sorted(value.items())}
        case float():
            return figure(value)
    return {each.name: plain(getattr(value, each.name)) for each in fields(value)} if is_dataclass(value) else value


def named(counts: Mapping[InstanceType, Any]) -> dict[str, Any]:
    """Instances by the names of their types, sorted."""
    return {each.name: count for each, count in sorted(counts.items())}


def instances(counts: Mapping[InstanceType, int] | Mapping[str, int]) -> str:
    """Instances by instance type, such as `3 × a10g + 1 × a100`."""
    return " + ".join(f"{count} × {name}" for name, count in counts.items() if count) or "none"


def money(dollars: float | None) -> str:
    return "-" if dollars is None else f"{dollars:,.2f}"


SMALLEST_GAP = 5e-5
"""Gap below which a table's GAP column shows 0.00 %."""


def gap_words(gap: float | None) -> str:
    """`gap 3.3 %`; empty if the mix is proven optimal to the printed precision."""
    if gap is None or gap < SMALLEST_GAP:
        return ""
    return f"gap {max(0.1, 100 * gap):.1f} %"


def written(data: Document, output: str) -> str:
    """Text of a document as `json` or `yaml`; the same document always gives the same text."""
    if output == "json":
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    import yaml

    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120))
