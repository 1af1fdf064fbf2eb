"""The packing benchmark: what its rows say, that names and processes change nothing, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import Row, case_named
from benchmarks.packing import packing, packing_churn
from benchmarks.tables import text_of
from cluster.errors import ConfigError
from simulator.openb.generator import generate
from tests.builders.openb_files import write_openb_csv

Inputs = dict[str, Any]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A generated fleet of twelve nodes and its pods, as files."""
    folder = tmp_path_factory.mktemp("trace")
    nodes, pods = folder / "nodes.csv", folder / "pods_small.csv"
    write_openb_csv(generate(12, seed=1), nodes, pods)
    return {"nodes": nodes, "pods": (pods,)}


def without_times(rows: list[Row]) -> list[Row]:
    times = ("decision_ms", "upkeep_s", "decision_cpu_ms", "upkeep_cpu_s")
    return [{key: value for key, value in row.items() if key not in times} for row in rows]


def test_each_run_is_a_row_whose_allocation_is_at_most_the_bound(trace: Inputs) -> None:
    rows = list(packing(**trace, policies=("bestfit", "fgd"), seeds=(42, 43), published=None))

    assert [(r["policy"], r["seed"]) for r in rows] == [("bestfit", 42), ("fgd", 42), ("bestfit", 43), ("fgd", 43)]
    for row in rows:
        assert row["pods"] == "pods_small"
        assert set(row["allocation_pct"]) == set(row["fragmentation_pct"]) == {"80", "90", "100", "110", "130"}
        assert row["allocation_pct"]["100"] <= row["bound_pct"]["100"] + 1e-6 <= 100.0 + 1e-5


def test_the_number_of_processes_changes_nothing_but_times(trace: Inputs) -> None:
    given: Inputs = {**trace, "policies": ("packing", "fgd"), "seeds": (42,), "bound": False, "published": None}

    one, two = (without_times(list(packing(**given, jobs=jobs))) for jobs in (1, 2))

    assert one == sorted(two, key=lambda row: str(row["policy"]), reverse=True)


def test_published_means_are_set_beside(trace: Inputs, tmp_path: Path) -> None:
    published = tmp_path / "published.csv"
    published.write_text("workload,sc_policy,mean,std,arrived_pct\npods_small,05-BestFit,12.345,0.1,100\n")

    rows = list(packing(**trace, policies=("bestfit",), seeds=(42,), bound=False, published=published))

    assert rows[0]["published"] == 12.345
    assert "12.3" in text_of(case_named("packing-fidelity"), rows)


def test_a_file_of_published_means_without_them_is_refused(trace: Inputs, tmp_path: Path) -> None:
    published = tmp_path / "published.csv"
    published.write_text("workload,sc_policy,std,arrived_pct\npods_small,05-BestFit,0.1,100\n")

    with pytest.raises(ConfigError, match="mean"):
        next(packing(**trace, published=published))


def test_an_unknown_policy_is_refused(trace: Inputs) -> None:
    with pytest.raises(ConfigError, match="worstfit"):
        next(packing(**trace, policies=("bestfit", "worstfit"), published=None))
    with pytest.raises(ConfigError, match="worstfit"):
        next(packing_churn(**trace, policies=("worstfit",)))


def test_each_run_under_churn_is_a_row_and_the_table_shows_paired_differences(trace: Inputs) -> None:
    rows = list(packing_churn(**trace, policies=("bestfit", "fgd"), loads=(0.8, 1.0), seeds=(1, 2)))

    assert [(r["load"], r["seed"], r["policy"]) for r in rows] == [
        (load, seed, policy) for load in (0.8, 1.0) for seed in (1, 2) for policy in ("bestfit", "fgd")
    ]
    assert all(0 < row["allocation_pct"] <= 100 for row in rows)
    assert "±" in text_of(case_named("packing-churn"), rows)


def test_all_policies_meet_the_same_arrivals(trace: Inputs) -> None:
    one, two = packing_churn(**trace, policies=("bestfit", "packing"), loads=(0.1,), seeds=(1,))

    # A nearly empty fleet refuses no pod, so the policies differ in nothing that is counted.
    assert (one["unplaced"], two["unplaced"]) == (0, 0)
    assert one["allocation_pct"] == two["allocation_pct"]
