"""The command of the benchmarks: JSON on stdout, words on stderr, and clear errors."""

import json
from collections.abc import Sequence

import pytest
from click.testing import CliRunner, Result

from benchmarks.__main__ import main
from benchmarks.cases import numbers


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_each_result_is_a_json_line_and_the_table_goes_to_stderr() -> None:
    done = run(
        "run", "concurrency", "--quick", "--json", "--seeds", "1-2", "--set", "policies=safe-bandit,static-knative"
    )

    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["seed"], row["policy"], row["start"]) for row in rows] == [
        (1, "safe-bandit", 8),
        (1, "static-knative", 100),
        (2, "safe-bandit", 8),
        (2, "static-knative", 100),
    ]
    assert "POLICY" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("traffik",), "case traffik: is unknown"),
        (("traffic", "--set", "nearness=1"), "traffic has no such input; its inputs are: seeds"),
        (("traffic", "--set", "near=close"), "'close' is no value for it"),
        (("traffic", "--seeds", "42-"), "'42-' is neither a number nor a range"),
        (("traffic", "--jobs", "2"), "input jobs: traffic has no such input"),
        (("mix", "--data", "nowhere"), "there is no nowhere/serving/synthetic_llama2_7b_4gpu.json"),
    ],
)
def test_wrong_use_ends_with_status_2_and_writes_nothing(words: Sequence[str], told: str) -> None:
    done = run("run", *words, "--json")

    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_every_case_and_every_input_of_a_case_is_listed() -> None:
    assert "packing-churn" in run("list").output
    assert "oversubscribed" in run("list", "traffic").output


def test_numbers_are_ranges_and_lists() -> None:
    assert numbers("1-3,42,2") == (1, 2, 3, 42)
