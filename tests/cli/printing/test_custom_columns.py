"""`-o custom-columns=`: what is expected was printed by kubectl 1.36 for the same object."""

from typing import Any

import pytest

from cli.printing.columns import Look, Sheet
from cli.printing.fields import custom_columns
from cluster.errors import ConfigError

OBJECT: Any = {
    "metadata": {"name": "a100", "labels": {"x.y/z": "1"}},
    "price": {"onDemand": 3.67, "spot": 1.47},
    "tags": ["p", "q"],
    "count": 3,
    "ready": True,
    "gone": None,
    "large": 12345678.5,
}


@pytest.mark.parametrize(
    ("path", "cell"),
    [
        (".metadata.name", "a100"),
        ("metadata.name", "a100"),
        ("{.metadata.name}", "a100"),
        (".price", "map[onDemand:3.67 spot:1.47]"),
        (".tags", "[p q]"),
        (".tags[*]", "p,q"),
        (".count", "3"),
        (".ready", "true"),
        (".gone", "<nil>"),
        (".nothing", "<none>"),
        (".large", "1.23456785e+07"),
    ],
)
def test_a_cell_is_what_go_prints(path: str, cell: str) -> None:
    text = Sheet(Look(verbatim=True)).text([custom_columns(f"X:{path}").table([OBJECT])])

    assert text == f"X\n{cell}\n"


def test_columns_are_headed_as_they_were_written_also_above_nothing() -> None:
    columns = custom_columns("Name:.metadata.name,N:.count")

    assert Sheet(Look(verbatim=True)).text([columns.table([])]) == "Name   N\n"
    assert Sheet(Look(verbatim=True, headers=False)).text([columns.table([OBJECT])]) == "a100   3\n"


@pytest.mark.parametrize("spec", ["", "NAME", "NAME:", ":.metadata.name", "NAME:.metadata.name,", "N:{.a}{.b}"])
def test_an_invalid_column_is_an_error(spec: str) -> None:
    with pytest.raises(ConfigError, match="custom-columns"):
        custom_columns(spec)
