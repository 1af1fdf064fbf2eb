"""Columns in kubectl's spacing, for what is not a table of the server's."""

from collections.abc import Iterable, Sequence

from cli.printing.server_table import Look, Sheet


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Header and rows, each line ending in a line break; nothing when there are no rows."""
    return sheet().text([as_table(headers, rows)])


def sheet(*, headers: bool = True) -> Sheet:
    """What goes on below what was printed, for a watch."""
    return Sheet(Look(headers=headers))


def as_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> dict[str, object]:
    return {"columnDefinitions": [{"name": name} for name in headers], "rows": [{"cells": list(row)} for row in rows]}
