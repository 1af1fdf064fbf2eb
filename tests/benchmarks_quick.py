"""The smallest size of every case of the benchmarks: it runs, gives rows, and none of them is wrong."""

import importlib.util
from pathlib import Path

import pytest

from benchmarks.cases import CONTROL_PLANE, EMULATED, GUEST, MINUTES, RAY, TORCH, Case, all_cases, inputs_of
from benchmarks.tables import json_line, text_of
from cluster.errors import ConfigError

ELSEWHERE = (RAY, CONTROL_PLANE, GUEST, EMULATED, TORCH)
"""What the unit tests do without: cases that need one of these run in the folder of that tier."""


def cases_that_need(*what: str) -> list[object]:
    """Parameters for a test of each case that needs one of these, or nothing of the kind where none is named.

    Of the latter, those that differ from an earlier one in their inputs alone are slow tests.
    """
    chosen, seen = [], set()
    for each in all_cases().values():
        if each.needs & set(what) if what else not each.needs & set(ELSEWHERE):
            is_slow = MINUTES in each.needs or (not what and each.run in seen)
            chosen.append(pytest.param(each, id=each.name, marks=[pytest.mark.slow] if is_slow else []))
            seen.add(each.run)
    return chosen


def runs_at_its_smallest(case: Case, data: Path) -> None:
    """Fails where the case does not run, has no rows, or a row says what is wrong; skips where its data is missing."""
    if TORCH in case.needs and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    try:
        inputs = inputs_of(case, {}, data, quick=True)
    except ConfigError as error:
        pytest.skip(f"no public data: {error}")
    rows = list(case.run(**inputs))

    assert rows
    assert [row["wrong"] for row in rows if row.get("wrong")] == []
    assert all(json_line(row) for row in rows)
    assert text_of(case, rows).count("\n") > 1
