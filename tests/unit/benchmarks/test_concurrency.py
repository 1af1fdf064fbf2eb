"""Benchmark of concurrency tuners: a line per run, and wrong names are refused."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.concurrency import main


def test_each_workload_seed_and_policy_gives_a_line(tmp_path: Path) -> None:
    lines = tmp_path / "runs.json"
    arguments = ["--seeds", "1-2", "--workloads", "peaked", "--policies", "safe-bandit,static-knative"]

    done = CliRunner().invoke(main, [*arguments, "--decisions", "120", "--json", str(lines)])

    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(each["seed"], each["policy"], each["start"]) for each in records] == [
        (1, "safe-bandit", 8),
        (1, "static-knative", 100),
        (2, "safe-bandit", 8),
        (2, "static-knative", 100),
    ]
    assert all(each["simulated"] and each["best_limit"] >= 1 for each in records)


def test_an_unknown_policy_is_named() -> None:
    done = CliRunner().invoke(main, ["--policies", "guess"])

    assert done.exit_code == 2
    assert "'guess' is none of safe-bandit" in done.output
