"""Dumps of PyTorch's flight recorder: what each rank entered, whatever torch, backend or form wrote it."""

import ast
import json
import math
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, Mistake
from health.verdicts.lateness import TimedCall, slow_parts, timed_operations
from health.verdicts.standstill import CallState, GroupPath, RecordedCall, Standstill, listed
from health.verdicts.verdict import Cause, JobVerdict
from tonnage.records import Op

NAME = re.compile(r"(?P<prefix>.*(?:trace|rank|dump).*?)(?P<rank>\d+)(?:\.json|\.pickle|\.pkl)?$")
"""Names of dumps: `nccl_trace_rank_3`, `rank3.json`; the last number is the rank.
Source: default of TORCH_NCCL_DEBUG_INFO_TEMP_FILE."""
LONGEST_BYTES = 256 * 1024 * 1024
_LISTS = ("build_intlist", "build_doublelist", "build_boollist")
_TO = re.compile(r"(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)")
_ALIKE: Mapping[str, tuple[str, str]] = {
    "allreduce": ("all_reduce", "output"),
    "allgather": ("all_gather", "output"),
    "reducescatter": ("reduce_scatter", "output"),
    "broadcast": ("broadcast", "output"),
    "reduce": ("reduce", "input"),
    "alltoall": ("all_to_all", ""),
    "barrier": ("barrier", ""),
    "gather": ("gather", "input"),
    "scatter": ("scatter", "output"),
}
"""Collectives by the beginning of their names without lines: the name here, and the side whose sizes are alike."""
_DEFAULT = ("default_pg", "0")
_TORCH = "torch 2.4 or newer writes them; see docs/health.md, Replay"


class _OnlyLists(pickle.Unpickler):
    """Reads plain values and calls nothing of a pickle: lists are all that torch makes by a function."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LISTS:
            return list
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"it refers to {pid!r}")


@dataclass(slots=True)
class Dump:
    """What one rank wrote."""

    path: Path
    rank: int
    entries: Sequence[Any]
    members: Mapping[str, tuple[int, ...]]
    """Members of each group, where the dump tells them."""

    @property
    def world(self) -> tuple[int, ...]:
        """Ranks of its run, where it tells them; else none."""
        return max(self.members.values(), key=len, default=())

    @property
    def last_ns(self) -> int:
        return max((_number(each.get("time_created_ns")) or 0 for each in self.entries if _is_entry(each)), default=0)


@dataclass(frozen=True, slots=True)
class DumpedJob:
    """All dumps of one run."""

    calls: tuple[RecordedCall, ...]
    unheard: tuple[int, ...]
    """Ranks of which there is no usable dump."""
    lacks_sends: bool
    """Whether its backend records no sends and receives: gloo."""
    notes: tuple[str, ...] = field(default=())
    """What was not used, counted, and what was taken for granted."""

    def verdicts(self) -> list[tuple[float, JobVerdict]]:
        """Instants since the first call, and what is found."""
        first_s = min(each.created_s for each in self.calls)
        at_s = max(each.created_s for each in self.calls)
        found = []
        for each in Standstill(self.calls, self.unheard).verdicts(at_s):
            made = replace(each, evidence=(*each.evidence, *self.notes), signals="dumps")
            if each.cause is Cause.ENDED and self.lacks_sends:
                shown = (*each.evidence, "gloo records no sends and receives", *self.notes)
                made = replace(each, cause=None, confidence=0.5, evidence=shown, probe="stacks of all ranks")
            found.append((at_s - first_s, made))
        slow = slow_parts(timed_operations(self._timed()), self._lasted_s, at_s - first_s)
        return [*found, *((at_s - first_s, replace(each, evidence=(*each.evidence, *self.notes))) for each in slow)]

    def _timed(self) -> Iterator[TimedCall]:
        for each in self.calls:
            if not each.path.is_send and math.isfinite(each.took_s):
                members = len(each.path.members)
                yield TimedCall(each.path.group, members, each.seq, each.rank, each.took_s, each.op, each.elements)

    @property
    def _lasted_s(self) -> float:
        """Longest time that a rank has recorded, by its own clock."""
        of_rank: dict[int, list[float]] = defaultdict(list)
        for each in self.calls:
            of_rank[each.rank].append(each.created_s)
        return max(max(created_s) - min(created_s) for created_s in of_rank.values())

    def columns(self) -> tuple[list[int], list[int], list[float], list[float]]:
        """Rank, `Op`, enter and exit of each call, in seconds since the first; no exit is infinite."""
        first_s = min(each.created_s for each in self.calls)
        ops = [
            Op.RECEIVE
            if each.path.is_send and each.rank == each.path.members[1]
            else Op.__members__.get(each.op.upper(), Op.OTHER)
            for each in self.calls
        ]
        enters = [each.created_s - first_s for each in self.calls]
        exits = [math.inf if each.state is not CallState.DONE else each.ended_s - first_s for each in self.calls]
        return [each.rank for each in self.calls], [int(op) for op in ops], enters, exits


def dumps_in(folder: Path) -> list[Path]:
    """Files of a folder that are named like dumps."""
    return [
        path
        for path in sorted(folder.iterdir())
        if NAME.fullmatch(path.name) and path.is_file() and not path.name.endswith((".gz", ".frames", ".txt", ".log"))
    ]


def dumped_job(paths: Sequence[Path]) -> DumpedJob:
    """The job that these dumps are of. Raises ConfigError where nothing in them is recognised."""
    read, broken = [], []
    for path in paths:
        try:
            read.append(_read(path))
        except ConfigError as error:
            broken.append(error)
    unused: Counter[str] = Counter()
    notes = [str(error) for error in broken]
    dumps = _of_one_run(_numbered(read, notes), notes)
    backends: set[str] = set()
    calls = list(_calls(dumps, unused, backends))
    if not calls:
        mistakes = [each for error in broken for each in error.mistakes]
        empty = [
            Mistake(str(each.path), f"holds no operation that is understood: {counted(unused)}", _TORCH)
            for each in dumps
        ]
        raise ConfigError((*mistakes, *empty))
    if unused:
        notes.append(f"not used: {counted(unused)}")
    known = {each.rank for each in calls}
    named = {rank for each in calls for rank in each.path.members}
    empty_ranks = sorted({each.rank for each in dumps} - known)
    if empty_ranks:
        notes.append(f"{listed(empty_ranks)}: the dump is empty")
    return DumpedJob(tuple(calls), tuple(sorted(named - known)), backends == {"gloo"}, tuple(notes))


def counted(unused: Counter[str]) -> str:
    return ", ".join(f"{count} {words}" for words, count in sorted(unused.items())) or "it has no entries"


def _read(path: Path) -> Dump:
    """A dump as JSON, or as torch pickles it by default."""
    if path.stat().st_size > LONGEST_BYTES:
        words = f"has more than {LONGEST_BYTES >> 20} MiB"
        raise ConfigError(Mistake(str(path), words, "it is no flight-recorder dump"))
    body = path.read_bytes()
    try:
        made = json.loads(body) if body[:1] in (b"{", b"\n", b" ", b"[") else _OnlyLists(BytesIO(body)).load()
    except Exception as error:  # a file may hold anything
        raise ConfigError(Mistake(str(path), f"cannot be read as a dump: {error}", _TORCH)) from error
    entries = made.get("entries") if isinstance(made, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(Mistake(str(path), "has no entries", _TORCH))
    config = made.get("pg_config")
    members = {
        str(about.get("name", name)): ranks
        for name, about in (config.items() if isinstance(config, dict) else ())
        if isinstance(about, dict) and (ranks := _ranks(about.get("ranks")))
    }
    named = NAME.fullmatch(path.name)
    return Dump(path, int(named["rank"]) if named else 0, entries, members)


def _ranks(written: Any) -> tuple[int, ...]:
    """Ranks of a group, as a list or as the text of one; none where it is neither."""
    try:
        found = ast.literal_eval(written) if isinstance(written, str) else written
        return tuple(int(each) for each in found)
    except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
        return ()


def _numbered(dumps: Sequence[Dump], notes: list[str]) -> list[Dump]:
    """One dump of each rank. Hosts may each have numbered theirs from 0; else the newest of a rank counts."""
    by_prefix: dict[str, list[Dump]] = defaultdict(list)
    for each in dumps:
        found = NAME.fullmatch(each.path.name)
        by_prefix[found["prefix"] if found else ""].append(each)
    ranks = [each.rank for each in dumps]
    if len(set(ranks)) == len(ranks):
        return list(dumps)
    per_host = len(next(iter(by_prefix.values())))
    are_hosts = all({each.rank for each in own} == set(range(per_host)) for own in by_prefix.values())
    if are_hosts and {len(each.world) for each in dumps} == {len(dumps)}:
        notes.append(f"{len(by_prefix)} hosts numbered their dumps from 0: ranks follow the order of their names")
        return [
            replace(each, rank=number * per_host + each.rank)
            for number, prefix in enumerate(sorted(by_prefix))
            for each in by_prefix[prefix]
        ]
    newest: dict[int, Dump] = {}
    for each in sorted(dumps, key=lambda dump: dump.last_ns):
        newest[each.rank] = each
    notes.append(f"{len(dumps) - len(newest)} files are of a rank that another is of, too: the newest counts")
    return list(newest.values())


def _of_one_run(dumps: Sequence[Dump], notes: list[str]) -> list[Dump]:
    """Dumps of the newest run: an elastic restart leaves those of ranks that it no longer has."""
    newest = max(dumps, key=lambda dump: dump.last_ns, default=None)
    if newest is None:
        return []
    worlds = {each.rank: each.members.get("0") or each.members.get("default_pg") for each in dumps}
    mine = worlds[newest.rank]
    kept = [each for each in dumps if not mine or not worlds[each.rank] or worlds[each.rank] == mine]
    if others := [each.rank for each in dumps if each not in kept]:
        notes.append(f"{listed(others)}: the dump is of another run")
    return kept


def _is_entry(each: object) -> bool:
    return isinstance(each, dict)


def _number(value: object) -> int | None:
    """A number as torch, or a tool that rewrote a dump, may write it."""
    try:
        found = float(value) if isinstance(value, str) else value
        return int(found) if isinstance(found, int | float) and math.isfinite(found) else None
    except ValueError:
        return None


@dataclass(slots=True)
class _Entry:
    rank: int
    group: str
    description: str
    op: str
    """Name without the backend's."""
    raw: Mapping[str, Any]
    is_send: bool


def _calls(dumps: Sequence[Dump], unused: Counter[str], backends: set[str]) -> Iterator[RecordedCall]:
    entries = [entry for dump in dumps for entry in _entries(dump, unused, backends)]
    in_group: dict[str, set[int]] = defaultdict(set)
    for each in entries:
        in_group[each.group].add(each.rank)
    everyone = range(max((each.rank for each in dumps), default=-1) + 1)
    config = {each.rank: each.members for each in dumps}
    states = {each.rank: _tells_starts(each) for each in dumps}
    sends: Counter[tuple[GroupPath, int, str]] = Counter()
    waiting: list[RecordedCall] = []
    whole: dict[tuple[int, GroupPath, int], RecordedCall] = {}
    for entry in entries:
        members = config[entry.rank].get(entry.group, ())
        if entry.rank not in members:  # gloo names no group in pg_config: those who entered something in it are in it
            members = tuple(everyone) if _is_default(entry) else tuple(sorted(in_group[entry.group]))
        made = _call(entry, GroupPath(_shown(entry), members), states[entry.rank], unused)
        if made is None:
            continue
        if not entry.is_send:
            key = (made.rank, made.path, made.seq)
            # Coalesced ones have one number, and an entry after them that tells how far all of them are.
            first = whole.get(key, made)
            whole[key] = replace(first, state=made.state, ended_s=made.ended_s)
        elif entry.op.endswith("coalesced"):
            waiting = [replace(each, state=made.state) if each.rank == made.rank else each for each in waiting]
            yield from waiting
            waiting = []
        else:
            if any(each.rank != made.rank for each in waiting):
                yield from waiting
                waiting = []
            sends[made.path, made.rank, ""] += 1
            waiting.append(replace(made, seq=sends[made.path, made.rank, ""]))
    yield from waiting
    yield from whole.values()


def _is_default(entry: _Entry) -> bool:
    return entry.description == "default_pg" or entry.group in _DEFAULT


def _shown(entry: _Entry) -> str:
    """The group as people know it."""
    known = entry.description if entry.description not in ("", "undefined") else ""
    return f"{known} ({entry.group})" if known and not _is_default(entry) else known or f"group {entry.group}"


def _entries(dump: Dump, unused: Counter[str], backends: set[str]) -> Iterator[_Entry]:
    for raw in sorted(filter(_is_entry, dump.entries), key=lambda each: _number(each.get("time_created_ns")) or 0):
        backend, _, name = str(raw.get("profiling_name") or "").rpartition(":")
        group = raw.get("process_group")
        named = [str(each) for each in group] if isinstance(group, list | tuple) and group else []
        if not named or not name:
            unused["entries without a process group or a name"] += 1
            continue
        backends.add(backend)
        is_send = bool(raw.get("is_p2p")) or name.startswith(("send", "recv"))
        yield _Entry(dump.rank, named[0], named[1] if len(named) > 1 else "", name, raw, is_send)
    if odd := sum(not _is_entry(each) for each in dump.entries):
        unused["entries that are none"] += odd


def _tells_starts(dump: Dump) -> bool:
    """Whether it tells when the device began an operation: NCCL's timing is off by default, and gloo has none."""
    return any(_is_entry(each) and _number(each.get("time_discovered_started_ns")) for each in dump.entries)


def _call(entry: _Entry, path: GroupPath, tells_starts: bool, unused: Counter[str]) -> RecordedCall | None:
    raw, seq = entry.raw, _number(entry.raw.get("collective_seq_id", entry.raw.get("seq_id")))
    state = _state(raw, tells_starts)
    took_ms = raw.get("duration_ms")
    took_s = float(took_ms) * 1e-3 if isinstance(took_ms, int | float) else math.nan
    created_s = (_number(raw.get("time_created_ns")) or 0) * 1e-9
    ended_s = max(created_s, (_number(raw.get("time_discovered_completed_ns")) or 0) * 1e-9)
    name = entry.op.replace("_", "").lower()
    begins = next((each for each in _ALIKE if name.startswith(each)), "")
    op, side = _ALIKE.get(begins, (entry.op, ""))
    op = "barrier" if name.endswith("barrier") else op
    elements, dtype = _size(raw, side)
    if entry.is_send:
        if entry.op.endswith("coalesced"):
            return RecordedCall(entry.rank, path, 0, op, state=state, created_s=created_s, ended_s=ended_s)
        found = _TO.search(entry.op)
        if found is None or max(int(found[2]), int(found[3])) >= len(path.members):
            unused["sends and receives without both ranks"] += 1
            return None
        own, peer = path.members[int(found[2])], path.members[int(found[3])]
        ends = (own, peer) if found[1] == "send" else (peer, own)
        elements, dtype = _size(raw, "input" if found[1] == "send" else "output")
        pair = GroupPath(f"{path.group}, {ends[0]}->{ends[1]}", ends, is_send=True)
        return RecordedCall(entry.rank, pair, 0, "send", elements, dtype, state, created_s, ended_s)
    if seq is None:
        unused["collectives without a number"] += 1
        return None
    return RecordedCall(entry.rank, path, seq, op, elements, dtype, state, created_s, ended_s, took_s)


def _state(raw: Mapping[str, Any], tells_starts: bool) -> CallState:
    written = raw.get("state")
    if written == "completed" or (written == "scheduled" and raw.get("retired") and not tells_starts):
        return CallState.DONE  # gloo's stay "scheduled" and are retired when they end
    return CallState.QUEUED if written == "scheduled" and tells_starts else CallState.BEGUN


def _size(raw: Mapping[str, Any], side: str) -> tuple[int, str]:
    """Elements of all tensors of this side, -1 where they are not told, and their types."""
    sizes, types = raw.get(f"{side}_sizes"), raw.get(f"{side}_dtypes")
    if not side or not isinstance(sizes, list) or not sizes:
        return -1, ""
    try:
        elements = sum(math.prod(int(each) for each in shape) for shape in sizes)
    except (TypeError, ValueError):
        return -1, ""
    return elements, ",".join(map(str, dict.fromkeys(types))) if isinstance(types, list) else ""
