"""Status of NCCL's RAS service: who does not answer, and who has launched less than the ranks that wait for it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from health.verdicts.standstill import GroupPath, RecordedCall, Standstill, listed
from health.verdicts.verdict import Cause, JobVerdict, Part, Syndrome

Key = tuple[str, int, int]
"""Host, process and device of a rank: its number differs between communicators."""
_FINE = (0, 7)
"""ncclSuccess, ncclInProgress. Source: nccl.h, ncclResult_t."""
_ERRORS = {1: "unhandled CUDA error", 2: "system error", 3: "internal error", 6: "remote process error"}
_OTHERS = 6
"""The error that says that another process is at fault."""


@dataclass(frozen=True, slots=True)
class RasStatus:
    """One answer of the service about all processes of a job."""

    counts: Mapping[str, Mapping[int, Mapping[str, int]]]
    """Operations that each rank has launched, by communicator, rank of the job, and name."""
    members: Mapping[str, tuple[int, ...]]
    host: Mapping[int, str]
    dead: frozenset[int]
    """Ranks whose process does not answer, or is given up."""
    errors: Mapping[int, int]
    """Result codes of ranks that are not fine."""
    taken_at: str = ""
    """As the service writes it."""
    unused: Mapping[str, int] = field(default_factory=dict)
    """What was not understood, counted."""


def ras_status(made: Any) -> RasStatus | None:
    """The status in a JSON answer (`ncclras -f json`, NCCL 2.28 or newer); None where it is none.

    Ranks are those of the largest communicator, the job's own.
    """
    found = made.get("communicators") if isinstance(made, dict) else None
    if not isinstance(found, list):
        return None
    unused: Counter[str] = Counter()
    groups = [each for each in found if isinstance(each, dict) and isinstance(each.get("ranks"), list)]
    groups.sort(key=lambda each: -len(list(_entries(each))))
    number: dict[Key, int] = {}
    for each in groups[:1]:
        number = {_key(entry): int(entry["rank"]) for entry in _entries(each) if _is_number(entry.get("rank"))}
    counts: dict[str, dict[int, Mapping[str, int]]] = {}
    members: dict[str, tuple[int, ...]] = {}
    dead, errors = set[int](), dict[int, int]()
    for each in groups:
        name = str(each.get("hash", len(counts)))
        known = [(number[_key(entry)], entry) for entry in _entries(each) if _key(entry) in number]
        if lost := sum(1 for _ in _entries(each)) - len(known):
            unused["ranks of smaller communicators alone"] += lost
        members[name], counts[name] = tuple(sorted(rank for rank, _ in known)), {}
        for rank, entry in known:
            said, launched = entry.get("status"), entry.get("collective_counts")
            said = said if isinstance(said, dict) else {}
            if isinstance(launched, dict):
                counts[name][rank] = {op: count for op, count in launched.items() if _is_number(count)}
                for code in (said.get("init_state", 0), said.get("async_error", 0)):
                    if _is_number(code) and code not in _FINE:
                        errors[rank] = code
            elif said.get("considered_dead") or said.get("unresponsive"):
                dead.add(rank)
    if len(found) > len(groups):
        unused["communicators without ranks"] += len(found) - len(groups)
    host = {rank: key[0] for key, rank in number.items()}
    return RasStatus(counts, members, host, frozenset(dead), errors, str(made.get("timestamp", "")), dict(unused))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _entries(group: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in ("ranks", "missing_ranks"):
        entries = group.get(part)
        yield from (each for each in entries if isinstance(each, dict)) if isinstance(entries, list) else ()


def _key(entry: Mapping[str, Any]) -> Key:
    pid, device = entry.get("pid"), entry.get("cuda_dev")
    return str(entry.get("host", "")), pid if isinstance(pid, int) else -1, device if isinstance(device, int) else -1


def ras_verdict(now: RasStatus, at_s: float, before: RasStatus | None = None) -> JobVerdict | None:
    """What keeps the job from going on; None where it goes on.

    before: an earlier status of the same job. Without one the job is taken to stand still. Launches are the hosts',
    which may be ahead of their devices: a job whose ranks have all launched the same may yet hang.
    """
    shown = [f"{listed([rank])} reports {_ERRORS.get(code, f'error {code}')}" for rank, code in now.errors.items()]
    shown += [f"not used: {count} {words}" for words, count in now.unused.items()]
    if now.dead:
        verdict = _dead(now, at_s)
    elif before is not None and before.counts != now.counts:
        return None
    else:
        verdict = Standstill(_calls(now)).verdicts(at_s)[0]
        own = [rank for rank, code in now.errors.items() if code != _OTHERS]
        if verdict.cause is Cause.ENDED:
            asked = "pair probes between neighbours of the ring, or dumps of the flight recorder"
            words = ("all ranks have launched the same: NCCL does not tell what the devices have done",)
            verdict = replace(verdict, cause=None, confidence=0.5, evidence=words, probe=asked)
            if len(own) == 1:
                part, kind = Part.RANK, Syndrome.OTHER_HANG
                verdict = replace(verdict, syndrome=kind, part=part, ranks=tuple(own), confidence=0.8, probe="")
    if before is None:
        shown.append("one status: whether the job still moves, it does not tell")
    return replace(verdict, evidence=(*verdict.evidence, *shown), signals="launches (NCCL RAS)")


def _dead(now: RasStatus, at_s: float) -> JobVerdict:
    ranks = tuple(sorted(now.dead))
    hosts = {now.host[rank] for rank in ranks}
    whole = len(hosts) == 1 and len(ranks) > 1 and {rank for rank in now.host if now.host[rank] in hosts} == now.dead
    part = Part.NODE if whole else Part.RANK if len(ranks) == 1 else Part.NOTHING
    shown = (f"{listed(ranks)} on {', '.join(sorted(hosts))}: the process does not answer the others",)
    asked = "" if part is not Part.NOTHING else "state of these processes, from their node agents"
    confidence = 0.9 if part is not Part.NOTHING else 0.5
    return JobVerdict(at_s, Syndrome.DEAD_PROCESS, part, ranks, at_s, confidence, shown, None, asked)


def _calls(now: RasStatus) -> Iterable[RecordedCall]:
    """In each communicator, what each rank has launched beyond what all of them have."""
    for name, of_rank in now.counts.items():
        path = GroupPath(f"communicator {name}", now.members[name])
        least: dict[str, int] = defaultdict(int)
        for op in {op for launched in of_rank.values() for op in launched}:
            least[op] = min(launched.get(op, 0) for launched in of_rank.values())
        first = sum(least.values()) + 1
        by_total = sorted(of_rank.values(), key=lambda each: sum(each.values()))
        # Where each rank has launched what the next has, and less, they may well be at unlike places of one sequence.
        is_one = all(less.get(op, 0) <= more.get(op, 0) for less, more in pairwise(by_total) for op in less)
        for rank, launched in of_rank.items():
            more = [op for op, count in launched.items() if count > least[op]]
            if more:
                yield RecordedCall(rank, path, first, "operations" if is_one else " and ".join(more))
