"""Dumps of PyTorch's flight recorder, one file per rank, as the frames of a recorder that saw the job stand still.

Collectives alone: the numbers of sends and receives are not the same at both ends. A rank without a dump counts as
silent. Nothing in a pickle is called: its lists are the only objects that torch makes by a function.
"""

import ast
import json
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, Mistake
from tonnage import records
from tonnage.records import Kind, Op
from tonnage.roles import role_of

NAME = re.compile(r"(?:trace|rank|dump).*?(\d+)(?:\.json|\.pickle|\.pkl)?$")
"""Names of dumps: `nccl_trace_rank_3`, `rank3.json`; the last number is the rank.
Source: default of TORCH_NCCL_DEBUG_INFO_TEMP_FILE."""
LONGEST_BYTES = 256 * 1024 * 1024
BEAT_S = 0.5
STILL_S = 121.5
"""Time for which the job stands still in the replay: a hang in the first operations of a group is judged after two
minutes."""
_OPS = {
    "all_reduce": Op.ALL_REDUCE,
    "all_gather": Op.ALL_GATHER,
    "reduce_scatter": Op.REDUCE_SCATTER,
    "broadcast": Op.BROADCAST,
    "reduce": Op.REDUCE,
    "all_to_all": Op.ALL_TO_ALL,
    "barrier": Op.BARRIER,
    "gather": Op.GATHER,
    "scatter": Op.SCATTER,
}
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

    Raises ConfigError for a file that is no dump.
    """
    read = {rank: _read(path) for rank, path in dumps.items()}
    groups = _groups(read, dumps)
    ranks = sorted({rank for group in groups for rank in group.ranks} | read.keys())
    entries = {rank: _collectives(dump) for rank, dump in read.items()}
    now_ns = max((_last_ns(each) for each in entries.values()), default=0)
    yield 0.0, b"".join(_introduction(rank, ranks, groups) for rank in ranks)
    yield 1.5, b"".join(_finished(rank, entries[rank], groups, now_ns) for rank in entries)
    for beat in range(1, int(STILL_S / BEAT_S)):
        since_ns = int(beat * BEAT_S * 1e9)
        yield 1.5 + beat * BEAT_S, b"".join(_beat(rank, entries[rank], groups, now_ns, since_ns) for rank in entries)


class _OnlyLists(pickle.Unpickler):
    """Reads plain values; the one function that it knows returns its list."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LISTS:
            return list
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"it refers to {pid!r}")


def _read(path: Path) -> Mapping[str, Any]:
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


def _collectives(dump: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    made = [each for each in dump["entries"] if isinstance(each, dict) and not each.get("is_p2p")]
    return sorted(made, key=lambda each: int(each.get("time_created_ns") or 0))


def _last_ns(entries: Sequence[Mapping[str, Any]]) -> int:
    instants = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
    return max((int(each.get(name) or 0) for each in entries for name in instants), default=0)


def _number(entry: Mapping[str, Any], groups: Sequence[_Group]) -> int:
    """Number of an entry's group; -1 for one that no dump describes."""
    name = str((entry.get("process_group") or ("",))[0])
    return next((number for number, group in enumerate(groups) if group.name == name), -1)


def _op(entry: Mapping[str, Any]) -> Op:
    name = str(entry.get("profiling_name", "")).rpartition(":")[2].lstrip("_")
    return next((op for word, op in _OPS.items() if name.startswith(word)), Op.OTHER)


def _is_done(entry: Mapping[str, Any]) -> bool:
    return entry.get("state") == "completed" or bool(entry.get("retired"))


def _introduction(rank: int, ranks: Sequence[int], groups: Sequence[_Group]) -> bytes:
    made = [records.packed(Kind.PLACE, step=len(ranks))]
    for number, group in enumerate(groups):
        if rank in group.ranks and len(group.ranks) > 1:
            key = records.group_key(group.name, group.ranks)
            role, index, size = role_of(group.description), group.ranks.index(rank), len(group.ranks)
            made.append(records.packed(Kind.MEMBER, op=role, group=number, seq=index, at_ns=key, step=size))
    return _framed(made, rank, 0)


def _finished(rank: int, entries: Sequence[Mapping[str, Any]], groups: Sequence[_Group], now_ns: int) -> bytes:
    made = []
    for each in entries:
        number = _number(each, groups)
        if number < 0 or not _is_done(each):
            continue
        enter_ns = int(each.get("time_created_ns") or 0)
        exit_ns = int(each.get("time_discovered_completed_ns") or enter_ns)
        seq = int(each.get("collective_seq_id") or 0)
        made.append(
            records.packed(
                Kind.OPERATION, op=_op(each), group=number, seq=seq, at_ns=enter_ns, for_ns=max(exit_ns - enter_ns, 0)
            )
        )
    most = records.FRAME_RECORDS
    return b"".join(_framed(made[start : start + most], rank, now_ns) for start in range(0, len(made), most))


def _beat(
    rank: int, entries: Sequence[Mapping[str, Any]], groups: Sequence[_Group], now_ns: int, since_ns: int
) -> bytes:
    """Heartbeat some time after the dump, when nothing has changed."""
    waits = [each for each in entries if not _is_done(each) and _number(each, groups) >= 0][:4]
    left_ns = max(
        (int(each.get("time_discovered_completed_ns") or 0) for each in entries if _is_done(each)), default=now_ns
    )
    at_ns = now_ns + since_ns
    made = [records.packed(Kind.BEAT, group=len(waits), at_ns=at_ns, for_ns=max(at_ns - left_ns, 0))]
    for each in waits:
        enter_ns, seq = int(each.get("time_created_ns") or now_ns), int(each.get("collective_seq_id") or 0)
        made.append(
            records.packed(
                Kind.IN_FLIGHT,
                op=_op(each),
                group=_number(each, groups),
                seq=seq,
                at_ns=enter_ns,
                for_ns=max(at_ns - enter_ns, 0),
            )
        )
    return _framed(made, rank, at_ns)


def _framed(made: Sequence[bytes], rank: int, at_ns: int) -> bytes:
    return records.frame(made, rank=rank, at_ns=at_ns, wall_minus_ns=0, incarnation=0, dropped=0)
