"""`tonnage whatif` on the example fleet."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import tonnage

EXAMPLES = str(Path(__file__).parents[3] / "examples")


def asked(*words: str) -> Result:
    return CliRunner().invoke(tonnage, ["whatif", "-f", EXAMPLES, "--jobs", "1", "--deadline", "60", *words])


def test_every_combination_is_planned_once_and_today_comes_first() -> None:
    result = asked("--demand", "1,2", "--price", "a100=2,3", "-o", "json")

    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert [(s["scenario"]["demand"], s["scenario"]["prices"]) for s in record["scenarios"]] == [
        (1.0, {}),
        (1.0, {"a100": 2.0}),
        (2.0, {"a100": 2.0}),
        (1.0, {"a100": 3.0}),
        (2.0, {"a100": 3.0}),
    ]
    assert record["scenarios"][0]["services_per_hour"] == pytest.approx(60.12)


def test_the_table_and_the_report_say_the_same(tmp_path: Path) -> None:
    report = tmp_path / "what.html"

    result = asked("--nodes", "a100=+1", "--report", str(report))

    assert result.exit_code == 0
    assert "as it is" in result.stdout
    assert "+1 nodes of a100" in result.stdout
    assert "+1 nodes of a100" in report.read_text()


def test_a_second_call_finds_what_the_first_has_done(tmp_path: Path) -> None:
    words = ("--demand", "1,2", "--results", str(tmp_path), "-o", "json")

    first, second = asked(*words), asked(*words)

    assert first.stdout == second.stdout
    assert "2 scenarios were kept" in second.stderr


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("--demand", "-1"), "--demand"),
        (("--demand", "nan"), "--demand"),
        (("--slo", "x"), "--slo"),
        (("--price", "a100"), "--price a100"),
        (("--price", "a100=-1"), "--price a100"),
        (("--price", "a100=1", "--price", "a100=2"), "--price a100"),
        (("--nodes", "a100=1.5"), "--nodes a100"),
        (("--nodes", "b200=+1"), "GPU type 'b200'"),
        (("--policies", "magic"), "--policies 'magic'"),
        (("--seeds", "x"), "--seeds"),
    ],
)
def test_invalid_options_are_reported_and_nothing_is_planned(words: tuple[str, ...], place: str) -> None:
    result = asked(*words)

    assert result.exit_code == 2
    assert place in result.stderr
    assert not result.stdout


def test_each_loss_is_a_line_and_those_that_leave_something_out_are_named() -> None:
    result = asked("--lose", "topology.kubernetes.io/zone")

    assert result.exit_code == 0
    assert "without topology.kubernetes.io/zone=" in result.stdout
    assert "Every pod and service keeps a place in " in result.stdout


def test_a_label_that_no_node_has_is_an_error() -> None:
    result = asked("--lose", "rack")

    assert result.exit_code == 2
    assert "choose from example.com/rack" in result.stderr
