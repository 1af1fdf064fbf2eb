"""Tables of the API server, laid out as kubectl lays them out."""

from typing import Any

import pytest

from cli.printing.columns import Look, Sheet, cell_text


def table(*rows: list[Any], columns: tuple[str, ...] = ("Name", "Age")) -> dict[str, Any]:
    made = [
        {"cells": cells, "object": {"metadata": {"namespace": "ns", "labels": {"b": "2", "a": "1"}}}} for cells in rows
    ]
    return {"columnDefinitions": [{"name": name} for name in columns], "rows": made}


def test_a_column_is_three_wider_than_its_widest_cell_and_at_least_six() -> None:
    assert Sheet(Look()).text([table(["a", "5s"])]) == "NAME   AGE\na      5s\n"
    assert Sheet(Look(headers=False)).text([table(["a", "5s"])]) == "a     5s\n"


def test_pages_of_one_list_share_their_columns() -> None:
    second = {"columnDefinitions": [], "rows": table(["longest-name", "1s"])["rows"]}

    assert Sheet(Look()).text([table(["a", "5s"]), second]).splitlines() == [
        "NAME           AGE",
        "a              5s",
        "longest-name   1s",
    ]


def test_what_a_watch_adds_keeps_the_columns_and_has_no_second_header() -> None:
    sheet = Sheet(Look())
    sheet.text([table(["longest-name", "5s"])])

    assert sheet.text([table(["a", "6s"])]) == "a              6s\n"


def test_columns_of_lesser_priority_are_for_wide_output() -> None:
    made = table(["a", "secret"])
    made["columnDefinitions"][1]["priority"] = 1

    assert Sheet(Look()).text([made]) == "NAME\na\n"
    assert "secret" in Sheet(Look(wide=True)).text([made])


def test_namespaces_and_kinds_stand_where_kubectl_has_them() -> None:
    look = Look(namespaces=True, kind="gang.tonnage.dev")

    line = Sheet(look).text([table(["a", "5s"])]).splitlines()[1]

    assert line.split() == ["ns", "gang.tonnage.dev/a", "5s"]


def test_nothing_is_printed_where_there_are_no_rows() -> None:
    assert Sheet(Look()).text([table()]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "true"), (7, "7"), (3.67, "3.67"), (0.4, "0.4"), (1234567.5, "1.2345675e+06"),
     (0.00001, "1e-05"), (100.25, "100.25"), ("two\nlines", "two...")],
)  # fmt: skip
def test_a_cell_reads_as_go_prints_it(value: Any, text: str) -> None:
    assert cell_text(value) == text
