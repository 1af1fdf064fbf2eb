"""Dumps of PyTorch's flight recorder: the rank that did not enter is named, and no pickle calls anything."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.inputs.recorded_job import ticks_of_dumps
from cli.main import tonnage
from cluster.errors import ConfigError

START_NS = 1_700_000_000_000_000_000
GROUPS = {
    "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
    "1": {"name": "1", "desc": "mesh_dp", "ranks": "[0, 1, 2, 3]"},
}


def entry(seq: int, *, done: bool) -> dict[str, Any]:
    """An entry as torch writes it, as far as it is read; one operation every 100 ms."""
    created_ns = START_NS + seq * 100_000_000
    return {
        "process_group": ["1", "mesh_dp"],
        "collective_seq_id": seq,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": created_ns,
        "time_discovered_started_ns": created_ns,
        "time_discovered_completed_ns": created_ns + 20_000_000 if done else None,
        "state": "completed" if done else "started",
        "retired": done,
        "input_sizes": [[1024]],
    }


def dump(last: int, *, stands: bool) -> dict[str, Any]:
    """A dump of a rank that finished so many operations; `stands`: it is in the next one."""
    entries = [entry(seq, done=True) for seq in range(1, last + 1)]
    return {"version": "2.10", "pg_config": GROUPS, "entries": entries + [entry(last + 1, done=False)] * stands}


def dumps(folder: Path, absent: int = 2, *, missing: int = -1, as_pickle: bool = False) -> None:
    for rank in range(4):
        made = dump(60, stands=rank != absent)
        if rank == missing:
            continue
        path = folder / (f"nccl_trace_rank_{rank}" if as_pickle else f"rank_{rank}.json")
        path.write_bytes(pickle.dumps(made, protocol=2) if as_pickle else json.dumps(made).encode())


def replay(folder: Path) -> Result:
    return CliRunner().invoke(tonnage, ["health", "replay", str(folder), "-o", "json"])


def blamed_in(folder: Path) -> dict[str, Any]:
    result = replay(folder)
    assert result.exit_code == 1, result.output
    (blamed,) = [each for each in json.loads(result.stdout) if each["part"] != "nothing"]
    return dict(blamed)


@pytest.mark.parametrize("as_pickle", [False, True])
def test_the_rank_that_did_not_enter_the_operation_of_the_others_is_named(tmp_path: Path, *, as_pickle: bool) -> None:
    dumps(tmp_path, as_pickle=as_pickle)

    blamed = blamed_in(tmp_path)

    assert (blamed["syndrome"], blamed["part"], blamed["ranks"]) == ("non-communication-hang", "rank", [2])


def test_a_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    dumps(tmp_path, absent=-1, missing=3)

    assert blamed_in(tmp_path)["ranks"] == [3]


def test_an_operation_that_all_have_entered_is_a_hang_of_their_group(tmp_path: Path) -> None:
    dumps(tmp_path, absent=-1)

    blamed = blamed_in(tmp_path)

    assert (blamed["syndrome"], blamed["part"], blamed["ranks"]) == ("communication-hang", "group", [0, 1, 2, 3])


def test_lists_that_torch_makes_by_a_function_are_read(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(b"\x80\x02}q\x00X\x07\x00\x00\x00entriesctorch.jit._pickle\nbuild_intlist\n](K\x01K\x02e\x85Rs.")

    with pytest.raises(ConfigError, match="pg_config"):  # its entries were read
        list(ticks_of_dumps({0: path}))


class Evil:
    """What a forged dump may hold."""

    def __reduce__(self) -> Any:
        return os.putenv, ("TONNAGE_WAS_HERE", "1")


def test_a_pickle_that_would_call_anything_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"entries": [Evil()]}))

    result = replay(tmp_path)

    assert result.exit_code == 2
    assert "putenv" in result.stderr


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b"\x80\x04.", b'{"entries": [], "pg_config": {"0": {}}}'])
def test_what_is_no_dump_is_refused_with_its_name(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "rank_0.json").write_bytes(body)

    result = replay(tmp_path)

    assert result.exit_code == 2
    assert "rank_0.json" in result.stderr
