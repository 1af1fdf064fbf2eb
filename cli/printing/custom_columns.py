"""`-o custom-columns=`: columns defined by the user, in kubectl's layout."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cli.printing.jsonpath import field_values
from cli.printing.server_table import NONE, float_text
from cluster.errors import ConfigError, Mistake

OPTION = "-o custom-columns="


@dataclass(frozen=True, slots=True)
class CustomColumns:
    headers: tuple[str, ...]
    values_of: tuple[Callable[[Any], list[Any]], ...]
    """Function of each column that returns its values in an object."""

    def table(self, objects: Iterable[Any]) -> dict[str, object]:
        """Rows in the form of a server's table, for a Sheet."""
        rows = [{"cells": [_cell(values(obj)) for values in self.values_of]} for obj in objects]
        return {"columnDefinitions": [{"name": header} for header in self.headers], "rows": rows}


def custom_columns(spec: str) -> CustomColumns:
    """Columns of `NAME:.metadata.name,GPUS:.spec.gpus`. Raises ConfigError."""
    parts = [part.partition(":") for part in spec.split(",")]
    wrong = [f"{header}{colon}{path}" for header, colon, path in parts if not (header and colon and path)]
    if wrong:
        raise ConfigError(Mistake(OPTION + spec, f"{wrong[0]!r} is not a column", "write HEADER:.path.of.field"))
    return CustomColumns(
        tuple(header for header, _, _ in parts), tuple(field_values(path, option=OPTION) for _, _, path in parts)
    )


def _cell(values: Sequence[Any]) -> str:
    return ",".join(_as_go(value) for value in values) if values else NONE


def _as_go(value: Any) -> str:
    """JSON value as Go prints it (%v)."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case float():
            return float_text(value)
        case dict():
            return f"map[{' '.join(f'{key}:{_as_go(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(_as_go(each) for each in value)}]"
        case _:
            return str(value)
