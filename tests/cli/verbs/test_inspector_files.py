"""Durations of the device, in files of NCCL's Inspector and in dumps of the flight recorder: who is waited for.

The jobs are made here: ranks in tensor pairs within data-parallel groups, whose devices compute and then meet. The
lines have the forms of versions 4.0 to 4.3 of plugins/profiler/inspector (NVIDIA/nccl).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cli.inputs.recorded_job import inspected_job, inspector_files
from cli.main import tonnage
from cluster.errors import ConfigError

STEP_S, TRANSFER_S = 0.1, {"tp": 0.002, "dp": 0.01, "all": 0.001}
RANKS = 16
Write = Callable[["Job", Path], None]


@dataclass
class Told:
    """One operation as one rank's device ran it."""

    group: str
    members: list[int]
    seq: int
    rank: int
    began_s: float
    took_s: float


class Job:
    """Sixteen ranks, two in each tensor group, on eight data-parallel replicas each; every step ends with all."""

    def __init__(
        self,
        steps: int = 60,
        slow: dict[int, float] | None = None,
        slow_group: str = "",
        seed: int = 0,
        stall: int = -1,
    ) -> None:
        """slow: how much longer ranks compute. slow_group: transfers three times as long. stall: step with a pause."""
        random, arrived = np.random.default_rng(seed), np.zeros(RANKS)
        groups = {f"tp{first}": [first, first + 1] for first in range(0, RANKS, 2)}
        groups |= {f"dp{index}": list(range(index, RANKS, 2)) for index in range(2)}
        groups["all"] = list(range(RANKS))
        numbers = {name: count(1) for name in groups}
        self.told: list[Told] = []
        for step in range(steps):
            factor = 1 + random.normal(0, 0.01, RANKS)
            for rank, more in (slow or {}).items():
                factor[rank] *= 1 + more
            if step == stall:
                factor[3] += 300.0
            for kind in ("tp", "tp", "dp", "all"):
                arrived += STEP_S / 4 * factor
                for name, members in groups.items():
                    if not name.startswith(kind):
                        continue
                    transfer_s = TRANSFER_S[kind] * (3 if name == slow_group else 1) * random.uniform(1, 1.05)
                    end_s, seq = float(arrived[members].max()) + transfer_s, next(numbers[name])
                    for rank in members:
                        began_s = float(arrived[rank])
                        self.told.append(Told(name, members, seq, rank, began_s, end_s - began_s))
                    arrived[members] = end_s


def inspector_file(job: Job, folder: Path, markers: bool = False) -> None:
    """One file per process; each communicator's lines begin with a marker in version 4.3."""
    for rank in range(RANKS):
        lines: list[dict[str, Any]] = []
        for each in (told for told in job.told if told.rank == rank):
            about: dict[str, Any] = {
                "header": {"id": f"0x{each.group}", "rank": each.members.index(rank), "n_ranks": len(each.members)},
                "metadata": {
                    "inspector_output_format_version": "v4.3" if markers else "v4.0",
                    "dump_timestamp_us": int(1.7e15 + each.began_s * 1e6) + rank * 300_000_000,
                    "hostname": f"node-{rank // 8}",
                    "pid": 100 + rank,
                },
            }
            call = {
                "coll": "AllReduce",
                "coll_sn": each.seq,
                "coll_msg_size_bytes": 1 << 20,
                "coll_exec_time_us": round(each.took_s * 1e6),
                "coll_timing_source": "kernel_gpu",
            }
            lines += (
                [{**about, "dump_stats": {"coll_records": 1}}, {"coll_perf": call}]
                if markers
                else [{**about, "coll_perf": call}]
            )
        text = "".join(f"{json.dumps(each)}\n" for each in lines)
        (folder / f"node-{rank // 8}-pid{100 + rank}.log").write_text(text)


def dumps(job: Job, folder: Path) -> None:
    """One dump of the flight recorder per rank, with NCCL's timing on."""
    groups = {each.group: each.members for each in job.told}
    config = {name: {"name": name, "desc": name, "ranks": str(members)} for name, members in groups.items()}
    config["0"] = {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))}
    for rank in range(RANKS):
        entries = [
            {
                "process_group": [each.group, each.group],
                "collective_seq_id": each.seq,
                "is_p2p": False,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": int(1.7e18 + each.began_s * 1e9),
                "time_discovered_started_ns": int(1.7e18 + each.began_s * 1e9),
                "time_discovered_completed_ns": int(1.7e18 + (each.began_s + each.took_s) * 1e9),
                "duration_ms": each.took_s * 1e3,
                "state": "completed",
                "retired": True,
                "input_sizes": [[1024]],
                "output_sizes": [[1024]],
            }
            for each in job.told
            if each.rank == rank
        ]
        (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps({"entries": entries, "pg_config": config}))


def found(folder: Path) -> Iterator[dict[str, Any]]:
    done = CliRunner().invoke(tonnage, ["health", "replay", str(folder), "-o", "json"])
    assert done.exit_code in (0, 1), done.output
    for each in json.loads(done.stdout):
        if each["signals"] == "durations on the device":
            yield each


FORMS: dict[str, Write] = {
    "inspector": inspector_file,
    "inspector 4.3": lambda job, folder: inspector_file(job, folder, markers=True),
    "dumps": dumps,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("more", [0.15, 0.5])
def test_the_rank_that_all_wait_for_is_named(form: str, more: float, tmp_path: Path) -> None:
    """Its tensor partner is late to its own data-parallel group, because it waits for it: it is not blamed."""
    FORMS[form](Job(slow={5: more}), tmp_path)

    (verdict,) = found(tmp_path)

    assert (verdict["syndrome"], verdict["part"], verdict["ranks"]) == ("non-communication-slow", "rank", [5])


@pytest.mark.parametrize("seed", range(6))
def test_nobody_is_blamed_in_a_job_of_even_ranks(seed: int, tmp_path: Path) -> None:
    inspector_file(Job(seed=seed), tmp_path)

    (verdict,) = found(tmp_path)

    assert (verdict["syndrome"], verdict["ranks"]) == ("none", [])
    assert verdict["evidence"][0].startswith("1,140 operations of 11 groups in ")


@pytest.mark.parametrize("form", FORMS)
def test_one_stall_is_no_slow_rank(form: str, tmp_path: Path) -> None:
    FORMS[form](Job(stall=30), tmp_path)

    assert not [verdict for verdict in found(tmp_path) if verdict["ranks"]]


def test_a_slow_group_is_told_from_its_ranks(tmp_path: Path) -> None:
    """Each of eight tensor groups transfers as much; the ranks of the slow one come late to their other groups."""
    inspector_file(Job(slow_group="tp6"), tmp_path)

    (verdict,) = found(tmp_path)

    assert (verdict["syndrome"], verdict["part"], verdict["ranks"]) == ("communication-slow", "group", [6, 7])
    assert "pair probes" in verdict["probe"]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (range(0, RANKS, 2), "all of communicator 0xdp0"),
        ((4, 5), "all of communicator 0xtp4"),
        ((1, 4, 10, 15), "of no common group"),
    ],
)
def test_ranks_that_come_late_alike_are_no_fault_of_each(ranks: Sequence[int], words: str, tmp_path: Path) -> None:
    """A stage with more to do; a whole tensor group, whose data may be longer; more ranks than break at once."""
    inspector_file(Job(slow=dict.fromkeys(ranks, 0.5)), tmp_path)

    (verdict,) = found(tmp_path)

    assert (verdict["part"], verdict["ranks"], verdict["cause"]) == ("nothing", list(ranks), None)
    assert "matrix product" in verdict["probe"]
    assert words in verdict["evidence"][0]


def test_what_is_not_used_is_counted_and_a_cut_or_odd_line_stops_nothing(tmp_path: Path) -> None:
    inspector_file(Job(slow={5: 0.5}), tmp_path)
    path = tmp_path / "node-0-pid100.log"
    path.write_text(
        f'{path.read_text()}{{"header": {{"id"\n[]\n{{"p2p_perf": {{}}}}\n{{"coll_perf": {{"coll_sn": null}}}}\n'
    )
    host = path.read_text().splitlines()[0].replace("kernel_gpu", "collective_cpu")
    path.write_text(f"{path.read_text()}{host}\n")

    (verdict,) = found(tmp_path)

    assert verdict["ranks"] == [5]
    told = verdict["evidence"][-1]
    for words in (
        "2 lines that are no JSON",
        "1 lines of other things",
        "1 collectives without one of their fields",
        "1 durations by the host's clock",
    ):
        assert words in told


def test_files_without_a_duration_of_the_device_are_an_error_that_says_so(tmp_path: Path) -> None:
    inspector_file(Job(steps=2), tmp_path)
    for path in inspector_files(tmp_path):
        path.write_text(path.read_text().replace("kernel_gpu", "kernel_cpu"))

    done = CliRunner().invoke(tonnage, ["health", "replay", str(tmp_path)])

    assert done.exit_code == 2
    assert "durations by the host's clock" in done.output
    with pytest.raises(ConfigError):
        inspected_job(inspector_files(tmp_path))
