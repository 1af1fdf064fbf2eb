"""The ablation of background tasks that docs/ray.md shows, at its smallest size."""

import pytest

from controller.background.kinds import KINDS
from tests.rigs.background_ablation import ablation

pytestmark = pytest.mark.slow


def test_each_kind_of_task_is_shown_with_what_it_buys_and_costs() -> None:
    rows = list(ablation([*KINDS], quick=True))

    assert [row["kind"] for row in rows] == [*KINDS]
    assert all(row["without"] and row["with"] and row["tasks"] for row in rows)
