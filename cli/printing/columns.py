"""Columns and ages in kubectl's layout, byte for byte, from tables of the API server or a command's own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Table = Mapping[str, Any]
"""meta.k8s.io/v1 Table as plain data."""

LEAST_WIDTH, PADDING = 6, 3
"""Least width of a column, and spaces after its longest cell. Source: kubectl's printers.GetNewTabWriter."""
LEAST_POWER, EXPONENT_FROM = -4, 6
"""Powers of ten between which Go writes a number without an exponent. Source: strconv.FormatFloat with 'g' and -1."""


@dataclass(frozen=True, slots=True)
class Look:
    """Columns to show, besides those of the server."""

    wide: bool = False
    namespaces: bool = False
    headers: bool = True
    kind: str = ""
    """Prefix of each name if several kinds are shown, such as `modelservice.tonnage.dev`."""
    own_headers: bool = False
    """Whether headers stay as they are: names of GPU types have small letters."""


@dataclass(slots=True)
class Sheet:
    """Rows of one kind in columns that never shrink, so that a watch continues below the printed rows."""

    look: Look
    _columns: tuple[Mapping[str, Any], ...] = ()
    _widths: list[int] = field(default_factory=list)
    _has_header: bool = False

    def text(self, tables: Iterable[Table]) -> str:
        """Lines of these tables together, each ending in a line break; empty if there are no rows."""
        rows: list[Sequence[str]] = []
        for table in tables:
            self._columns = tuple(table.get("columnDefinitions") or ()) or self._columns
            rows += [self._cells(row) for row in table.get("rows") or ()]
        if rows and self.look.headers and not self._has_header:
            names = [str(self._columns[n]["name"]) for n in self._shown()]
            names = names if self.look.own_headers else [name.upper() for name in names]
            rows.insert(0, [*(["NAMESPACE"] if self.look.namespaces else []), *names])
            self._has_header = True
        for row in rows:
            self._widths += [LEAST_WIDTH] * (len(row) - len(self._widths))
            for n, cell in enumerate(row[:-1]):
                self._widths[n] = max(self._widths[n], len(cell) + PADDING)
        lines = []
        for row in rows:
            before = "".join(cell.ljust(width) for cell, width in zip(row[:-1], self._widths, strict=False))
            lines.append(f"{before}{row[-1] if row else ''}\n")
        return "".join(lines)

    def _shown(self) -> list[int]:
        return [n for n, column in enumerate(self._columns) if self.look.wide or not column.get("priority")]

    def _cells(self, row: Mapping[str, Any]) -> Sequence[str]:
        values, metadata = row["cells"], (row.get("object") or {}).get("metadata", {})
        cells = [cell_text(values[n]) for n in self._shown() if n < len(values)]
        if self.look.kind and cells:
            cells[0] = f"{self.look.kind}/{cells[0]}"
        before = [metadata.get("namespace", "")] if self.look.namespaces else []
        return [*before, *cells]


def cell_text(value: Any) -> str:
    """Cell as Go prints it: text up to its first line break, numbers without trailing zeros, nothing for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        first = min((at for sign in "\f\n\r" if (at := value.find(sign)) >= 0), default=-1)
        return (value if first < 0 else value[:first] + "...").replace("\x1b", "^[").replace("\r", "\\r")
    if isinstance(value, bool):
        return "true" if value else "false"
    return float_text(value) if isinstance(value, float) else str(value)


def float_text(value: float) -> str:
    """Number as Go's %v: shortest digits, with an exponent from 1e+06 and below 1e-04."""
    from decimal import Decimal

    digits = Decimal(repr(value)).normalize()
    if not value or LEAST_POWER <= digits.adjusted() < EXPONENT_FROM:
        return f"{digits:f}"
    mantissa = digits.scaleb(-digits.adjusted())
    return f"{mantissa:f}e{digits.adjusted():+03d}"


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Header and rows, each line ending in a line break; empty if there are no rows."""
    return sheet().text([as_table(headers, rows)])


def sheet(*, headers: bool = True) -> Sheet:
    """Sheet whose later rows continue below the earlier ones, for a watch."""
    return Sheet(Look(headers=headers, own_headers=True))


def as_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> dict[str, object]:
    return {"columnDefinitions": [{"name": name} for name in headers], "rows": [{"cells": list(row)} for row in rows]}


MINUTE, HOUR, DAY = 60, 3600, 86_400
UNKNOWN = "<unknown>"


def since(instant: str | None, now_s: float) -> str:
    """Age of an instant of an object, such as `4m7s`. now_s: seconds since the epoch."""
    at_s = epoch_s(instant)
    return UNKNOWN if at_s is None else human_duration(now_s - at_s)


def epoch_s(instant: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 instant; None for anything else."""
    try:
        return datetime.fromisoformat(instant).timestamp() if instant else None
    except ValueError:
        return None


def human_duration(for_s: float) -> str:
    """`95s`, `4m7s`, `3h5m`, `2d`. Source: apimachinery's duration.HumanDuration.

    for_s: seconds; negative values, which differing clocks produce, count as 0.
    """
    whole = max(0, int(for_s))
    _, unit_s, unit, part_s, part = next(each for each in _FORMS if whole < each[0])
    rest = whole % unit_s // part_s if part else 0
    return f"{whole // unit_s}{unit}" + (f"{rest}{part}" if rest else "")


_FORMS: tuple[tuple[float, int, str, int, str], ...] = (
    (2 * MINUTE, 1, "s", 1, ""),
    (10 * MINUTE, MINUTE, "m", 1, "s"),
    (3 * HOUR, MINUTE, "m", 1, ""),
    (8 * HOUR, HOUR, "h", MINUTE, "m"),
    (2 * DAY, HOUR, "h", 1, ""),
    (8 * DAY, DAY, "d", HOUR, "h"),
    (2 * 365 * DAY, DAY, "d", 1, ""),
    (8 * 365 * DAY, 365 * DAY, "y", DAY, "d"),
    (float("inf"), 365 * DAY, "y", 1, ""),
)
"""Seconds below which a form holds; its unit in seconds and letters, and the smaller unit beside it."""
