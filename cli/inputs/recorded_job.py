"""Recorded jobs: frames of a recorder, dumps of PyTorch's flight recorder, files of NCCL's Inspector or answers of its
RAS, read as live."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cli.inputs.flight_recorder import counted, dumped_job, dumps_in
from cluster.arrays import Array, FloatArray, IntArray
from cluster.errors import ConfigError, Mistake
from controller.loops.health.job_stream import JobStream, frames_in
from health.records.frames import decoded
from health.verdicts.lateness import TimedCall, TimedOperations, nothing_late, slow_parts, timed_operations
from health.verdicts.ras import RasStatus, ras_status, ras_verdict
from health.verdicts.verdict import JobVerdict
from tonnage.records import Kind, Phase

TICK_S = 0.25
"""Time between two looks at what has arrived."""
LONGEST_GAP_S = 60.0
"""Silence in a recording that is played; a clock that was set leaves a longer one."""
FRAMES = "*.frames"
"""Files of datagrams, one after another, of any number of ranks."""


VERDICT_HEADERS = ("AT", "SYNDROME", "PART", "RANKS", "CONF", "CAUSE OR PROBE", "EVIDENCE")


@dataclass(frozen=True, slots=True)
class TimedVerdict:
    """Verdict, and when it was made, in seconds since the first record."""

    at_s: float
    verdict: JobVerdict

    @property
    def cells(self) -> tuple[str, ...]:
        data = self.as_data()
        return (
            f"{self.at_s:.1f} s",
            data["syndrome"],
            data["part"],
            ",".join(map(str, data["ranks"])) or "-",
            f"{data['confidence']:.2f}",
            data["cause"] or data["probe"] or "-",
            "; ".join(data["evidence"]),
        )

    def as_data(self) -> dict[str, Any]:
        verdict = self.verdict
        return {
            "at_s": round(self.at_s, 3),
            "syndrome": str(verdict.syndrome),
            "part": str(verdict.part),
            "ranks": list(verdict.ranks),
            "confidence": verdict.confidence,
            "cause": str(verdict.cause) if verdict.cause else None,
            "probe": verdict.probe,
            "evidence": list(verdict.evidence),
            "signals": verdict.signals,
        }


def verdicts_in(folder: Path) -> list[TimedVerdict]:
    """Verdicts on a recorded job. Raises ConfigError for a folder without one."""
    if statuses := _statuses_of(folder):
        before = statuses[-2] if len(statuses) > 1 else None
        found_by_ras = ras_verdict(statuses[-1], 0.0, before)
        return [] if found_by_ras is None else [TimedVerdict(0.0, found_by_ras)]
    if inspected := inspector_files(folder):
        job = inspected_job(inspected)
        slow = slow_parts(job.groups, job.lasted_s, job.lasted_s) or [nothing_late(job.groups, job.lasted_s)]
        return [TimedVerdict(job.lasted_s, replace(each, evidence=(*each.evidence, *job.notes))) for each in slow]
    if dumps := _dumps_of(folder):
        return [TimedVerdict(at_s, verdict) for at_s, verdict in dumped_job(dumps).verdicts()]
    stream, found = JobStream(folder.name, ""), []
    first_s = None
    for now_s, frames in ticks_of(folder):
        first_s = now_s if first_s is None else first_s
        stream.take_recorded(frames, now_s)
        found += [TimedVerdict(now_s - first_s, verdict) for verdict in stream.judge(now_s)]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """All operations of a recorded job; shape (operations,) each."""

    rank: IntArray
    op: IntArray
    enter_s: FloatArray
    """Seconds since the first of them, by the wall clocks of the ranks."""
    exit_s: FloatArray
    """Infinite where it did not end."""


def operations_of(folder: Path) -> Operations:
    """Finished operations, and those in flight at each rank's last heartbeat or dump. Raises ConfigError."""
    if dumps := _dumps_of(folder):
        return Operations(*map(np.array, dumped_job(dumps).columns()))
    parts: list[tuple[Array, IntArray, IntArray]] = []
    for _, frames in ticks_of(folder):
        records = decoded(frames)
        lengths = records.headers["count"].astype(np.int64)
        parts.append((records.rows, records.rank, np.repeat(records.headers["wall_minus_ns"], lengths)))
    rows, rank, wall_ns = (np.concatenate([part[index] for part in parts]) for index in range(3))
    done = rows["kind"] == Kind.OPERATION
    last = np.zeros(int(rank.max(initial=0)) + 1, np.int64)
    beats = np.flatnonzero(rows["kind"] == Kind.BEAT)
    np.maximum.at(last, rank[beats], beats)
    waits = (rows["kind"] == Kind.IN_FLIGHT) & (np.arange(len(rows)) > last[rank])
    chosen = np.flatnonzero(done | waits)
    if not len(chosen):
        raise ConfigError(Mistake(str(folder), "holds no operation", "record a job that runs"))
    enter_ns = rows["at_ns"][chosen] + wall_ns[chosen]
    enter_s = (enter_ns - enter_ns.min()) * 1e-9
    exit_s = np.where(done[chosen], enter_s + rows["for_ns"][chosen] * 1e-9, np.inf)
    return Operations(rank[chosen], rows["op"][chosen].astype(np.int64), enter_s, exit_s)


def compute_times(folder: Path) -> FloatArray:
    """Shape (steps, ranks): seconds between operations, in which a rank computes, by step; 0 where nothing is known."""
    rows, rank = [], []
    for _, frames in ticks_of(folder):
        records = decoded(frames)
        done = (records.rows["kind"] == Kind.OPERATION) & (records.rows["phase"] == Phase.COMPUTE)
        rows.append(records.rows[done])
        rank.append(records.rank[done])
    operations, ranks = np.concatenate(rows), np.concatenate(rank)
    if not len(operations):
        raise ConfigError(Mistake(str(folder), "holds no finished operation", "record a job that runs"))
    steps = operations["step"].astype(np.int64) - int(operations["step"].min())
    made = np.zeros((int(steps.max()) + 1, int(ranks.max()) + 1))
    for each in range(made.shape[1]):
        mine = np.flatnonzero(ranks == each)
        mine = mine[np.argsort(operations["at_ns"][mine], kind="stable")]
        enter, exit_ = operations["at_ns"][mine], operations["at_ns"][mine] + operations["for_ns"][mine]
        gap_s = np.maximum(enter[1:] - np.maximum.accumulate(exit_)[:-1], 0) * 1e-9
        np.add.at(made[:, each], steps[mine][1:], gap_s)
    return made


def ticks_of(folder: Path) -> Iterator[tuple[float, bytes]]:
    """Instants and the frames that arrived by then. Raises ConfigError for a folder without frames."""
    files = sorted(folder.glob(FRAMES))
    if files:
        yield from _ticks_of_frames(b"".join(path.read_bytes() for path in files))
    elif _dumps_of(folder):
        raise ConfigError(
            Mistake(str(folder), "holds dumps, which know no steps", "record the job with tonnage.recorder")
        )
    else:
        words = f"holds no {FRAMES} files and no flight-recorder dumps"
        raise ConfigError(Mistake(str(folder), words, "see docs/health.md, Replay"))


def _statuses_of(folder: Path) -> list[RasStatus]:
    """Answers of NCCL's RAS service in a folder, the oldest first."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError):  # other files may be there, and say so where they are read
            if (status := ras_status(json.loads(path.read_bytes()))) is not None:
                found.append(status)
    return sorted(found, key=lambda each: each.taken_at)


def _dumps_of(folder: Path) -> list[Path]:
    """Dumps of a folder that holds no frames."""
    return [] if any(folder.glob(FRAMES)) else dumps_in(folder)


def _ticks_of_frames(everything: bytes) -> Iterator[tuple[float, bytes]]:
    """By the wall clocks of the senders, which are good enough to put frames into ticks."""
    dated = []
    for _, _, frame in frames_in(everything):
        header = decoded(frame).headers[0]
        dated.append(((int(header["at_ns"]) + int(header["wall_minus_ns"])) * 1e-9, frame))
    dated.sort(key=lambda each: each[0])
    waiting: list[bytes] = []
    tick_s = dated[0][0] + TICK_S if dated else 0.0
    for at_s, frame in dated:
        while at_s >= tick_s:
            yield tick_s, b"".join(waiting)
            waiting, tick_s = [], max(tick_s + TICK_S, at_s - LONGEST_GAP_S)
        waiting.append(frame)
    yield tick_s, b"".join(waiting)
    for beat in range(1, 20):  # what comes after the end: silence, in which hangs and deaths are judged
        yield tick_s + beat * TICK_S, b""


LONGEST_BYTES, MOST_BYTES = 64 * 1024 * 1024, 512 * 1024 * 1024
"""Bytes of an Inspector's file that are read, the newest: some 200,000 collectives; and those of all files together."""
INSPECTOR_SUFFIXES = (".log", ".json", ".jsonl")
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
        if path.name.endswith(INSPECTOR_SUFFIXES) and path.is_file():
            with path.open("rb") as file:
                first = _json_object(file.readline(1 << 16))
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
        for process, call, written_s in _collectives(path, min(LONGEST_BYTES, MOST_BYTES // len(paths)), unused):
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


def _collectives(
    path: Path, most_bytes: int, unused: Counter[str]
) -> Iterator[tuple[tuple[str, int], TimedCall, float]]:
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
            made = _json_object(line)
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


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        made = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return made if isinstance(made, dict) else None
