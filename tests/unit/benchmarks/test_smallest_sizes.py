"""Cases of the benchmarks that need nothing but Python: each runs at its smallest size."""

from pathlib import Path

import pytest

from benchmarks.cases import Case
from tests.benchmarks_quick import cases_that_need, runs_at_its_smallest


@pytest.mark.parametrize("case", cases_that_need())
def test_a_case_runs_at_its_smallest_size(case: Case, data_folder: Path) -> None:
    runs_at_its_smallest(case, data_folder)
