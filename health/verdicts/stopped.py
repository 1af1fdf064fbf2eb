"""Stopped jobs: the verdict on a hang, by who waits for whom, and on a death, from errors and silence."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from health.analysis.excess import Pulse, Waiting
from health.analysis.last_words import Lost, Stacks, idle_alone, shown as shown_stacks
from health.records.layout import Layout
from health.verdicts.standstill import CallState, GroupPath, RecordedCall, Standstill
from health.verdicts.verdict import NETWORK, Cause, Fact, FactKind, JobVerdict, Part, Syndrome
from tonnage.records import Op, Phase

LEAST_S = 3.0
"""Age from which a wait counts as a hang: above the stalls of data loading, within the goal of 5 s with heartbeats
four times a second."""
START_S = 120.0
"""The same while a job starts: ranks load weights and compile for unlike times before they meet."""
_FIRST, _MANY = 32, 1_000
"""Operations of a group that count as its start, unless some group of the job has had many."""
_TYPICAL = 5.0
"""Multiple of the job's own 99th percentile that a wait must exceed too."""
_OLD_S = 1.0
"""Age of a wait that takes part in the graph."""
SILENT_S = 2.5
"""Silence from which a rank counts as stopped: ten heartbeats. It may have left what the last of them named."""
BLIND = 0.5
"""Share of silent ranks above which the records, not the job, are what stopped."""
PHASE_CAUSES = {
    int(Phase.CHECKPOINT): Cause.CHECKPOINT,
    int(Phase.EVALUATION): Cause.EVALUATION,
    int(Phase.COMPILE): Cause.COMPILATION,
}
_DIFFERING = {
    Cause.OPERATIONS: "these entered another one",
    Cause.SIZES: "all members entered it, these with another size",
    Cause.CALL_ORDER: "ranks wait for each other in different operations",
}
MANY = 0.5
"""Share of the ranks that must be absent for a common cause, such as storage."""
FACT_AGE_S = 60.0
"""Age up to which a fact from a node counts as part of the same disturbance."""
_ALIKE = (Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE)
"""Operations whose size is the same on all members."""


def on_hang(
    pulse: Pulse, layout: Layout, facts: Sequence[Fact], at_s: float, stacks: Stacks, *, causes: bool
) -> JobVerdict | None:
    """Cause of the oldest waits; None while the job makes progress or while the cause is too young to tell.

    causes: whether explanations that are no fault are considered.
    """
    waits = pulse.waiting(at_s)
    if not len(waits.rank):
        return None
    starts = waits.seq[waits.age_s.argmax()] <= _FIRST and pulse.entered.max() < _MANY
    if waits.age_s.max() < (START_S if starts else LEAST_S):
        return None
    old = np.flatnonzero(waits.age_s >= _OLD_S)
    silent = np.flatnonzero(pulse.silent_s(at_s) > SILENT_S)
    found: JobVerdict | None = None
    absent: list[int] = silent.tolist() if len(silent) <= BLIND * layout.ranks else []
    if not len(silent):
        still = Standstill(_calls(pulse, layout, waits, old, at_s))
        since_s = at_s - float(waits.age_s[old].max())
        in_operation = pulse.in_operation()
        absent = [rank for rank in sorted(still.absent) if not in_operation[rank]]
        differs = next(((cause, ranks) for cause, ranks, _ in still.differing()), None)
        if differs is None and still.blockers and not absent and still.stuck is None and at_s - since_s > 2 * LEAST_S:
            differs = Cause.CALL_ORDER, tuple(sorted(still.blockers))
        if differs is not None:
            cause, ranks = differs
            words = (_DIFFERING[cause],)
            found = JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, ranks, since_s, 0.9, words, cause)
        elif still.stuck is not None:
            path, since_s = int(still.stuck.path.group), still.complete_s(still.stuck)
            if at_s - since_s >= max(LEAST_S, _TYPICAL * float(pulse.lately_s[path])):
                found = _stuck(path, len(set(waits.rank.tolist())), since_s, layout, facts, at_s)
    if found is None and absent:
        waiting = len(set(waits.rank[old].tolist()))
        found = _absent(absent, waiting, pulse, layout, facts, at_s, stacks, causes=causes)
    return found and replace(found, evidence=(*found.evidence, *shown_stacks(stacks.since(found.since_s))))


def _calls(pulse: Pulse, layout: Layout, waits: Waiting, old: IntArray, now_s: float) -> Iterator[RecordedCall]:
    """On the paths of old waits: what each rank entered last, and what it is in."""
    of: dict[int, GroupPath] = {}
    for number in np.unique(waits.path[old]).tolist():
        slots = slice(layout.starts[number], layout.starts[number + 1])
        is_send = number >= len(layout.groups)
        path = of[number] = GroupPath(str(number), tuple(layout.members[slots].tolist()), is_send)
        entered, at_s = pulse.entered[slots].tolist(), pulse.advanced_s[slots].tolist()
        for rank, seq, since_s in zip(path.members, entered, at_s, strict=True):
            yield RecordedCall(rank, path, seq, state=CallState.DONE, created_s=since_s)
    rows = zip(
        *(column.tolist() for column in (waits.rank, waits.path, waits.seq, waits.op, waits.size, waits.age_s)),
        strict=True,
    )
    for rank, number, seq, op, size, age_s in rows:
        if number in of:
            kind = Op.SEND if op == Op.RECEIVE else Op(op)  # two ends of one operation
            state = CallState.BEGUN if age_s >= _OLD_S else CallState.DONE
            elements = size if op in _ALIKE else -1
            yield RecordedCall(rank, of[number], seq, kind.name, elements, "", state, now_s - age_s)


def _recent(facts: Sequence[Fact], since_s: float) -> list[Fact]:
    return [fact for fact in facts if fact.since_s >= since_s - FACT_AGE_S]


def _stuck(path: int, waiting: int, since_s: float, layout: Layout, facts: Sequence[Fact], at_s: float) -> JobVerdict:
    """On an operation that all its members entered and that does not end."""
    ranks = sorted(set(layout.ranks_on(path).tolist()))
    shown: tuple[str, ...] = (f"all {len(ranks)} members entered it, none left it", f"{waiting} ranks wait")
    network = [fact for fact in _recent(facts, since_s) if fact.kind in NETWORK and fact.rank in ranks]
    own = {fact.rank for fact in network if fact.peer < 0}
    pairs = {(min(fact.rank, fact.peer), max(fact.rank, fact.peer)) for fact in network if fact.peer in ranks}
    part, named, probe = (Part.LINK if len(ranks) == 2 else Part.GROUP), tuple(ranks), ""
    if len(own) == 1:
        part, named = Part.NIC, tuple(np.flatnonzero(layout.nic == layout.nic[own.pop()]).tolist())
    elif len(pairs) == 1:
        part, named = Part.LINK, pairs.pop()
    elif len(ranks) > 2:
        probe = "pair probes between neighbours of the ring"
    shown += tuple(sorted({f"{fact.kind} on rank {fact.rank}" for fact in network}))
    confidence = 0.95 if network else 0.8
    return JobVerdict(at_s, Syndrome.COMMUNICATION_HANG, part, named, since_s, confidence, shown, None, probe)


def _absent(
    absent: list[int],
    waiting: int,
    pulse: Pulse,
    layout: Layout,
    facts: Sequence[Fact],
    at_s: float,
    stacks: Stacks,
    *,
    causes: bool,
) -> JobVerdict | None:
    """On ranks that the others wait for, and that wait for none; None while one of them has computed for too short."""
    limit_s = max(LEAST_S, _TYPICAL * pulse.typical_gap_s)
    silent_s = pulse.silent_s(at_s)
    idle_s: FloatArray = pulse.idle_s + silent_s
    if any(idle_s[rank] <= limit_s and silent_s[rank] <= SILENT_S for rank in absent):
        return None  # the youngest may be what the others wait for
    longest = max(absent, key=lambda rank: idle_s[rank])
    silent, since_s = bool(silent_s[longest] > _OLD_S), at_s - float(idle_s[longest])
    ranks = tuple(absent)
    if len(ranks) > 1 and not silent and (alone := idle_alone(ranks, stacks.since(since_s))) is not None:
        ranks = (alone,)  # the others wait for other processes, in what is not recorded
    shown: tuple[str, ...] = (f"{waiting} ranks wait for it, it waits for none",)
    cause = None if silent else PHASE_CAUSES.get(int(pulse.phase[longest]))
    if cause is None and len(np.unique(layout.node[list(ranks)])) > 1:
        cause = Cause.STALL if len(ranks) >= MANY * layout.ranks else None
    if causes and cause is not None:
        return JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, ranks, since_s, 0.9, shown, cause)
    gone = any(fact.kind is FactKind.PROCESS_GONE and fact.rank in ranks for fact in _recent(facts, since_s))
    on_node = np.flatnonzero(layout.node == layout.node[ranks[0]])
    whole = len(on_node) > 1 and ranks == tuple(on_node.tolist())
    syndrome = Syndrome.DEAD_PROCESS if gone or (whole and silent) else Syndrome.OTHER_HANG
    shown += ("its heartbeats stopped as well" if silent else "its heartbeats go on",)
    part, confidence, probe = Part.RANK, 0.95, ""
    if whole:
        part, confidence = Part.NODE, 0.9
    elif len(ranks) > 1:
        part, confidence, probe = Part.NOTHING, 0.5, "stacks of these ranks"
    elif silent and not gone:
        probe = "state of the process, from the node agent: stopped or gone"
    return JobVerdict(at_s, syndrome, part, ranks, since_s, confidence, shown, None, probe)


def on_death(found: Lost, layout: Layout, facts: Sequence[Fact], at_s: float) -> JobVerdict:
    kinds = {fact.kind for fact in _recent(facts, found.since_s) if fact.rank in found.ranks}
    on_node = np.flatnonzero(layout.node == layout.node[found.ranks[0]])
    whole = len(on_node) > 1 and found.ranks == tuple(on_node.tolist())
    shown: tuple[str, ...] = (f"{found.errors} operations with it failed", "it fell silent without an error")
    if found.own_error:
        shown = ("it reported an exception of its own first",)
    if len(found.ranks) > 1 and not whole:
        probe = "state of these processes, from their node agents"
        return JobVerdict(
            at_s, Syndrome.DEAD_PROCESS, Part.NOTHING, found.ranks, found.since_s, 0.5, shown, None, probe
        )
    part, confidence = (Part.NODE if whole else Part.RANK), (0.99 if FactKind.PROCESS_GONE in kinds else 0.9)
    own = found.own_error and FactKind.XID not in kinds
    return JobVerdict(
        at_s, Syndrome.DEAD_PROCESS, part, found.ranks, found.since_s, confidence, shown, program_error=own
    )
