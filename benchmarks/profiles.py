"""Profile files of the mix benchmark: throughput tables, prices and length histograms, with all errors reported.

Two forms are supported. The full one has `input_buckets`, `output_buckets` (upper edges, tokens), `cost_per_hour` (type
→ $), `profiles` (`40ms` → type → table of requests/s, rows by input) and `distributions` (workload → table of shares).
The short one has `gpu_info` (type → `cost`, `tputs`), `workload_distribution`, `total_request_rate` and `slice_factor`:
one workload, one SLO, both called `given`.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import LengthGrid, Slo
from cluster.errors import ConfigError, Mistake
from placement.mix.problem_builder import HISTOGRAM_TOLERANCE

GIVEN = "given"
"""Name of the only workload and SLO in a file of the short form."""


@dataclass(frozen=True, slots=True, eq=False)
class ProfileSet:
    """Inputs of GPU mixes for several workloads and SLOs."""

    grid: LengthGrid
    prices: Mapping[str, float]
    """US dollars per hour of one instance, by GPU type."""
    tables: Mapping[str, Mapping[str, FloatArray]]
    """Requests per second by SLO and GPU type, shape of the grid."""
    slos: Mapping[str, Slo]
    workloads: Mapping[str, FloatArray]
    """Fraction per bucket by workload, shape of the grid."""
    rates: tuple[float, ...] = (1, 2, 4, 8, 16, 32)
    slice_factor: int = 8


def read_profiles(path: Path) -> ProfileSet:
    """Profiles of a file. Raises ConfigError with all errors of the file."""
    read = _Reader(str(path))
    try:
        content = json.loads(path.read_text(), object_pairs_hook=read.unique)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as wrong:
        raise ConfigError(Mistake(str(path), f"cannot be read as JSON: {wrong}")) from wrong
    if not isinstance(content, dict):
        raise ConfigError(Mistake(str(path), "is not a JSON object"))
    profiles = _short_form(content, read) if "gpu_info" in content else _full_form(content, read)
    read.raise_mistakes()
    return profiles


class _Reader:
    """Converts JSON values, and collects the errors with their places."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.mistakes: list[Mistake] = []

    def wrong(self, place: str, problem: str, remedy: str = "") -> None:
        self.mistakes.append(Mistake(f"{self.file}, {place}" if place else self.file, problem, remedy))

    def raise_mistakes(self) -> None:
        if self.mistakes:
            raise ConfigError(tuple(self.mistakes))

    def unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.wrong(name, "this name appears twice in one object", "give each its own name")
        return dict(pairs)

    def section(self, content: Mapping[str, Any], key: str, place: str = "") -> Mapping[str, Any]:
        value = content.get(key)
        if not isinstance(value, dict) or not value:
            self.wrong(f"{place}{key}", "is missing, empty or not an object")
            return {}
        return value

    def number(self, value: object, place: str, *, above: float = -math.inf) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(place, f"is {value!r}", "give a number")
            return 1.0
        if not math.isfinite(value) or value < 0 or value <= above:
            self.wrong(place, f"is {value}", "give a finite number, " + ("above 0" if above == 0 else "0 or more"))
            return 1.0
        return float(value)

    def edges(self, content: Mapping[str, Any], key: str) -> tuple[int, ...]:
        value = content.get(key)
        whole = isinstance(value, list) and all(isinstance(e, int) and not isinstance(e, bool) for e in value)
        if not whole or not value or value[0] <= 0 or sorted(set(value)) != value:
            self.wrong(key, f"is {value!r}", "give upper edges in tokens, above 0 and strictly rising")
            return (1,)
        return tuple(value)

    def table(self, value: object, place: str, shape: tuple[int, int]) -> FloatArray:
        if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
            self.wrong(place, "is missing or not a table", "give one row per input bucket")
            return np.zeros(shape)
        lengths = sorted({len(row) for row in value})
        if len(value) != shape[0] or lengths != [shape[1]]:
            found = f"{len(value)} rows of {' or '.join(map(str, lengths)) or 0} entries"
            self.wrong(place, f"has {found}", f"the buckets are {shape[0]} × {shape[1]}: give every one, and no other")
            return np.zeros(shape)
        return np.array(
            [[self.number(v, f"{place}[{i}][{j}]") for j, v in enumerate(row)] for i, row in enumerate(value)]
        )

    def histogram(self, value: object, place: str, shape: tuple[int, int]) -> FloatArray:
        before = len(self.mistakes)
        share = self.table(value, place, shape)
        if len(self.mistakes) == before and abs(share.sum() - 1) > HISTOGRAM_TOLERANCE:
            self.wrong(place, f"adds up to {share.sum():g}", f"shares add up to 1 (within {HISTOGRAM_TOLERANCE:g})")
        return share


def _full_form(content: Mapping[str, Any], read: _Reader) -> ProfileSet:
    grid = LengthGrid(read.edges(content, "input_buckets"), read.edges(content, "output_buckets"))
    costs = read.section(content, "cost_per_hour")
    prices = {name: read.number(cost, f"cost_per_hour.{name}", above=0) for name, cost in costs.items()}
    tables: dict[str, dict[str, FloatArray]] = {}
    slos = {}
    for label, by_type in read.section(content, "profiles").items():
        place = f"profiles.{label}"
        slos[label] = slo_from(label, partial(read.wrong, place, remedy="name it like 40ms"))
        by_type = by_type if isinstance(by_type, dict) else {}
        for name in sorted(by_type.keys() - prices.keys()):
            read.wrong(f"{place}.{name}", "is a GPU type without a price", "add it to cost_per_hour")
        tables[label] = {name: read.table(by_type.get(name), f"{place}.{name}", grid.shape) for name in prices}
    shares = {
        name: read.histogram(share, f"distributions.{name}", grid.shape)
        for name, share in read.section(content, "distributions").items()
    }
    _reject_useless(tables, read)
    return ProfileSet(grid, prices, tables, slos, shares)


def _short_form(content: Mapping[str, Any], read: _Reader) -> ProfileSet:
    info = read.section(content, "gpu_info")
    entries = {name: entry if isinstance(entry, dict) else {} for name, entry in info.items()}
    shape = _shape_of(content.get("workload_distribution"))
    # This form has no lengths. Buckets are numbered from 1; a fixed headroom does not depend on them.
    grid = LengthGrid(tuple(range(1, shape[0] + 1)), tuple(range(1, shape[1] + 1)))
    tables = {GIVEN: {name: read.table(e.get("tputs"), f"gpu_info.{name}.tputs", shape) for name, e in entries.items()}}
    _reject_useless(tables, read)
    factor = content.get("slice_factor", 8)
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
        read.wrong("slice_factor", f"is {factor!r}", "give a whole number, 1 or more")
        factor = 1
    return ProfileSet(
        grid=grid,
        prices={name: read.number(e.get("cost"), f"gpu_info.{name}.cost", above=0) for name, e in entries.items()},
        tables=tables,
        slos={GIVEN: Slo(1.0)},
        workloads={GIVEN: read.histogram(content.get("workload_distribution"), "workload_distribution", shape)},
        rates=(read.number(content.get("total_request_rate"), "total_request_rate", above=0),),
        slice_factor=factor,
    )


def _shape_of(table: object) -> tuple[int, int]:
    rows = table if isinstance(table, list) else []
    return max(1, len(rows)), max((len(row) for row in rows if isinstance(row, list)), default=1)


def _reject_useless(tables: Mapping[str, Mapping[str, FloatArray]], read: _Reader) -> None:
    """Report SLOs and types with zeros only. One table of zeros is valid (the type cannot meet that SLO); zeros
    everywhere mean that something was not measured."""
    if read.mistakes:
        return
    for label, by_type in tables.items():
        if not any(table.any() for table in by_type.values()):
            read.wrong(f"profiles.{label}", "every throughput is 0", "no type can serve anything: measure again")
    for name in next(iter(tables.values()), {}):
        if not any(by_type[name].any() for by_type in tables.values()):
            read.wrong(f"profile of {name}", "every throughput at every SLO is 0", "remove the type or measure again")


def slo_from(label: str, wrong: Callable[[str], None]) -> Slo:
    """SLO of `40ms` or `0.04s`; `wrong` is called with the problem of any other label."""
    for unit, seconds in (("ms", 1e-3), ("s", 1.0)):
        number = label.removesuffix(unit)
        if number != label:
            try:
                value = float(number)
            except ValueError:
                break
            if math.isfinite(value) and value > 0:
                return Slo(round(value * seconds, 9))
            break
    wrong(f"{label!r} is not a time per token")
    return Slo(1.0)
