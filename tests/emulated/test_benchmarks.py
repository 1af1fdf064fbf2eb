"""Cases of the benchmarks on an emulated machine: each runs at its smallest size."""

from pathlib import Path

import pytest

from benchmarks.cases import EMULATED, Case
from tests.benchmarks_quick import cases_that_need, runs_at_its_smallest
from tests.conftest import guest_of


@pytest.mark.parametrize("case", cases_that_need(EMULATED))
def test_a_case_runs_at_its_smallest_size(case: Case, data_folder: Path) -> None:
    guest_of("emulated")  # skips where there is none
    runs_at_its_smallest(case, data_folder)
