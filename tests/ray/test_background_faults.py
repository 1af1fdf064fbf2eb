"""Background work on an embedded Ray whose processes are killed and frozen, at a size for every day.

`python -m tests.rigs.background_faults` has the full one.
"""

import pytest

from controller.background import host
from tests.rigs.background_faults import MEMORY, kills, losses

SILENT_S = 20.0


def test_most_work_is_kept_while_workers_are_killed() -> None:
    row = kills(minutes=1.0, every_s=6.0, batch=1, days=7)

    assert row["wrong"] == ""
    assert float(str(row["work_kept_share"])) >= 0.95
    assert int(str(row["workers_killed"])) >= 3
    assert (row["from_store"], row["run_again"], row["drivers_lost"]) == (row["tasks_done"], 0, 0)


@pytest.mark.parametrize("fault", ["driver frozen", "head frozen", MEMORY])
def test_what_is_frozen_or_takes_too_much_memory_is_replaced_and_delays_no_cycle(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "SILENT_S", SILENT_S)

    (row,) = losses([fault])

    assert row["wrong"] == ""
    assert (row["from_store"], row["run_again"], row["left_of_lost"]) == (row["tasks_done"], 0, False)
    assert row["losses"] == ({} if fault == MEMORY else {"silent": 1})
