"""Recorded jobs: JSON lines of real torch.distributed ranks (one file a rank) as the recorder's frames."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage import records
from tonnage.records import NO_PEER, Failure, Kind, Op, Phase, Role

TICK_S = 0.25
OPS = {
    "allreduce": Op.ALL_REDUCE,
    "send": Op.SEND,
    "recv": Op.RECEIVE,
    "broadcast": Op.BROADCAST,
    "barrier": Op.BARRIER,
}
PHASES = {"checkpoint": Phase.CHECKPOINT, "evaluation": Phase.EVALUATION, "compile": Phase.COMPILE}
ROLES = {"world": Role.WORLD, "pp": Role.PIPELINE, "tp": Role.TENSOR, "dp": Role.DATA}
NUMBERS = {Role.WORLD: 0, Role.PIPELINE: 1, Role.TENSOR: 2, Role.DATA: 3}
DELIVERY_S = 0.01


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """One recorded job."""

    name: str
    kind: str
    """Injected fault, `none` without one."""
    rank: int
    """Faulty rank; -1 without one."""
    introductions: bytes
    """Frames with PLACE and MEMBER records of all ranks."""
    ticks: tuple[tuple[float, bytes], ...]
    """Instants on the job's clock, and the frames that arrived since the last one."""
    fault_s: float
    """Instant of the fault on the job's clock; NaN without one."""
    ranks: int


def recording(folder: Path) -> RecordedJob:
    """A folder with `truth.json` and `rankN.jsonl.gz`."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    world = int(truth["cfg"]["world"])
    lines = []
    for rank in range(world):
        with gzip.open(folder / f"rank{rank}.jsonl.gz", "rt", encoding="utf-8") as file:
            lines.append([json.loads(line) for line in file])
    begin_s = [_true_s(truth, rank, line) for rank in range(world) for line in lines[rank] if line["t"] == "hb"]
    origin_s, last_s = min(begin_s) - 1.0, 0.0
    arrived: defaultdict[int, list[bytes]] = defaultdict(list)
    for rank in range(world):
        for line, leaving in _leaving(lines[rank]):
            arrival_s = _true_s(truth, rank, line) - origin_s + DELIVERY_S
            arrived[int(arrival_s / TICK_S)].append(_frame(leaving, rank, _local_ns(line)))
            last_s = max(last_s, arrival_s)
    injected = truth["injected_monotonic_ns"]
    return RecordedJob(
        truth["name"],
        truth["fault"]["kind"],
        int(truth["fault"].get("rank", -1)),
        _introductions(lines),
        tuple(((tick + 1) * TICK_S, b"".join(arrived[tick])) for tick in range(int((last_s + 1) / TICK_S))),
        injected * 1e-9 - origin_s if injected else float("nan"),
        world,
    )


def _frame(made: Sequence[bytes], rank: int, at_ns: int) -> bytes:
    return records.frame(made, rank=rank, at_ns=at_ns, wall_minus_ns=0, incarnation=0, dropped=0)


def _true_s(truth: Mapping[str, Any], rank: int, line: Mapping[str, Any]) -> float:
    drift = truth["cfg"]["drift_ppm"][rank] * 1e-6
    skew_ns, start_ns = truth["cfg"]["skew_ns"][rank], truth["cfg"]["t0"]
    return float((_local_ns(line) - skew_ns + start_ns * drift) / (1 + drift) * 1e-9)


def _local_ns(line: Mapping[str, Any]) -> int:
    return int(line.get("x") or line.get("at") or line.get("e") or 0)


def _role(group: str) -> Role:
    return ROLES[group.rstrip("0123456789")]


def _introductions(lines: Sequence[Sequence[Mapping[str, Any]]]) -> bytes:
    """Frames of all ranks with the groups that each is in, and its place."""
    everyone = tuple(range(len(lines)))
    metas = [next(line for line in own if line["t"] == "meta") for own in lines]
    groups = {(meta[kind][0], tuple(meta[kind][1])) for meta in metas for kind in ("tp", "dp")}
    groups |= {("world", everyone), ("pp", everyone)}
    frames = []
    for rank, meta in enumerate(metas):
        made = []
        for name, ranks in sorted(groups):
            if rank in ranks:
                role, index, key = _role(name), ranks.index(rank), records.group_key(name, ranks)
                made.append(
                    records.packed(
                        Kind.MEMBER, op=role, group=NUMBERS[role], seq=index, at_ns=key, step=len(ranks), peer=0
                    )
                )
        stage, replica, *_ = meta["coord"]
        made.append(records.packed(Kind.PLACE, seq=stage, at_ns=replica, step=len(lines), peer=0))
        frames.append(_frame(made, rank, 0))
    return b"".join(frames)


def _leaving(lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], list[bytes]]]:
    """Lines with which records leave, and these: operations with the next heartbeat, errors at once."""
    waiting: list[bytes] = []
    left_ns = _local_ns(lines[1])
    for line in lines:
        match line["t"]:
            case "op":
                left_ns = line["x"]
                waiting.append(
                    records.packed(
                        Kind.OPERATION,
                        op=OPS[line["op"]],
                        group=NUMBERS[_role(line["pg"])],
                        seq=line["seq"],
                        at_ns=line["e"],
                        for_ns=line["x"] - line["e"],
                        step=line["step"],
                        peer=line.get("peer", NO_PEER),
                        size=records.size_class(line["bytes"]),
                    )
                )
                continue
            case "err":
                waiting.append(records.packed(Kind.ERROR, at_ns=_local_ns(line), size=Failure.CONNECTION))
            case "end":
                waiting.append(records.packed(Kind.END, at_ns=_local_ns(line)))
            case "hb":
                waiting.append(
                    records.packed(
                        Kind.BEAT,
                        group=len(line["inflight"]),
                        at_ns=line["at"],
                        for_ns=line["at"] - left_ns,
                        step=max(line["step"], 0),
                        phase=PHASES.get(line["phase"], Phase.COMPUTE),
                    )
                )
                waiting += [_in_flight(entry, line["at"]) for entry in line["inflight"]]
            case _:
                continue
        yield line, waiting
        waiting = []


def _in_flight(entry: Sequence[Any], now_ns: int) -> bytes:
    group, name, seq, enter_ns, peer = entry
    return records.packed(
        Kind.IN_FLIGHT,
        op=OPS[name],
        group=NUMBERS[_role(group)],
        seq=seq,
        at_ns=enter_ns,
        for_ns=now_ns - enter_ns,
        peer=NO_PEER if peer is None else peer,
    )
