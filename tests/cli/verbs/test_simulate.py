"""`tonnage simulate placement`: results on standard output, words on standard error, and an honest exit status."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.inputs.sweeps import prices_from, seeds_from
from cli.main import tonnage
from cli.printing.placement_output import widest_that_fits
from cli.printing.terminal import INTERRUPTED
from cli.verbs import simulate_day
from cluster.errors import ConfigError
from simulator.day.simulation import DayMoment
from simulator.openb.generator import generate
from tests.builders.manifests import gpu_type, node, pod, written
from tests.builders.openb_files import write_openb_csv
from tests.builders.summaries import summary

SMALL = ("--generate", "12", "--policies", "bestfit,fgd", "--seeds", "1-2", "--jobs", "1")


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(tonnage, ["simulate", "placement", *arguments])


@pytest.fixture
def trace(tmp_path: Path) -> tuple[Path, Path]:
    """A node list and a pod list that are in order."""
    write_openb_csv(generate(12, seed=1), tmp_path / "nodes.csv", tmp_path / "pods.csv")
    return tmp_path / "nodes.csv", tmp_path / "pods.csv"


def without_times(text: str) -> object:
    record = json.loads(text)
    for policy in record["policies"]:
        del policy["decision_ms"], policy["upkeep_s"]
    return record


def test_a_generated_fleet_is_replayed_under_each_policy() -> None:
    done = simulate(*SMALL)

    assert done.exit_code == 0
    assert "generated-12-default: 12 nodes" in done.stdout
    assert all(f"\n{policy} " in done.stdout for policy in ("bestfit", "fgd"))
    assert "4/4 generated-12-default fgd seed 2:" in done.stderr
    assert "seed 2:" not in done.stdout


def test_a_narrow_terminal_gets_the_main_columns() -> None:
    def heading(width: int) -> str:
        return widest_that_fits([summary("tonnage", 3.7), summary("fgd", 4.8)], width).splitlines()[0]

    assert "upkeep s" in heading(160)
    assert "upkeep s" not in heading(60)
    assert "allocated %" in heading(60)
    assert "…" not in heading(60)


def test_json_is_the_same_for_any_number_of_jobs_but_for_times() -> None:
    alone, together = (simulate(*SMALL[:-1], jobs, "-o", "json") for jobs in ("1", "2"))

    assert without_times(alone.stdout) == without_times(together.stdout)
    record = json.loads(alone.stdout)
    assert record["simulated"] is True
    # The LP bound, about 97 % for the default mix, holds for what every policy reached.
    bound = record["traces"][0]["allocation_bound_pct"]["100"]
    assert all(policy["allocation_pct"]["100"]["mean"] <= bound < 100 for policy in record["policies"])
    assert [policy["policy"] for policy in record["policies"]] == ["bestfit", "fgd"]
    assert set(record["policies"][0]["allocation_pct"]) == {"80", "90", "100", "110", "end"}


def test_csv_files_are_replayed_as_traces_of_their_names(trace: tuple[Path, Path]) -> None:
    nodes, pods = trace
    again = pods.with_name("openb_pod_list_again.csv")
    again.write_bytes(pods.read_bytes())

    done = simulate("--nodes", str(nodes), "--pods", str(pods), "--pods", str(again), *SMALL[2:], "-o", "json")

    assert [entry["name"] for entry in json.loads(done.stdout)["traces"]] == ["pods", "again"]


def test_the_report_is_written_and_named(tmp_path: Path) -> None:
    target = tmp_path / "out" / "placement.html"

    done = simulate(*SMALL, "--report", str(target))

    assert done.exit_code == 0
    assert f"report: {target}" in done.stderr
    html = target.read_text(encoding="utf-8")
    assert "bestfit" in html
    assert "fgd" in html
    assert "http" not in html


def wrong(*arguments: str, report: Path) -> list[str]:
    """The lines of complaint; checks that nothing but complaining was done."""
    done = simulate(*arguments, "--report", str(report))

    assert done.exit_code == 2
    assert done.stdout == ""
    assert not report.exists()
    return done.stderr.splitlines()


def test_a_missing_column_is_named_with_its_file(trace: tuple[Path, Path]) -> None:
    nodes, pods = trace
    pods.write_text("name,cpu_milli,memory_mib,num_gpu\np0,1000,1024,1\n")

    said = wrong("--nodes", str(nodes), "--pods", str(pods), "--policies", "fgd", report=nodes.with_name("r.html"))

    assert any("pods.csv, line 1, column gpu_milli" in line for line in said)


def test_an_empty_fleet_is_refused(trace: tuple[Path, Path]) -> None:
    nodes, pods = trace
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\n")

    said = wrong("--nodes", str(nodes), "--pods", str(pods), "--policies", "fgd", report=nodes.with_name("r.html"))

    assert any("nodes.csv: the fleet is empty" in line for line in said)


def test_a_fleet_of_zero_nodes_is_refused(tmp_path: Path) -> None:
    assert any("0 nodes are not a fleet" in line for line in wrong("--generate", "0", report=tmp_path / "r.html"))


def test_names_that_occur_twice_are_refused(trace: tuple[Path, Path]) -> None:
    nodes, pods = trace
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,2,T4\na,8000,1024,2,T4\n")

    said = wrong("--nodes", str(nodes), "--pods", str(pods), "--policies", "fgd", report=nodes.with_name("r.html"))

    assert any("nodes.csv, line 3, column sn: 'a' occurs twice (first on line 2)" in line for line in said)


def test_a_fleet_or_pods_without_gpus_are_refused(trace: tuple[Path, Path]) -> None:
    nodes, pods = trace
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,0,\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,0,0\n")

    said = wrong("--nodes", str(nodes), "--pods", str(pods), "--policies", "fgd", report=nodes.with_name("r.html"))

    assert any("the fleet has no GPU" in line for line in said)
    assert any("no pod requests a GPU" in line for line in said)


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    words = (
        "--policies",
        "fgd,nonsense",
        "--seeds",
        "5-1",
        "--prices",
        "T4=cheap",
        "--mix",
        "odd",
        "--generate",
        "-3",
    )

    said = "\n".join(wrong(*words, report=tmp_path / "r.html"))

    for part in ("'nonsense'", "'5-1'", "'T4=cheap'", "'odd'", "-3 nodes"):
        assert part in said
    assert "5 errors" in said


def test_prices_of_types_that_the_fleet_has_not_are_wrong_input() -> None:
    done = simulate("--generate", "5", "--seeds", "1", "--prices", "H100=3")

    assert done.exit_code == 2
    assert "--prices: has no price of a GPU type of the fleet; its types are " in done.stderr


def test_a_report_that_cannot_be_written_is_known_before_the_replays(tmp_path: Path) -> None:
    done = simulate(*SMALL, "--report", str(tmp_path))

    assert done.exit_code == 2
    assert "is a folder" in done.stderr
    assert "seed" not in done.stderr


@pytest.mark.parametrize("words", [(), ("--nodes", "n.csv"), ("--generate", "5", "--pods", "p.csv")])
def test_a_fleet_is_either_read_or_generated(words: tuple[str, ...]) -> None:
    done = simulate(*words)

    assert done.exit_code == 2
    assert "Usage:" in done.stderr


def test_seeds_are_numbers_and_ranges() -> None:
    assert seeds_from("42-44, 7,43") == (42, 43, 44, 7)
    for slip in ("", "a", "3-", "5-4", "-1", "1-999999999"):
        with pytest.raises(ConfigError):
            seeds_from(slip)


def test_prices_are_dollars_by_type() -> None:
    assert prices_from("T4=0.35,G2=1") == {"T4": 0.35, "G2": 1.0}
    assert "G3" in prices_from("")
    with pytest.raises(ConfigError) as slips:
        prices_from("T4,=1,A10=-2,G2=nan,G3=1")
    assert len(slips.value.mistakes) == 4


def test_an_interrupted_day_keeps_the_hours_that_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C after the third of 144 moments, at 0.3 hours of 24."""
    whole = simulate_day.live

    def until_ctrl_c(*given: Any) -> Iterator[DayMoment]:
        yield from islice(whole(*given), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate_day, "live", until_ctrl_c)
    fleet = written(tmp_path, [gpu_type(), node(), pod("p", 1)])

    words = ["simulate", "day", "-f", str(fleet), "--report", str(tmp_path / "day.html")]
    done = CliRunner().invoke(tonnage, words)

    assert done.exit_code == INTERRUPTED
    assert "GPU hours of jobs" in done.stdout
    assert "stopped: interrupted after 0.3 of 24 hours" in done.stderr
    assert "interrupted after 0.3 of 24 hours" in (tmp_path / "day.html").read_text(encoding="utf-8")
