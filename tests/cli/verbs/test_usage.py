"""`tonnage usage`: rows by account, and the columns of FOCUS."""

import csv
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from cli.main import tonnage
from cli.verbs.usage import FOCUS, as_focus, as_table, rows_of

USED, IDLE = ("research", "a", "H100", "used"), ("", "", "H100", "idle")
ROWS = rows_of({USED: 7200.0, IDLE: 1800.0, ("", "b", "H100", "used"): 0.0}, {USED: 8.0, IDLE: 2.0})


def test_rows_have_hours_and_dollars_and_none_is_of_nothing() -> None:
    assert [(row["namespace"], row["device_hours"], row["dollars"]) for row in ROWS] == [
        ("", 0.5, 2.0),
        ("a", 2.0, 8.0),
    ]
    assert as_table(ROWS).splitlines()[2].split() == ["research", "a", "H100", "used", "2.00", "8.00"]


def test_a_row_of_focus_has_every_column_and_the_costs_add_up() -> None:
    rows = list(csv.DictReader(io.StringIO(as_focus(ROWS, 0.0, 3600.0))))

    assert list(rows[0]) == list(FOCUS)
    assert sum(float(row["EffectiveCost"]) for row in rows) == pytest.approx(10.0)
    assert rows[1]["ListUnitPrice"] == "4.000000"
    assert (rows[1]["ConsumedQuantity"], rows[1]["x_Team"]) == ("2.000000", "research")
    assert rows[0]["ChargePeriodStart"] == "1970-01-01T00:00:00Z"


def test_the_command_reads_the_answer_of_a_server(tmp_path: Path) -> None:
    labels = {"team": "research", "namespace": "a", "gpu_type": "H100", "state": "used"}
    result: dict[str, Any] = {"metric": labels, "value": [0, "3600"]}
    answer = {"status": "success", "data": {"resultType": "vector", "result": [result]}}
    (tmp_path / "answer.json").write_bytes(msgspec.json.encode(answer))

    done = CliRunner().invoke(tonnage, ["usage", "--prometheus", str(tmp_path / "answer.json")])

    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[1].split()[:5] == ["research", "a", "H100", "used", "1.00"]


def test_a_length_of_time_needs_a_unit() -> None:
    done = CliRunner().invoke(tonnage, ["usage", "--since", "7", "--prometheus", "http://none"])

    assert done.exit_code == 2
    assert "such as 24h" in done.output
