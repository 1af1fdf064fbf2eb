"""The packing benchmark's border: its JSON lines, its table, and what it refuses."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.packing import main as packing
from benchmarks.scale import main as scale
from placement.policies import POLICIES
from simulator.openb.generator import generate, write_openb_csv


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A generated fleet of twelve nodes and its pods, as files."""
    folder = tmp_path_factory.mktemp("trace")
    nodes, pods = folder / "nodes.csv", folder / "pods_small.csv"
    write_openb_csv(generate(12, seed=1), nodes, pods)
    return str(nodes), str(pods)


def run(trace: tuple[str, str], *more: str) -> Result:
    return CliRunner().invoke(packing, ["--nodes", trace[0], "--pods", trace[1], *more])


def without_times(line: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(line).items() if key not in ("decision_ms", "upkeep_s")}


def test_each_run_is_a_json_line_on_stdout_and_words_go_to_stderr(trace: tuple[str, str]) -> None:
    done = run(trace, "--policies", "bestfit,fgd", "--seeds", "42-43", "--json", "-")

    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["policy"], r["seed"]) for r in records] == [("bestfit", 42), ("fgd", 42), ("bestfit", 43), ("fgd", 43)]
    for record in records:
        assert record["pods"] == "pods_small"
        assert set(record["allocation_pct"]) == set(record["fragmentation_pct"]) == {"80", "90", "100", "110", "130"}
        assert set(record["decision_ms"]) == {"mean", "p50", "p99"}
        assert record["moved"] == 0
        assert record["allocation_pct"]["100"] <= record["bound_pct"]["100"] + 1e-6 <= 100.0 + 1e-5
    assert "GPU allocation %" in done.stderr


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"random"}))  # lots are drawn in the order of the table
def test_dealing_names_out_anew_changes_nothing(trace: tuple[str, str], name: str) -> None:
    arguments = ("--policies", name, "--seeds", "42", "--no-bound", "--json", "-")

    plain, renamed = run(trace, *arguments), run(trace, *arguments, "--rename-nodes")

    assert {**without_times(plain.stdout), "renamed": True} == without_times(renamed.stdout)


def test_the_number_of_processes_changes_nothing_but_times(trace: tuple[str, str], tmp_path: Path) -> None:
    arguments = ("--policies", "packing,fgd", "--seeds", "42", "--no-bound", "--json")

    one = run(trace, *arguments, str(tmp_path / "one.jsonl"))
    two = run(trace, *arguments, str(tmp_path / "two.jsonl"), "--jobs", "2")

    assert one.exit_code == two.exit_code == 0, two.output
    lines_one, lines_two = ((tmp_path / f"{n}.jsonl").read_text().splitlines() for n in ("one", "two"))
    assert [{**without_times(line), "jobs": 2} for line in lines_one] == [without_times(line) for line in lines_two]


def test_published_means_are_set_beside(trace: tuple[str, str], tmp_path: Path) -> None:
    published = tmp_path / "published.csv"
    published.write_text("workload,sc_policy,mean,std,arrived_pct\npods_small,05-BestFit,12.345,0.1,100\n")

    done = run(trace, "--policies", "bestfit", "--seeds", "42", "--no-bound", "--published", str(published))

    assert done.exit_code == 0, done.output
    assert "12.35" in done.stdout or "12.34" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--policies", "bestfit,worstfit"), "--policies worstfit: is not a policy"),
        (("--seeds", "42-"), "'42-' is neither a number nor a range"),
        (("--prices", "T4=cheap"), "'T4=cheap' is not a price"),
        (("--prices", "T4=-1"), "a price is finite and not negative"),
        (("--published", "nowhere.csv"), "nowhere.csv: cannot be read"),
    ],
)
def test_wrong_use_ends_with_status_2_and_writes_nothing(
    trace: tuple[str, str], tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = run(trace, *arguments, "--json", str(tmp_path / "out.jsonl"))

    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "out.jsonl").exists()


def test_mistakes_of_several_files_are_told_once_each(trace: tuple[str, str], tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,model\n")

    done = CliRunner().invoke(packing, ["--nodes", str(nodes), "--pods", trace[1], "--pods", trace[1]])

    assert done.exit_code == 2
    assert done.stderr.count("column gpu: is missing") == 1


def test_scale_times_each_policy_on_each_size(tmp_path: Path) -> None:
    out = tmp_path / "scale.jsonl"

    done = CliRunner().invoke(
        scale,
        [
            *("--policies", "bestfit", "--sizes", "100,1300", "--loads", "30"),
            *("--warm-up", "5", "--decisions", "20", "--json", str(out)),
        ],
    )

    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["nodes"] for record in records] == [100, 1300]
    assert all(record["decision_ms"]["mean"] > 0 for record in records)
