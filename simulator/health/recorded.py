"""Recorded jobs: JSON lines of real torch.distributed ranks (one file a rank) as the recorder's frames."""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.arrays import Array, FloatArray, IntArray
from health.records.frames import HEADER, RECORD, Records
from tonnage import records
from tonnage.records import MAGIC, NO_PEER, VERSION, Failure, Kind, Op, Phase, Role

TICK_S = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Records with the frame that each left in; shape (records,) each, in the order of leaving per rank."""

    rows: Array
    rank: IntArray
    frame: IntArray
    """Number of the frame, per rank."""
    local_ns: IntArray
    """Sender's clock when the frame left."""
    arrival_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """Frames as they arrive."""

    introductions: Records
    """PLACE and MEMBER records of all ranks."""
    rows: Array
    """Headers and records, dtype RECORD, in order of arrival."""
    ends: IntArray
    """Shape (ticks,): end of each tick in `rows`."""

    def ticks(self) -> Iterator[tuple[float, bytes]]:
        """Instant and frames of each tick."""
        start = 0
        for tick, end in enumerate(self.ends.tolist()):
            yield (tick + 1) * TICK_S, self.rows[start:end].tobytes()
            start = end

    @property
    def records(self) -> int:
        return len(self.rows)


def transcript(sent: Sent, wall_minus_ns: IntArray, introductions: Records, until_s: float) -> Transcript:
    """wall_minus_ns: shape (ranks,), wall clock minus local clock. until_s: end of the transcript."""
    kept = sent.arrival_s < until_s
    rows, rank, frame = sent.rows[kept], sent.rank[kept], sent.frame[kept]
    tick = (sent.arrival_s[kept] / TICK_S).astype(np.int64)
    code = (tick << 40) | (rank << 24) | frame
    order = np.argsort(code, kind="stable")
    rows, code, rank, tick = rows[order], code[order], rank[order], tick[order]
    first = np.flatnonzero(np.diff(code, prepend=-1))
    count = np.diff(first, append=len(code))
    headers = np.zeros(len(first), HEADER)
    headers["magic"], headers["version"], headers["count"] = MAGIC, VERSION, count
    headers["rank"], headers["at_ns"] = rank[first], sent.local_ns[kept][order][first]
    headers["wall_minus_ns"] = wall_minus_ns[rank[first]]
    both = np.empty(len(rows) + len(first), RECORD)
    at = first + np.arange(len(first))
    is_header = np.zeros(len(both), np.bool_)
    is_header[at] = True
    both[is_header], both[~is_header] = headers.view(RECORD), rows
    ends = np.searchsorted(tick, np.arange(int(until_s / TICK_S)), side="right")
    return Transcript(introductions, both, ends + np.searchsorted(first, ends))


def introductions(rank: IntArray, rows: Array) -> Records:
    return Records(rows, rank, np.zeros(0, HEADER))


def members(groups: list[tuple[int, int, IntArray]], number: dict[int, int]) -> tuple[IntArray, Array]:
    """MEMBER records of groups (key, role, ranks); number: the ranks' own number of the groups of each role."""
    ranks = np.concatenate([ranks for _, _, ranks in groups])
    rows = np.zeros(len(ranks), RECORD)
    sizes = [len(ranks) for _, _, ranks in groups]
    rows["kind"] = Kind.MEMBER
    rows["at_ns"] = np.repeat([key for key, _, _ in groups], sizes)
    rows["op"] = np.repeat([role for _, role, _ in groups], sizes)
    rows["group"] = np.repeat([number[role] for _, role, _ in groups], sizes)
    rows["step"] = np.repeat(sizes, sizes)
    rows["seq"] = np.concatenate([np.arange(size) for size in sizes])
    return ranks.astype(np.int64), rows


def places(stage: IntArray, replica: IntArray) -> tuple[IntArray, Array]:
    rows = np.zeros(len(stage), RECORD)
    rows["kind"], rows["seq"], rows["at_ns"], rows["step"] = Kind.PLACE, stage, replica, len(stage)
    return np.arange(len(stage), dtype=np.int64), rows


OPS = {
    "allreduce": Op.ALL_REDUCE,
    "send": Op.SEND,
    "recv": Op.RECEIVE,
    "broadcast": Op.BROADCAST,
    "barrier": Op.BARRIER,
}
PHASES = {"checkpoint": Phase.CHECKPOINT, "evaluation": Phase.EVALUATION, "compile": Phase.COMPILE}
ROLES = {"world": Role.WORLD, "pp": Role.PIPELINE, "tp": Role.TENSOR, "dp": Role.DATA}
NUMBERS = {int(Role.WORLD): 0, int(Role.PIPELINE): 1, int(Role.TENSOR): 2, int(Role.DATA): 3}
DELIVERY_S = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class RecordedJob:
    """One recorded job."""

    name: str
    kind: str
    """Injected fault, `none` without one."""
    rank: int
    """Faulty rank; -1 without one."""
    transcript: Transcript
    fault_s: float
    """Instant of the fault on the transcript's clock; NaN without one."""
    ranks: int


def recording(folder: Path) -> RecordedJob:
    """A folder with `truth.json` and `rankN.jsonl.gz`."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    world = int(truth["cfg"]["world"])
    lines = [_lines(folder / f"rank{rank}.jsonl.gz") for rank in range(world)]
    origin_s = (
        min(_true_s(truth, rank, line) for rank in range(world) for line in lines[rank] if line["t"] == "hb") - 1.0
    )
    sent = [_sent(rank, lines[rank], truth, origin_s) for rank in range(world)]
    joined = Sent(
        np.concatenate([each.rows for each in sent]),
        np.concatenate([each.rank for each in sent]),
        np.concatenate([each.frame for each in sent]),
        np.concatenate([each.local_ns for each in sent]),
        np.concatenate([each.arrival_s for each in sent]),
    )
    injected = truth["injected_monotonic_ns"]
    return RecordedJob(
        truth["name"],
        truth["fault"]["kind"],
        int(truth["fault"].get("rank", -1)),
        transcript(
            joined, np.zeros(world, np.int64), _introduced(lines, truth["cfg"]), float(joined.arrival_s.max()) + 1
        ),
        injected * 1e-9 - origin_s if injected else float("nan"),
        world,
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _true_s(truth: Mapping[str, Any], rank: int, line: Mapping[str, Any]) -> float:
    drift = truth["cfg"]["drift_ppm"][rank] * 1e-6
    skew_ns, start_ns = truth["cfg"]["skew_ns"][rank], truth["cfg"]["t0"]
    return float((_local_ns(line) - skew_ns + start_ns * drift) / (1 + drift) * 1e-9)


def _local_ns(line: Mapping[str, Any]) -> int:
    return int(line.get("x") or line.get("at") or line.get("e") or 0)


def _introduced(lines: list[list[dict[str, Any]]], cfg: Mapping[str, Any]) -> Records:
    world = int(cfg["world"])
    groups = {("world", tuple(range(world))), ("pp", tuple(range(world)))}
    coordinates = np.zeros((world, 3), np.int64)
    for rank, own in enumerate(lines):
        meta = next(line for line in own if line["t"] == "meta")
        groups |= {(meta[kind][0], tuple(meta[kind][1])) for kind in ("tp", "dp")}
        coordinates[rank] = meta["coord"]
    made = [
        (records.group_key(name, ranks), int(ROLES[name.rstrip("0123456789")]), np.array(ranks))
        for name, ranks in sorted(groups)
    ]
    joined, rows = members(made, NUMBERS)
    placed, place_rows = places(coordinates[:, 0], coordinates[:, 1])
    return introductions(np.concatenate([joined, placed]), np.concatenate([rows, place_rows]))


def _sent(rank: int, lines: list[dict[str, Any]], truth: Mapping[str, Any], origin_s: float) -> Sent:
    """Operations leave with the next heartbeat, errors at once."""
    rows: list[Array] = []
    frame: list[int] = []
    local_ns: list[int] = []
    arrival_s: list[float] = []
    waiting: list[Array] = []
    left_ns = _local_ns(lines[1])
    for line in lines:
        if line["t"] == "op":
            waiting.append(
                _record(
                    Kind.OPERATION,
                    op=OPS[line["op"]],
                    group=NUMBERS[int(ROLES[line["pg"].rstrip("0123456789")])],
                    seq=line["seq"],
                    at_ns=line["e"],
                    for_ns=line["x"] - line["e"],
                    step=line["step"],
                    peer=line.get("peer", NO_PEER),
                    size=records.size_class(line["bytes"]),
                )
            )
            left_ns = line["x"]
            continue
        if line["t"] not in ("hb", "err", "end"):
            continue
        leaving = [*waiting, *_others(line, left_ns)]
        waiting = []
        rows += leaving
        frame += [len(local_ns)] * len(leaving)
        local_ns += [_local_ns(line)] * len(leaving)
        arrival_s += [_true_s(truth, rank, line) - origin_s + DELIVERY_S] * len(leaving)
    return Sent(
        np.concatenate(rows),
        np.full(len(rows), rank, np.int64),
        np.array(frame),
        np.array(local_ns),
        np.array(arrival_s),
    )


def _record(kind: Kind, **fields: int) -> Array:
    row = np.zeros(1, RECORD)
    row["kind"], row["peer"] = kind, NO_PEER
    for name, value in fields.items():
        row[name] = value
    return row


def _others(line: Mapping[str, Any], left_ns: int) -> list[Array]:
    if line["t"] == "err":
        return [_record(Kind.ERROR, at_ns=_local_ns(line), size=Failure.CONNECTION)]
    if line["t"] == "end":
        return [_record(Kind.END, at_ns=_local_ns(line))]
    now_ns = line["at"]
    phase = int(PHASES.get(line["phase"], Phase.COMPUTE))
    idle_ns = max(now_ns - left_ns, 0)
    step = max(line["step"], 0)
    beat = _record(Kind.BEAT, group=len(line["inflight"]), at_ns=now_ns, for_ns=idle_ns, step=step, phase=phase)
    return [beat, *(_in_flight(entry, now_ns) for entry in line["inflight"])]


def _in_flight(entry: list[Any], now_ns: int) -> Array:
    group, name, seq, enter_ns, peer = entry
    return _record(
        Kind.IN_FLIGHT,
        op=OPS[name],
        group=NUMBERS[int(ROLES[group.rstrip("0123456789")])],
        seq=seq,
        at_ns=enter_ns,
        for_ns=now_ns - enter_ns,
        peer=NO_PEER if peer is None else peer,
    )
