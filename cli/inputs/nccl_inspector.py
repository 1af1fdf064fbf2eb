"""Files of NCCL's Inspector: how long the device of each rank was in each collective."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cli.inputs.flight_recorder import counted
from cluster.errors import ConfigError, Mistake
from health.verdicts.lateness import TimedCall, TimedOperations, timed_operations

LONGEST_BYTES, MOST_BYTES = 64 * 1024 * 1024, 512 * 1024 * 1024
"""Bytes of a file that are read, the newest: some 200,000 collectives; and those of all files together."""
SUFFIXES = (".log", ".json", ".jsonl")
"""Names of its files end so: `HOST-pidPID.log`."""
_ON_DEVICE = ("kernel_gpu", "")
"""Sources of a duration that say when the device was in it; versions before 4.1 name none."""
_WRITER = "NCCL_INSPECTOR_ENABLE=1 with the Inspector plug-in writes them; see docs/health.md, Replay"


@dataclass(frozen=True, slots=True)
class InspectedJob:
    """All files of one job."""

    groups: tuple[TimedOperations, ...]
    lasted_s: float
    """Between the first and the last time that a process wrote something."""
    notes: tuple[str, ...]
    """What was not used, counted."""


def inspector_files(folder: Path) -> list[Path]:
    """Files of a folder that begin as the Inspector's do."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.endswith(SUFFIXES) and path.is_file():
            with path.open("rb") as file:
                first = _read(file.readline(1 << 16))
            if first is not None and isinstance(first.get("header"), dict) and "n_ranks" in first["header"]:
                found.append(path)
    return found


def inspected_job(paths: Sequence[Path]) -> InspectedJob:
    """The job that these files are of. Raises ConfigError where no collective has a duration of the device.

    Ranks are those of the largest communicator, the job's own.
    """
    unused: Counter[str] = Counter()
    calls: list[TimedCall] = []
    of_process: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    sizes: dict[str, int] = {}
    owner: list[tuple[str, int]] = []
    lasted_s = 0.0
    for path in paths:
        first_s, last_s = math.inf, 0.0
        for process, call, written_s in _calls(path, min(LONGEST_BYTES, MOST_BYTES // len(paths)), unused):
            calls.append(call)
            owner.append(process)
            of_process[process][call.group] = call.rank
            sizes[call.group] = call.members
            first_s, last_s = min(first_s, written_s), max(last_s, written_s)
        lasted_s = max(lasted_s, last_s - first_s)
    if not calls:
        words = f"holds no collective that is understood: {counted(unused)}"
        raise ConfigError(Mistake(str(paths[0].parent), words, _WRITER))
    largest = max(sizes, key=lambda each: (sizes[each], each))
    known = [
        replace(call, rank=of_process[process][largest])
        for process, call in zip(owner, calls, strict=True)
        if largest in of_process[process]
    ]
    groups = timed_operations(known)
    unused["durations of ranks outside the largest communicator"] += len(calls) - len(known)
    unused["durations of collectives that not all members tell of"] += len(known) - sum(
        each.took_s.size for each in groups
    )
    unused = +unused
    notes = (f"not used: {counted(unused)}",) if unused else ()
    return InspectedJob(tuple(groups), lasted_s, notes)


def _calls(path: Path, most_bytes: int, unused: Counter[str]) -> Iterator[tuple[tuple[str, int], TimedCall, float]]:
    """Host and process, a collective with its rank in the communicator, and when it was written, for each of a file.

    Up to version 4.2 each line says whose it is; from 4.3 on a line says it for those that follow.
    """
    header: Mapping[str, Any] = {}
    about: Mapping[str, Any] = {}
    left_out = path.stat().st_size - most_bytes
    with path.open("rb") as file:
        if left_out > 0:
            file.seek(left_out)
            file.readline()
            unused[f"older MiB of {path.name}"] += left_out >> 20
        for line in file:
            made = _read(line)
            if made is None:
                unused["lines that are no JSON"] += 1
                continue
            if isinstance(made.get("header"), dict):
                header, about = made["header"], made.get("metadata") or {}
            said = made.get("coll_perf")
            if not isinstance(said, dict):
                unused["lines of other things"] += "dump_stats" not in made
                continue
            if said.get("coll_timing_source", "") not in _ON_DEVICE:
                unused["durations by the host's clock"] += 1
                continue
            try:
                call = TimedCall(
                    group=f"communicator {header['id']}",
                    members=int(header["n_ranks"]),
                    seq=int(said["coll_sn"]),
                    rank=int(header["rank"]),
                    took_s=float(said["coll_exec_time_us"]) * 1e-6,
                    name=str(said["coll"]),
                    size=int(said["coll_msg_size_bytes"]),
                )
                yield (str(about["hostname"]), int(about["pid"])), call, float(about["dump_timestamp_us"]) * 1e-6
            except (KeyError, TypeError, ValueError):
                unused["collectives without one of their fields"] += 1


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        made = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return made if isinstance(made, dict) else None
