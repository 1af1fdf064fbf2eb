"""Columns in kubectl's spacing, for tables that the server did not make."""

from collections.abc import Iterable, Sequence

from cli.printing.server_table import Look, Sheet


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Header and rows, each line ending in a line break; empty if there are no rows."""
    return sheet().text([as_table(headers, rows)])


def sheet(*, headers: bool = True) -> Sheet:
    """Sheet whose later rows continue below the earlier ones, for a watch."""
    return Sheet(Look(headers=headers, own_headers=True))


def as_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> dict[str, object]:
    return {"columnDefinitions": [{"name": name} for name in headers], "rows": [{"cells": list(row)} for row in rows]}
