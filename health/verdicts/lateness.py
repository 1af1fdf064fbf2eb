"""Late ranks and slow groups, from how long each rank's device was in each operation.

A device is in a collective from its own arrival until the last member has arrived and the data is through. So the
rank that was in it shortest came last, and what the others were in it longer is what they waited for it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from health.analysis.excess import PERSISTENT, TIERS
from health.verdicts.slow_paths import LEAST_RATIO
from health.verdicts.slow_ranks import MATRIX_PRODUCT, SEVERAL
from health.verdicts.standstill import listed
from health.verdicts.verdict import JobVerdict, Part, Syndrome

PARTS, LEAST_OPERATIONS = 5, 25
"""Parts of a recording, in most of which a rank must be late: a stall, or the start of a job, is in one. Operations of
a group below which it tells nothing. Chosen."""
LEAST_SHARE = TIERS[-1].least_share
"""Share of the recorded time that others must have waited for a rank: that of the longest window of live jobs."""
FREE = 0.25
"""Share of the others' waiting that a late rank may have waited itself: who waits for one and is waited for by another
hands on a delay. Chosen."""
FEW_ALIKE = 4
"""Groups of as many ranks with operations as large below which a group has no measure. Chosen."""
SIGNALS = "durations on the device"


@dataclass(frozen=True, slots=True)
class TimedCall:
    """One operation as one rank's device ran it."""

    group: str
    """As people know it."""
    members: int
    """Ranks of the group."""
    seq: int
    """Number in the group: the same operation has the same on all its members."""
    rank: int
    took_s: float
    name: str
    size: int
    """Bytes or elements."""


@dataclass(frozen=True, slots=True, eq=False)
class TimedOperations:
    """Operations of one group that all its members told a duration of."""

    group: str
    members: IntArray
    """Shape (ranks,), ranks of the job."""
    took_s: FloatArray
    """Shape (operations, ranks)."""
    size: IntArray
    """Shape (operations,): bytes or elements; those of one size and name are alike."""
    name: Sequence[str]
    """Shape (operations,)."""

    @property
    def tells(self) -> bool:
        """Whether it has ranks that may wait for each other, and operations enough."""
        return len(self.members) > 1 and len(self.took_s) >= LEAST_OPERATIONS


@dataclass(frozen=True, slots=True)
class _Late:
    rank: int
    share: float
    """Share of the recorded time for which the others of a group waited."""
    words: str


def timed_operations(calls: Iterable[TimedCall]) -> list[TimedOperations]:
    """Operations by group, without those that a member tells nothing of."""
    of_group: defaultdict[tuple[str, int], defaultdict[int, dict[int, TimedCall]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for each in calls:
        of_group[each.group, each.members][each.seq][each.rank] = each
    made = []
    for (group, members), operations in sorted(of_group.items()):
        whole = [sorted(told.items()) for _, told in sorted(operations.items()) if len(told) == members]
        ranks = [rank for rank, _ in whole[0]] if whole else []
        whole = [told for told in whole if [rank for rank, _ in told] == ranks]
        if whole:
            took_s = np.array([[call.took_s for _, call in told] for told in whole])
            size = np.array([told[0][1].size for told in whole], np.int64)
            names = [told[0][1].name for told in whole]
            made.append(TimedOperations(group, np.array(ranks, np.int64), took_s, size, names))
    return made


def slow_parts(groups: Sequence[TimedOperations], lasted_s: float, at_s: float) -> list[JobVerdict]:
    """Late ranks, and groups that transfer slowly; none where nothing tells how long the operations took in all."""
    if lasted_s <= 0:
        return []
    slow = list(slow_groups(groups, lasted_s, at_s))
    return [*late_ranks(groups, lasted_s, at_s, {rank for verdict in slow for rank in verdict.ranks}), *slow]


def nothing_late(groups: Sequence[TimedOperations], lasted_s: float) -> JobVerdict:
    """That nothing stands out, and what was looked at."""
    told = [each for each in groups if each.tells]
    words = f"{sum(len(each.took_s) for each in told):,} operations of {len(told)} groups in {lasted_s:,.0f} s"
    few = f"{len(groups) - len(told)} more groups have fewer than {LEAST_OPERATIONS}, or one rank"
    shown = (words, few) if len(told) < len(groups) else (words,)
    return JobVerdict(lasted_s, Syndrome.NONE, Part.NOTHING, (), 0.0, 0.9, shown, signals=SIGNALS)


def late_ranks(
    groups: Sequence[TimedOperations], lasted_s: float, at_s: float, explained: Collection[int] = ()
) -> Iterator[JobVerdict]:
    """Ranks for which the others of their groups wait persistently.

    lasted_s: time in which the operations ran, above 0. at_s: instant of the verdict. explained: ranks that come late
    because of their transfers.
    """
    known = [each for each in groups if each.tells]
    waited_s: defaultdict[int, float] = defaultdict(float)
    for each in known:
        own_s = (each.took_s - each.took_s.min(axis=1, keepdims=True)).sum(axis=0)
        for rank, lost_s in zip(each.members.tolist(), own_s.tolist(), strict=True):
            waited_s[rank] += lost_s
    late: dict[int, _Late] = {}
    for each in known:
        found = _late_in(each, lasted_s)
        if found is not None and found.rank not in explained and waited_s[found.rank] <= FREE * found.share * lasted_s:
            late[found.rank] = max(late.get(found.rank, found), found, key=lambda one: one.share)
    together = next((each.group for each in known if set(each.members.tolist()) <= set(late)), "")
    if together or len(late) > SEVERAL:
        common = f"all of {together}" if together else "of no common group"
        worst = max(late.values(), key=lambda one: one.share)
        words = f"{listed(late)}, {common}, come last alike; the worst: {worst.words}"
        yield _verdict(at_s, lasted_s, Part.NOTHING, late, words, worst.share)
        return
    for rank, one in sorted(late.items()):
        yield _verdict(at_s, lasted_s, Part.RANK, [rank], one.words, one.share)


def _late_in(group: TimedOperations, lasted_s: float) -> _Late | None:
    last = group.took_s.argmin(axis=1)
    waits_s = np.sort(group.took_s - group.took_s.min(axis=1, keepdims=True), axis=1)[:, 1:]
    caused_s = np.zeros(group.took_s.shape)
    caused_s[np.arange(len(last)), last] = np.median(waits_s, axis=1)
    shares = np.array([part.sum(axis=0) for part in np.array_split(caused_s, PARTS)]) * PARTS / lasted_s
    middle = np.median(shares, axis=0)
    index = int(middle.argmax())
    if middle[index] < LEAST_SHARE or (shares[:, index] > LEAST_SHARE / 2).mean() < PERSISTENT:
        return None
    words = (
        f"it came last to {(last == index).mean():.0%} of {len(last)} operations of {group.group}, and the others "
        f"waited {middle[index]:.0%} of the time for it"
    )
    return _Late(int(group.members[index]), float(middle[index]), words)


def slow_groups(groups: Sequence[TimedOperations], lasted_s: float, at_s: float) -> Iterator[JobVerdict]:
    """Groups whose transfers take longer than those of other groups with as many ranks and operations as large."""
    alike: defaultdict[tuple[int, str, int], list[tuple[TimedOperations, BoolArray]]] = defaultdict(list)
    for each in groups:
        kinds = np.array([f"{name} {size}" for name, size in zip(each.name, each.size.tolist(), strict=True)])
        for kind in np.unique(kinds):
            chosen = kinds == kind
            if chosen.sum() >= LEAST_OPERATIONS:
                first = int(chosen.argmax())
                alike[len(each.members), each.name[first], int(each.size[first])].append((each, chosen))
    worst: dict[str, tuple[float, JobVerdict]] = {}
    for (ranks, name, size), several in alike.items():
        if len(several) < FEW_ALIKE:
            continue
        took_s = np.array([float(np.median(group.took_s[chosen].min(axis=1))) for group, chosen in several])
        usual_s = float(np.median(took_s))
        for (group, chosen), own_s in zip(several, took_s.tolist(), strict=True):
            share = (own_s - usual_s) * int(chosen.sum()) / lasted_s
            if own_s < LEAST_RATIO * usual_s or share < LEAST_SHARE or share <= worst.get(group.group, (0.0,))[0]:
                continue
            words = (
                f"{name} of {size:,} in {group.group} takes {own_s / usual_s:.1f} times what it takes in the median of "
                f"{len(several)} groups of {ranks}, {share:.0%} of the time"
            )
            worst[group.group] = share, _verdict(at_s, lasted_s, Part.GROUP, group.members.tolist(), words, share)
    yield from (verdict for _, verdict in worst.values())


def _verdict(at_s: float, lasted_s: float, part: Part, ranks: Collection[int], words: str, share: float) -> JobVerdict:
    probe = {Part.GROUP: "pair probes between neighbours of the ring", Part.NOTHING: MATRIX_PRODUCT}.get(part, "")
    return JobVerdict(
        at_s=at_s,
        syndrome=Syndrome.COMMUNICATION_SLOW if part is Part.GROUP else Syndrome.OTHER_SLOW,
        part=part,
        ranks=tuple(sorted(ranks)),
        since_s=at_s - lasted_s,
        confidence=min(0.99, share / (2 * LEAST_SHARE)),
        evidence=(words,),
        probe=probe,
        signals=SIGNALS,
    )
