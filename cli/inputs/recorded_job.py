"""Recorded jobs: frames of a recorder, dumps of PyTorch's flight recorder, or recordings, analysed as a live job is."""

import ast
import json
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from cluster.arrays import Array, FloatArray, IntArray
from cluster.errors import ConfigError, Mistake
from controller.loops.health.job_stream import JobStream, frames_in
from health.records.frames import decoded
from health.verdicts.verdict import JobVerdict
from simulator.health.recorded import recording
from tonnage import records
from tonnage.records import Kind, Op, Phase, role_of

NAME = re.compile(r"(?:trace|rank|dump).*?(\d+)(?:\.json|\.pickle|\.pkl)?$")
"""Names of dumps: `nccl_trace_rank_3`, `rank3.json`; the last number is the rank.
Source: default of TORCH_NCCL_DEBUG_INFO_TEMP_FILE."""
LONGEST_BYTES = 256 * 1024 * 1024
BEAT_S = 0.5
STILL_S = 121.5
"""Time for which the job stands still in the replay: a hang in the first operations of a group is judged after two
minutes."""
_OPS = tuple(op for op in Op if Op.OTHER < op < Op.SEND)
"""Collectives by name; `reduce` comes after `reduce_scatter`, of which it is the beginning."""
_LISTS = ("build_intlist", "build_doublelist", "build_boollist")


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    description: str
    ranks: tuple[int, ...]


def dumps_in(folder: Path) -> dict[int, Path]:
    """Dump of each rank in a folder; empty where there are none."""
    found = {}
    for path in sorted(folder.iterdir()):
        matched = NAME.search(path.name)
        if matched and path.is_file() and not path.name.endswith((".gz", ".frames")) and path.name != "truth.json":
            found[int(matched[1])] = path
    return found


def ticks_of_dumps(dumps: Mapping[int, Path]) -> Iterator[tuple[float, bytes]]:
    """Instants and frames: introductions, what was finished, and heartbeats of a job that stands still.

    Collectives alone: the numbers of sends and receives are not the same at both ends. A rank without a dump counts as
    silent.

    Raises ConfigError for a file that is no dump.
    """
    read = {rank: _read_dump(path) for rank, path in dumps.items()}
    groups = _groups(read, dumps)
    ranks = sorted({rank for group in groups for rank in group.ranks} | read.keys())
    entries = {rank: _collectives(dump, groups) for rank, dump in read.items()}
    now_ns = max((each.last_ns for mine in entries.values() for each in mine), default=0)
    yield 0.0, b"".join(_introduction(rank, ranks, groups) for rank in ranks)
    yield 1.5, b"".join(_finished(rank, mine, now_ns) for rank, mine in entries.items())
    for beat in range(1, int(STILL_S / BEAT_S)):
        at_ns = now_ns + int(beat * BEAT_S * 1e9)
        yield 1.5 + beat * BEAT_S, b"".join(_beat(rank, mine, now_ns, at_ns) for rank, mine in entries.items())


class _OnlyLists(pickle.Unpickler):
    """Reads plain values and calls nothing of a pickle: lists are all that torch makes by a function."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LISTS:
            return list
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"it refers to {pid!r}")


def _read_dump(path: Path) -> Mapping[str, Any]:
    """A dump as JSON, or as torch pickles it by default."""
    if path.stat().st_size > LONGEST_BYTES:
        raise ConfigError(
            Mistake(str(path), f"has more than {LONGEST_BYTES >> 20} MiB", "it is no flight-recorder dump")
        )
    body = path.read_bytes()
    try:
        made = json.loads(body) if body[:1] in (b"{", b"\n", b" ") else _OnlyLists(BytesIO(body)).load()
    except Exception as error:  # a file may hold anything
        raise ConfigError(
            Mistake(str(path), f"cannot be read as a dump: {error}", "see docs/health.md, Replay")
        ) from error
    if not isinstance(made, dict) or not isinstance(made.get("entries"), list):
        raise ConfigError(Mistake(str(path), "has no entries", "see docs/health.md, Replay"))
    return made


def _groups(read: Mapping[int, Mapping[str, Any]], paths: Mapping[int, Path]) -> tuple[_Group, ...]:
    """All process groups that the dumps describe."""
    found: dict[str, _Group] = {}
    for rank, dump in read.items():
        for name, about in (dump.get("pg_config") or {}).items():
            try:
                ranks = tuple(int(each) for each in ast.literal_eval(str(about["ranks"])))
            except (KeyError, TypeError, ValueError, SyntaxError) as error:
                words = f"does not say which ranks are in process group {name}"
                raise ConfigError(Mistake(str(paths[rank]), words, "torch 2.4 or newer writes pg_config")) from error
            found.setdefault(str(about.get("name", name)), _Group(str(name), str(about.get("desc", "")), ranks))
    if not found:
        raise ConfigError(Mistake("pg_config", "is in none of the dumps", "torch 2.4 or newer writes it"))
    return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One collective of a dump. Instants are 0 where the dump has none."""

    op: Op
    group: int
    """-1 for one that no dump describes."""
    seq: int
    created_ns: int
    completed_ns: int
    last_ns: int
    is_done: bool


def _collectives(dump: Mapping[str, Any], groups: Sequence[_Group]) -> list[_Entry]:
    made = []
    for each in dump["entries"]:
        if isinstance(each, dict) and not each.get("is_p2p"):
            op = str(each.get("profiling_name", "")).rpartition(":")[2].lstrip("_")
            name = str((each.get("process_group") or ("",))[0])
            instants = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
            created_ns, started_ns, completed_ns = (int(each.get(instant) or 0) for instant in instants)
            made.append(
                _Entry(
                    op=next((known for known in _OPS if op.startswith(known.name.lower())), Op.OTHER),
                    group=next((number for number, group in enumerate(groups) if group.name == name), -1),
                    seq=int(each.get("collective_seq_id") or 0),
                    created_ns=created_ns,
                    completed_ns=completed_ns,
                    last_ns=max(created_ns, started_ns, completed_ns),
                    is_done=each.get("state") == "completed" or bool(each.get("retired")),
                )
            )
    return sorted(made, key=lambda each: each.created_ns)


def _introduction(rank: int, ranks: Sequence[int], groups: Sequence[_Group]) -> bytes:
    made = [records.packed(Kind.PLACE, step=len(ranks))]
    for number, group in enumerate(groups):
        if rank in group.ranks and len(group.ranks) > 1:
            key = records.group_key(group.name, group.ranks)
            role, index, size = role_of(group.description), group.ranks.index(rank), len(group.ranks)
            made.append(records.packed(Kind.MEMBER, op=role, group=number, seq=index, at_ns=key, step=size))
    return _framed(made, rank, 0)


def _finished(rank: int, entries: Sequence[_Entry], now_ns: int) -> bytes:
    made = []
    for each in entries:
        if each.group >= 0 and each.is_done:
            at_ns, for_ns = each.created_ns, max((each.completed_ns or each.created_ns) - each.created_ns, 0)
            made.append(
                records.packed(Kind.OPERATION, op=each.op, group=each.group, seq=each.seq, at_ns=at_ns, for_ns=for_ns)
            )
    most = records.FRAME_RECORDS
    return b"".join(_framed(made[start : start + most], rank, now_ns) for start in range(0, len(made), most))


def _beat(rank: int, entries: Sequence[_Entry], now_ns: int, at_ns: int) -> bytes:
    """Heartbeat some time after the dump, when nothing has changed."""
    waits = [each for each in entries if not each.is_done and each.group >= 0][:4]
    left_ns = max((each.completed_ns for each in entries if each.is_done), default=now_ns)
    made = [records.packed(Kind.BEAT, group=len(waits), at_ns=at_ns, for_ns=max(at_ns - left_ns, 0))]
    for each in waits:
        enter_ns = each.created_ns or now_ns
        for_ns = max(at_ns - enter_ns, 0)
        made.append(
            records.packed(Kind.IN_FLIGHT, op=each.op, group=each.group, seq=each.seq, at_ns=enter_ns, for_ns=for_ns)
        )
    return _framed(made, rank, at_ns)


def _framed(made: Sequence[bytes], rank: int, at_ns: int) -> bytes:
    return records.frame(made, rank=rank, at_ns=at_ns, wall_minus_ns=0, incarnation=0, dropped=0)


TICK_S = 0.25
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
        }


def verdicts_in(folder: Path) -> list[TimedVerdict]:
    """Verdicts on a recorded job. Raises ConfigError for a folder without one."""
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
    """Finished operations, and those in flight at each rank's last heartbeat. Raises ConfigError."""
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
    """Instants and the frames that arrived by then, from either form. Raises ConfigError."""
    files = sorted(folder.glob(FRAMES))
    if files:
        yield from _ticks_of_frames(b"".join(path.read_bytes() for path in files))
    elif (folder / "truth.json").exists():
        made = recording(folder)
        yield 0.0, introductions_of(made.transcript.introductions)
        yield 1.5, b""
        for at_s, frames in made.transcript.ticks():
            yield 1.5 + at_s, frames
    elif dumps := dumps_in(folder):
        yield from ticks_of_dumps(dumps)
    else:
        words = f"holds no {FRAMES} files, no flight-recorder dumps, and no truth.json with rankN.jsonl.gz"
        raise ConfigError(Mistake(str(folder), words, "see docs/health.md, Replay"))


def introductions_of(found: Any) -> bytes:
    """Frames that introduce all ranks."""
    rows_of = {rank: found.rows[found.rank == rank] for rank in np.unique(found.rank).tolist()}
    return b"".join(_framed([row.tobytes() for row in rows], rank, 0) for rank, rows in rows_of.items())


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
