"""`tonnage top`: columns that fit the terminal, and all of them where it is none."""

import sys
from pathlib import Path

import pytest

from cli.verbs.top import document, text
from controller.objects.manifests import read_manifests
from controller.placers import DEFAULT_POOLS
from controller.snapshot.from_manifests import snapshot_from

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("what", ["nodes", "gpus"])
@pytest.mark.parametrize("room", [60, 80, 100])
def test_columns_are_left_out_where_the_terminal_is_narrow(what: str, room: int) -> None:
    data = document(snapshot_from(read_manifests([str(EXAMPLES)], sys.stdin)).snapshot, what, DEFAULT_POOLS)

    whole, narrow = text(data, what).splitlines(), text(data, what, room).splitlines()

    assert max(map(len, narrow)) <= room < max(map(len, whole))
    assert len(narrow) == len(whole)
    assert "IDLE $/H" in narrow[0]
    assert ("MEM%" in whole[0], "MEM%" in narrow[0]) == (True, False)
