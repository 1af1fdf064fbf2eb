"""The one writer of results: rows as JSON lines, and as a table in text or Markdown."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks.cases import Case, Row
from cli.printing.tables import table
from cluster.arrays import FloatArray


def json_line(row: Mapping[str, Any]) -> str:
    """One row; JSON has no NaN and no infinity, which become null."""
    return json.dumps(_plain(row))


def text_of(case: Case, rows: Sequence[Row]) -> str:
    """The table of a case."""
    if not rows:
        return "no results\n"
    lines = list(case.summary(rows)) if case.summary else rows
    flat = [dict(_flat(row)) for row in lines]
    if case.by and case.summary is None:
        flat = joined(flat, case.by, case.middle)
    every = dict.fromkeys(key for row in flat for key in row if key != "wrong")
    keys = [key for wanted in case.columns or every for key in every if key == wanted or key.startswith(f"{wanted}.")]
    return table(
        [key.replace("_", " ").upper() for key in keys], [[shown(row.get(key)) for key in keys] for row in flat]
    )


def joined(rows: Sequence[Row], by: Sequence[str], middle: str = "mean") -> list[Row]:
    """One row for all that are equal under `by`: its numbers are the mean (least to most), the median or the worst."""
    found = []
    for key, own in grouped(rows, *by).items():
        row: Row = dict(zip(by, key, strict=True))
        for name in dict.fromkeys(name for each in own for name in each if name not in by and name != "seed"):
            values = [each[name] for each in own if each.get(name) is not None]
            if values and all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
                row[name] = _middle(values, middle)
            else:
                row[name] = values[0] if len({str(value) for value in values}) == 1 else None
        if len(own) > 1:
            row["runs"] = len(own)
        found.append(row)
    return found


def grouped(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by their values under these keys, in the order in which those come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return found


def with_error(values: FloatArray, *, signed: bool = True) -> str:
    """Mean over seeds with its standard error, of two seeds or more."""
    mean = f"{values.mean():+.2f}" if signed else f"{values.mean():.2f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.2f}"


def shown(value: object) -> str:
    """A value as the cell of a table."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "NO"
        case float():
            return f"{value:,.4g}" if abs(value) < 1 else f"{value:,.2f}"
        case int():
            return f"{value:,}"
        case list() | tuple():
            return ", ".join(map(shown, value))
    return str(value)


def _middle(values: Sequence[float], middle: str) -> object:
    if middle == "worst" or len(values) == 1:
        return max(values)
    if middle == "median":
        return median(values)
    least, most = min(values), max(values)
    return least if least == most else f"{shown(fmean(values))} ({shown(least)} to {shown(most)})"


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
