"""Cases of the benchmarks on a real control plane: each runs at its smallest size."""

from pathlib import Path

import pytest

from benchmarks.cases import CONTROL_PLANE, Case
from tests.benchmarks_quick import cases_that_need, runs_at_its_smallest

pytestmark = [pytest.mark.controlplane, pytest.mark.usefixtures("programs")]


@pytest.mark.parametrize("case", cases_that_need(CONTROL_PLANE))
def test_a_case_runs_at_its_smallest_size(case: Case, data_folder: Path) -> None:
    runs_at_its_smallest(case, data_folder)
