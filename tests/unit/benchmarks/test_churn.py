"""The churn benchmark's border: its JSON lines, its table, and what it refuses."""

import json

import pytest
from click.testing import CliRunner, Result

from benchmarks.churn import main as churn
from simulator.openb.generator import generate, write_openb_csv


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A generated fleet of twelve nodes and its pods, as files."""
    folder = tmp_path_factory.mktemp("trace")
    nodes, pods = folder / "nodes.csv", folder / "pods_small.csv"
    write_openb_csv(generate(12, seed=1), nodes, pods)
    return str(nodes), str(pods)


def run(trace: tuple[str, str], *more: str) -> Result:
    return CliRunner().invoke(churn, ["--nodes", trace[0], "--pods", trace[1], *more])


def test_each_run_is_a_json_line_and_the_table_shows_paired_differences(trace: tuple[str, str]) -> None:
    done = run(trace, "--policies", "bestfit,fgd", "--loads", "0.8,1", "--seeds", "1-2", "--json", "-")

    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["load"], r["seed"], r["policy"]) for r in records] == [
        (load, seed, policy) for load in (0.8, 1.0) for seed in (1, 2) for policy in ("bestfit", "fgd")
    ]
    assert all(0 < r["allocation_pct"] <= 100 for r in records)
    assert "fgd - bestfit" in done.stderr
    assert "±" in done.stderr


def test_all_policies_meet_the_same_arrivals(trace: tuple[str, str]) -> None:
    done = run(trace, "--policies", "bestfit,packing", "--loads", "0.1", "--seeds", "1", "--json", "-")

    one, two = (json.loads(line) for line in done.stdout.splitlines())
    # A nearly empty fleet refuses no pod, so the policies differ in nothing that is counted.
    assert (one["unplaced"], two["unplaced"]) == (0, 0)
    assert one["allocation_pct"] == two["allocation_pct"]


def test_the_number_of_processes_changes_nothing_but_times(trace: tuple[str, str]) -> None:
    arguments = ("--policies", "bestfit,fgd", "--loads", "1", "--seeds", "1", "--json", "-")
    lines = [run(trace, *arguments, "--jobs", jobs).stdout.splitlines() for jobs in ("1", "2")]

    one, two = ([{**json.loads(line), "decision_cpu_ms": 0, "upkeep_cpu_s": 0} for line in some] for some in lines)
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "mistake"),
    [
        (("--policies", "worstfit"), "--policies worstfit: is not a policy"),
        (("--loads", "full"), "'full' is not a number"),
        (("--loads", "0"), "'0' is not positive"),
        (("--pods", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_bad_input_is_refused_before_the_first_run(
    trace: tuple[str, str], arguments: tuple[str, ...], mistake: str
) -> None:
    done = run(trace, *arguments)

    assert done.exit_code == 2
    assert mistake in done.output
