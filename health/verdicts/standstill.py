"""Operations of a job that stands still, matched over its ranks: where their calls differ, and who waits for whom."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from health.verdicts.verdict import Cause, JobVerdict, Part, Syndrome


class CallState(IntEnum):
    """How far one rank has come in an operation."""

    QUEUED = 0
    """The device has not begun it."""
    BEGUN = 1
    DONE = 2


@dataclass(frozen=True, slots=True)
class GroupPath:
    """Ranks that an operation is of: a group's members, or a sender and its receiver."""

    group: str
    """As people know it."""
    members: tuple[int, ...]
    is_send: bool = False

    def __hash__(self) -> int:
        return hash((self.group, len(self.members)))  # not of thousands of members for each of their calls


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One operation as one rank saw it."""

    rank: int
    path: GroupPath
    seq: int
    """Number on the path: the same operation has the same on all its members."""
    op: str = ""
    """Empty: unknown."""
    elements: int = -1
    """Elements that must be as many on all members; -1: unknown, or free."""
    dtype: str = ""
    state: CallState = CallState.BEGUN
    created_s: float = 0.0
    ended_s: float = 0.0
    took_s: float = math.nan
    """How long the device was in it, where that is told."""


def listed(ranks: Iterable[int]) -> str:
    """`rank 5`, `ranks 0-4,6`."""
    found = sorted(ranks)
    runs: list[list[int]] = []
    for rank in found:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)
    return f"rank{'s' * (len(found) != 1)} {words}"


class Standstill:
    """What the calls of all ranks say about a job in which nothing moves any more."""

    def __init__(self, calls: Iterable[RecordedCall], unheard: Collection[int] = ()) -> None:
        """unheard: ranks of which nothing is known."""
        self._unheard = frozenset(unheard)
        self._calls: dict[GroupPath, dict[int, dict[int, RecordedCall]]] = defaultdict(lambda: defaultdict(dict))
        for each in calls:
            self._calls[each.path][each.rank][each.seq] = each

    def _at(self, path: GroupPath, seq: int) -> list[RecordedCall]:
        """What the members that are known to have entered it say of an operation."""
        return [calls[seq] for _, calls in sorted(self._calls[path].items()) if seq in calls]

    @cached_property
    def _first(self) -> list[RecordedCall]:
        """First unfinished call of each rank on each path: what it waits in; those behind it wait in a queue."""
        found = [
            calls[min(waiting)]
            for of_rank in self._calls.values()
            for calls in of_rank.values()
            if (waiting := [seq for seq, each in calls.items() if each.state is not CallState.DONE])
        ]
        return sorted(found, key=lambda each: (each.created_s, each.rank))

    @cached_property
    def _waits(self) -> list[RecordedCall]:
        """Calls that ranks are in; of a rank with begun ones no other."""
        begun = {each.rank for each in self._first if each.state is CallState.BEGUN}
        return [each for each in self._first if each.state is CallState.BEGUN or each.rank not in begun]

    @cached_property
    def _open(self) -> list[tuple[RecordedCall, set[int], set[int]]]:
        """Operations that ranks wait in: one call, ranks that wait in it, and members that have not begun it."""
        waiting: dict[tuple[GroupPath, int], list[RecordedCall]] = defaultdict(list)
        for each in self._waits:
            waiting[each.path, each.seq].append(each)
        return [
            (calls[0], {each.rank for each in calls}, self._behind(path, seq)) for (path, seq), calls in waiting.items()
        ]

    def _behind(self, path: GroupPath, seq: int) -> set[int]:
        found = set()
        for rank in path.members:
            calls = self._calls[path].get(rank, {})
            own = calls.get(seq)
            if max(calls, default=-1) < seq or (own is not None and own.state is CallState.QUEUED):
                found.add(rank)
        return found

    @cached_property
    def stuck(self) -> RecordedCall | None:
        """Of the operations that all members have begun and that do not end, the one that was complete first."""
        return min((call for call, _, behind in self._open if not behind), key=self.complete_s, default=None)

    def complete_s(self, call: RecordedCall) -> float:
        """When the last known member entered it."""
        return max(each.created_s for each in self._at(call.path, call.seq))

    @cached_property
    def blockers(self) -> set[int]:
        """Ranks that others wait for."""
        return set().union(*(behind - waits if len(waits) == 1 else behind for _, waits, behind in self._open))

    @cached_property
    def absent(self) -> set[int]:
        """Those of them that are in no operation."""
        return self.blockers - {each.rank for each in self._waits}

    def verdicts(self, at_s: float) -> list[JobVerdict]:
        """What keeps it from going on; one at least. at_s: when that was seen."""
        since_s = min((each.created_s for each in self._waits), default=at_s)
        return list(self._found(at_s, since_s))[:1] or [self._ended(at_s)]

    def _found(self, at_s: float, since_s: float) -> Iterator[JobVerdict]:
        for cause, ranks, shown in self.differing():
            yield JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, ranks, since_s, 0.95, shown, cause)
        if not self._waits:
            return
        if self.stuck is not None:
            yield self._stuck(self.stuck, at_s)
        begun = {each.rank for each in self._waits if each.state is CallState.BEGUN}
        queued = {each.rank for each in self._waits} - begun
        blockers, absent = self.blockers, self.absent
        waiting = f"waiting: {listed(begun | queued)}"
        unreceived = absent - self._unheard
        for call, waits, behind in self._open:
            if not call.path.is_send or waits != {call.path.members[0]}:
                unreceived -= behind
        if unreceived:
            senders = {call.path.members[0] for call, _, behind in self._open if behind & unreceived}
            yield self._unmatched(senders | unreceived, at_s, since_s)
        elif absent:
            yield self._absent(absent, waiting, at_s, since_s)
        elif held := (blockers & queued or queued if not begun or blockers & queued else set()):
            shown = (waiting, f"{listed(held)}: queued, and the device has not begun it", *self._positions(held))
            yield JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, _tuple(held), since_s, 0.8, shown, Cause.QUEUED)
        elif blockers:
            yield self._circle(blockers, at_s, since_s)

    def differing(self) -> Iterator[tuple[Cause, tuple[int, ...], tuple[str, ...]]]:
        """Operations in which a rank waits and that are not the same on all members: cause, odd ranks, words."""
        seen: set[tuple[GroupPath, int]] = set()
        for each in self._first:
            if (each.path, each.seq) in seen:
                continue
            seen.add((each.path, each.seq))
            calls = self._at(each.path, each.seq)
            what: Sequence[tuple[Cause, Mapping[int, Hashable]]] = (
                (Cause.OPERATIONS, {call.rank: call.op for call in calls if call.op}),
                (Cause.SIZES, {call.rank: call.elements for call in calls if call.elements >= 0}),
                (Cause.TYPES, {call.rank: call.dtype for call in calls if call.dtype}),
            )
            for cause, of_rank in what:
                if len(set(of_rank.values())) > 1:
                    camps = defaultdict(list)
                    for rank, value in of_rank.items():
                        camps[value].append(rank)
                    unit = " elements" * (cause is Cause.SIZES)
                    words = "; ".join(f"{listed(ranks)}: {value}{unit}" for value, ranks in camps.items())
                    yield cause, _odd(camps.values()), (f"number {each.seq} of {each.path.group}: {words}",)
                    break

    def _stuck(self, call: RecordedCall, at_s: float) -> JobVerdict:
        ranks = tuple(sorted(call.path.members))
        left = [each.rank for each in self._at(call.path, call.seq) if each.state is CallState.DONE]
        shown = (
            f"all {len(ranks)} members entered {call.op} {call.seq} of {call.path.group}",
            f"left it: {listed(left) if left else 'none'}",
            f"in an operation: {listed({each.rank for each in self._waits})}",
        )
        part = Part.LINK if len(ranks) == 2 else Part.GROUP
        probe = "" if len(ranks) == 2 else "pair probes between neighbours of the ring"
        return JobVerdict(at_s, Syndrome.COMMUNICATION_HANG, part, ranks, call.created_s, 0.8, shown, None, probe)

    def _absent(self, absent: set[int], waiting: str, at_s: float, since_s: float) -> JobVerdict:
        heard = absent - self._unheard
        named = heard or absent
        one = len(named) == 1
        shown = [f"{waiting}; for {listed(named)}, in no operation" if heard else f"{waiting}; for {listed(named)}"]
        shown += self._positions(heard)
        if lost := absent & self._unheard:
            shown.append(f"{listed(lost)}: nothing is known of it")
        part = Part.RANK if one else Part.NOTHING
        asked = f"stacks of {listed(heard)}" if heard else f"records or stacks of {listed(absent)}"
        confidence = (0.9 if heard else 0.7) if one else 0.5
        return JobVerdict(
            at_s, Syndrome.OTHER_HANG, part, _tuple(named), since_s, confidence, tuple(shown), None,
            "" if one and heard else asked,
        )  # fmt: skip

    def _unmatched(self, ranks: set[int], at_s: float, since_s: float) -> JobVerdict:
        shown = tuple(
            f"{each.op} {each.seq} from rank {each.path.members[0]} to rank {each.path.members[1]}: no receive for it"
            for each in self._waits
            if each.path.is_send and each.rank in ranks and each.rank == each.path.members[0]
        )
        return JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, _tuple(ranks), since_s, 0.8, shown, Cause.UNMATCHED_SEND)

    def _circle(self, blockers: set[int], at_s: float, since_s: float) -> JobVerdict:
        """Ranks that wait for each other."""
        camps: dict[object, list[int]] = defaultdict(list)
        for each in self._waits:
            camps[(each.path, each.seq)].append(each.rank)
        sends = {rank for each in self._waits if each.path.is_send for rank in each.path.members if rank in blockers}
        if sends:
            return self._unmatched({each.rank for each in self._waits if each.rank in blockers}, at_s, since_s)
        ranks = _odd(camps.values())
        shown = ("ranks wait for each other in different operations", *self._positions(ranks))
        return JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, ranks, since_s, 0.9, shown, Cause.CALL_ORDER)

    def _positions(self, ranks: Collection[int]) -> list[str]:
        """Where some of these ranks are, for people."""
        words = []
        for rank in sorted(ranks)[:4]:
            own = [calls[max(calls)] for of_rank in self._calls.values() if (calls := of_rank.get(rank))]
            if own:
                last = max(own, key=lambda each: (each.state is not CallState.DONE, each.created_s))
                done = {CallState.DONE: "finished", CallState.BEGUN: "is in", CallState.QUEUED: "has queued"}[
                    last.state
                ]
                words.append(f"rank {rank} {done} {last.op} {last.seq} of {last.path.group}")
        return words

    def _ended(self, at_s: float) -> JobVerdict:
        groups = [path for path in self._calls if not path.is_send]
        shown = [f"no rank is in an operation; {len(groups)} groups"]
        for path in groups:
            newest = Counter(max(calls) for calls in self._calls[path].values())
            if len(newest) > 1:
                shown.append(f"{path.group}: ranks ended at numbers {min(newest)} to {max(newest)}")
        if self._unheard:
            shown.append(f"{listed(self._unheard)}: nothing is known of it")
        return JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, (), at_s, 0.9, tuple(shown), Cause.ENDED)


def _tuple(ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(ranks))


def _odd(camps: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Ranks outside of the largest camp; all where there are two largest."""
    by_size = sorted(camps, key=len)
    alone = len(by_size) < 2 or len(by_size[-1]) > len(by_size[-2])
    return _tuple(rank for camp in (by_size[:-1] if alone and len(by_size) > 1 else by_size) for rank in camp)
