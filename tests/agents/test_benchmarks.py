"""Cases of the benchmarks with jobs that need torch: each runs at its smallest size."""

from pathlib import Path

import pytest

from benchmarks.cases import TORCH, Case
from tests.benchmarks_quick import cases_that_need, runs_at_its_smallest


@pytest.mark.parametrize("case", cases_that_need(TORCH))
def test_a_case_runs_at_its_smallest_size(case: Case, data_folder: Path) -> None:
    runs_at_its_smallest(case, data_folder)
