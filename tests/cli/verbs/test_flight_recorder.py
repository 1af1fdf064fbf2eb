"""Dumps of PyTorch's flight recorder: every kind of stop has its verdict, and no pickle calls anything.

`tests/rigs/health/gloo_dumps.tar.xz` holds dumps that three versions of torch wrote over gloo; those of NCCL are made
here, in the form that torch/csrc/distributed/c10d/FlightRecorder.hpp writes since 2.4.
"""

import json
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.inputs.recorded_job import compute_times, operations_of
from cli.main import tonnage
from cluster.errors import ConfigError
from tests.builders import ras
from tests.rigs.health import gloo_stops
from tonnage.records import Op

START_NS = 1_700_000_000_000_000_000
WORLD = ("0", "default_pg")
Entry = dict[str, Any]


def entry(
    seq: int, op: str = "all_reduce", state: str = "completed", *, group: Iterable[str] = WORLD, **more: Any
) -> Entry:
    """An entry as torch writes it for NCCL with timing; one operation every 100 ms."""
    created_ns = START_NS + seq * 100_000_000
    done = state == "completed"
    made = {
        "process_group": list(group),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "is_p2p": False,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": created_ns,
        "time_discovered_started_ns": None if state == "scheduled" else created_ns,
        "time_discovered_completed_ns": created_ns + 20_000_000 if done else None,
        "state": state,
        "retired": done,
        "input_sizes": [[1024]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1024]],
        "output_dtypes": ["Float"],
    }
    return {**made, **more}


def history(last: int = 6) -> list[Entry]:
    return [entry(seq) for seq in range(1, last + 1)]


def send(seq: int, sender: int, receiver: int, state: str = "completed", *, at: int, is_receive: bool = False) -> Entry:
    name = f"recv {receiver}<-{sender}" if is_receive else f"send {sender}->{receiver}"
    return entry(at, name, state, is_p2p=True, p2p_seq_id=seq)


def dumps(folder: Path, of_rank: Callable[[int], list[Entry]], *, ranks: Iterable[int] = range(4), **more: Any) -> Path:
    """A dump of each of these ranks of four."""
    about = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    folder.mkdir(exist_ok=True)
    for rank in ranks:
        made = {"version": "2.10", "pg_config": about, "entries": of_rank(rank), **more}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(made, protocol=2))
    return folder


def replay(folder: Path) -> Result:
    return CliRunner().invoke(tonnage, ["health", "replay", str(folder), "-o", "json"])


def verdict_on(folder: Path) -> dict[str, Any]:
    result = replay(folder)
    (found,) = json.loads(result.stdout)
    assert result.exit_code == (found["part"] != "nothing"), result.output
    return dict(found)


def said(folder: Path) -> tuple[str | None, str, list[int]]:
    """Cause, part and ranks."""
    found = verdict_on(folder)
    return found["cause"], found["part"], found["ranks"]


REAL = Path(gloo_stops.__file__).with_name("gloo_dumps.tar.xz")
VERSIONS = ("2.8.0", "2.11.0", "2.15.0")
UNDECIDED = (None, "nothing", [])
STOPS = {
    "absent": (None, "rank", [2]),
    "absent-pair": (None, "rank", [3]),
    "barrier": ("operations differ", "nothing", [3]),
    "dtype": ("types differ", "nothing", [1]),  # one rank's process was aborted before it could dump
    "ended": UNDECIDED,  # gloo records no sends and receives: one may be under way
    "gather": (None, "rank", [2]),
    "killed": (None, "rank", [2]),
    "operation": ("operations differ", "nothing", [1]),
    "order": ("order of calls differs between ranks", "nothing", [0]),
    "queue": (None, "rank", [2]),
    "recv": UNDECIDED,
    "recv-chain": UNDECIDED,
    "send": (None, "nothing", [0, 2, 3]),  # its send is not recorded: which of these holds rank 1 up stays open
    "size": (None, "rank", [1]),  # aborted, and so without a dump
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gloo")
    with tarfile.open(REAL) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", ["", "p"])
@pytest.mark.parametrize("kind", STOPS)
def test_a_stop_of_real_torch_over_gloo_is_told_or_left_open(
    recorded: Path, kind: str, form: str, version: str
) -> None:
    """form: JSON, or the pickles of the same processes."""
    assert said(recorded / version / kind / form) == STOPS[kind]


def test_the_kinds_of_stop_that_are_recorded_are_those_that_are_made() -> None:
    assert set(STOPS) == set(gloo_stops.KINDS)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: `pip install torch` dumps anew")
@pytest.mark.parametrize("kind", ["absent", "operation", "ended"])
def test_dumps_of_the_torch_that_is_installed_say_the_same(tmp_path: Path, kind: str) -> None:
    own = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, gloo_stops.__file__, kind, str(rank), str(tmp_path)],
            env={**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"},
        )
        for rank in range(gloo_stops.RANKS)
    ]
    assert [each.wait(120) for each in own] == [0] * gloo_stops.RANKS
    assert said(tmp_path) == said(tmp_path / "p") == STOPS[kind]


def test_the_rank_that_did_not_enter_the_operation_of_the_others_is_named(tmp_path: Path) -> None:
    found = verdict_on(dumps(tmp_path, lambda rank: history() + [entry(7, state="started")] * (rank != 2)))

    assert (found["syndrome"], found["part"], found["ranks"]) == ("non-communication-hang", "rank", [2])


def test_an_operation_that_all_have_entered_is_a_hang_of_their_group(tmp_path: Path) -> None:
    found = verdict_on(dumps(tmp_path, lambda _: [*history(), entry(7, state="started")]))

    assert (found["syndrome"], found["part"], found["ranks"]) == ("communication-hang", "group", [0, 1, 2, 3])


def test_one_rank_without_a_dump_is_named_and_of_several_none(tmp_path: Path) -> None:
    def stands(_: int) -> list[Entry]:
        return [*history(), entry(7, state="started")]

    assert said(dumps(tmp_path / "one", stands, ranks=(0, 1, 2))) == (None, "rank", [3])
    found = verdict_on(dumps(tmp_path / "half", stands, ranks=(0, 1)))
    assert (found["part"], found["ranks"], found["probe"]) == ("nothing", [2, 3], "records or stacks of ranks 2-3")


@pytest.mark.parametrize(
    ("odd", "cause"),
    [
        ({"op": "broadcast"}, "operations differ"),
        ({"op": "barrier"}, "operations differ"),
        ({"output_sizes": [[77]], "input_sizes": [[77]]}, "sizes differ"),
        ({"output_dtypes": ["BFloat16"], "input_dtypes": ["BFloat16"]}, "types differ"),
    ],
)
def test_calls_that_differ_are_the_programs_fault_and_blame_no_part(tmp_path: Path, odd: Entry, cause: str) -> None:
    def calls(rank: int) -> list[Entry]:
        return [*history(), entry(7, state="started", **(odd if rank == 1 else {}))]

    assert said(dumps(tmp_path, calls)) == (cause, "nothing", [1])


@pytest.mark.parametrize("op", ["all_to_all", "_alltoall_base", "gather", "scatter"])
def test_sizes_that_may_differ_between_ranks_are_no_fault(tmp_path: Path, op: str) -> None:
    side = {"gather": "output", "scatter": "input"}.get(op)
    sides = [side] if side else ["input", "output"]

    def calls(rank: int) -> list[Entry]:
        odd = {f"{each}_sizes": [[1024 * (rank + 1)]] for each in sides}
        return [*history(), entry(7, op, "started", **odd)]

    assert verdict_on(dumps(tmp_path, calls))["syndrome"] == "communication-hang"


def test_a_rank_whose_device_never_began_what_the_others_are_in_is_queued_and_no_fault(tmp_path: Path) -> None:
    def one(rank: int) -> list[Entry]:
        return [*history(), entry(7, state="scheduled" if rank == 2 else "started")]

    assert said(dumps(tmp_path / "one", one)) == ("queued, never begun", "nothing", [2])
    all_of_them = dumps(tmp_path / "all", lambda _: [*history(), entry(7, state="scheduled")])
    assert said(all_of_them) == ("queued, never begun", "nothing", [0, 1, 2, 3])


def test_without_timing_nobody_knows_what_is_queued(tmp_path: Path) -> None:
    """TORCH_NCCL_ENABLE_TIMING is off by default: what is under way stays "scheduled"."""

    def calls(_: int) -> list[Entry]:
        return [{**each, "time_discovered_started_ns": None} for each in (*history(), entry(7, state="scheduled"))]

    assert verdict_on(dumps(tmp_path, calls))["syndrome"] == "communication-hang"


def test_work_that_timed_out_is_retired_and_not_done(tmp_path: Path) -> None:
    found = verdict_on(dumps(tmp_path, lambda _: [*history(), entry(7, state="started", retired=True)]))
    assert found["syndrome"] == "communication-hang"


def test_a_job_that_ended_in_order_says_so(tmp_path: Path) -> None:
    assert said(dumps(tmp_path, lambda _: history())) == ("ended in order", "nothing", [])


def test_ranks_that_wait_for_each_other_in_different_groups_call_in_another_order(tmp_path: Path) -> None:
    def calls(rank: int) -> list[Entry]:
        other = entry(1, "barrier", "started", group=("0", "default_pg")) if rank == 3 else None
        return [*history(), entry(7, state="started")] if other is None else [
            *history(), send(1, 3, 0, "started", at=7, is_receive=False)
        ]  # fmt: skip

    # Rank 3 sends to rank 0, which is in the operation of the others.
    assert said(dumps(tmp_path, calls))[0] == "unmatched send"


def test_a_receive_whose_sender_computes_names_the_sender_along_the_whole_pipeline(tmp_path: Path) -> None:
    def calls(rank: int) -> list[Entry]:
        """Each stage receives and sends on; rank 1 never sent the third on."""
        made = [entry(1)]
        for number in range(1, 4):
            stands = number == 3
            if rank:
                stuck = stands and rank >= 2
                made.append(
                    send(number, rank - 1, rank, "started" if stuck else "completed", at=2 * number, is_receive=True)
                )
                if stuck:
                    break
            if rank < 3 and not (stands and rank == 1):
                made.append(send(number, rank, rank + 1, at=2 * number + 1))
        return made

    assert said(dumps(tmp_path, calls)) == (None, "rank", [1])


def test_a_send_that_nobody_receives_is_told_and_blames_nobody(tmp_path: Path) -> None:
    def calls(rank: int) -> list[Entry]:
        return [*history(), *([send(1, 0, 1, "started", at=7)] if rank == 0 else [])]

    assert said(dumps(tmp_path, calls)) == ("unmatched send", "nothing", [0, 1])


def test_a_pair_that_both_ends_entered_is_a_hang_of_their_link(tmp_path: Path) -> None:
    def calls(rank: int) -> list[Entry]:
        ends = [send(1, 0, 1, "started", at=7, is_receive=rank == 1)] if rank < 2 else []
        return [*history(), *ends]

    found = verdict_on(dumps(tmp_path, calls))
    assert (found["syndrome"], found["part"], found["ranks"]) == ("communication-hang", "link", [0, 1])


def test_coalesced_operations_are_one_and_as_far_as_the_entry_after_them(tmp_path: Path) -> None:
    def coalesced(seq: int, state: str) -> list[Entry]:
        parts = [entry(seq, "_broadcast_oop", "scheduled"), entry(seq, "allgather_into_tensor_coalesced", "scheduled")]
        return [*parts, entry(seq, "ALLGATHER_coalesced", state, input_sizes=[], output_sizes=[])]

    def calls(rank: int) -> list[Entry]:
        done = [each for seq in range(1, 6) for each in coalesced(seq, "completed")]
        return done + (coalesced(6, "started") if rank != 2 else [])

    assert said(dumps(tmp_path, calls)) == (None, "rank", [2])


def test_groups_of_one_name_are_apart_where_their_members_are(tmp_path: Path) -> None:
    for rank in range(4):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        config = {"1": {"name": "1", "desc": "mesh_tp", "ranks": str(pair)}}
        own = [entry(seq, group=("1", "mesh_tp")) for seq in range(1, 4 + rank // 2)]
        own += [entry(6, state="started", group=("1", "mesh_tp"))] if rank == 2 else []
        made = {"pg_config": config, "entries": own}
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(made))

    assert said(tmp_path) == (None, "rank", [3])


def test_dumps_of_another_run_and_what_is_not_understood_are_counted_in_the_answer(tmp_path: Path) -> None:
    odd: list[Any] = [
        3,
        {"profiling_name": "nccl:all_reduce"},
        entry(6, collective_seq_id=None),
        entry(6, "send", is_p2p=True),
    ]
    dumps(tmp_path, lambda rank: [*history(), *odd, *([entry(7, state="started")] if rank != 2 else [])])
    old = {"pg_config": {"0": {"desc": "default_pg", "ranks": "[0, 1, 2, 3, 4]"}}, "entries": [entry(-900)]}
    (tmp_path / "nccl_trace_rank_4").write_bytes(pickle.dumps(old))
    (tmp_path / "nccl_trace_rank_9").write_bytes(b"")

    found = verdict_on(tmp_path)

    assert found["ranks"] == [2]
    shown = "; ".join(found["evidence"])
    for words in (
        "rank 4: the dump is of another run",
        "nccl_trace_rank_9: cannot be read",
        "4 collectives without a number",
        "4 entries that are none",
        "4 entries without a process group or a name",
        "4 sends and receives without both ranks",
    ):
        assert words in shown


def test_hosts_that_numbered_their_dumps_from_zero_overwrite_nothing(tmp_path: Path) -> None:
    dumps(tmp_path / "all", lambda rank: history() + [entry(7, state="started")] * (rank != 3))
    for rank in range(4):
        (tmp_path / "all" / f"nccl_trace_rank_{rank}").rename(tmp_path / f"trace_host{rank // 2}_rank_{rank % 2}")

    found = verdict_on(tmp_path)

    assert found["ranks"] == [3]
    assert any("2 hosts numbered their dumps from 0" in line for line in found["evidence"])


@pytest.mark.parametrize(
    "change",
    [
        lambda each: {**each, "collective_seq_id": str(each["collective_seq_id"])},
        lambda each: {**each, "time_created_ns": float(each["time_created_ns"])},
        lambda each: {**each, "time_created_ns": 0, "duration_ms": float("nan")},
        lambda each: {**each, "time_discovered_completed_ns": None},
        lambda each: {key: value for key, value in each.items() if key != "is_p2p"},
    ],
)
def test_numbers_as_tools_rewrite_them_are_read(tmp_path: Path, change: Callable[[Entry], Entry]) -> None:
    made = dumps(
        tmp_path, lambda rank: [change(each) for each in history() + [entry(7, state="started")] * (rank != 2)]
    )
    assert said(made) == (None, "rank", [2])


def test_a_timeline_is_drawn_of_dumps_and_a_heat_map_is_refused(tmp_path: Path) -> None:
    folder = dumps(tmp_path, lambda rank: history(2) + [entry(3, state="started")] * (rank != 2))

    drawn = operations_of(folder)

    assert (len(drawn.rank), set(drawn.op.tolist())) == (11, {int(Op.ALL_REDUCE)})
    assert sum(drawn.exit_s == float("inf")) == 3
    with pytest.raises(ConfigError, match="no steps"):
        compute_times(folder)


def test_lists_that_torch_makes_by_a_function_are_read(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(b"\x80\x02}q\x00X\x07\x00\x00\x00entriesctorch.jit._pickle\nbuild_intlist\n](K\x01K\x02e\x85Rs.")

    result = replay(tmp_path)

    assert result.exit_code == 2
    assert "2 entries that are none" in result.stderr  # they were read


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
def test_where_nothing_is_recognised_every_file_is_named(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "rank_0.json").write_bytes(body)

    result = replay(tmp_path)

    assert result.exit_code == 2
    assert "rank_0.json" in result.stderr


def test_a_stopped_job_is_named_from_answers_of_nccls_ras_alone(tmp_path: Path) -> None:
    launched = ras.reduced(0, 1, 2, 3, 4, 6, 7)
    for number in (1, 2):
        made = ras.answer(ras.communicator("0xa", range(8), launched), at=f"2026-11-01 10:00:0{number}")
        (tmp_path / f"{number}.json").write_text(json.dumps(made))

    found = verdict_on(tmp_path)
    assert (found["syndrome"], found["part"], found["ranks"]) == ("non-communication-hang", "rank", [5])
    assert found["signals"] == "launches (NCCL RAS)"


def test_a_job_that_nccls_ras_sees_move_has_nothing_that_stands_out(tmp_path: Path) -> None:
    for number in (1, 2):
        made = ras.answer(ras.communicator("0xa", range(8), ras.reduced(*range(8), more=number)), at=f"{number}")
        (tmp_path / f"{number}.json").write_text(json.dumps(made))

    assert replay(tmp_path).stdout == "[]\n"
