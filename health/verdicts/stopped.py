"""Stopped jobs: the verdict on a hang from the wait-for graph, and on a death from errors and silence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from health.analysis import waits
from health.analysis.waits import Absent, Differs, Lost, Stack, Stuck
from health.records.layout import Layout
from health.verdicts.verdict import NETWORK, Cause, Fact, FactKind, JobVerdict, Part, Syndrome
from tonnage.records import Phase

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


def on_hang(
    found: Absent | Stuck | Differs,
    layout: Layout,
    facts: Sequence[Fact],
    at_s: float,
    sampled: Mapping[int, Stack],
    *,
    causes: bool,
) -> JobVerdict:
    """sampled: stacks of ranks since then. causes: whether explanations that are no fault are considered."""
    if isinstance(found, Absent) and len(found.ranks) > 1 and not found.silent:
        # The one of them that waits for no other process: the others wait in what is not recorded.
        alone = waits.idle_alone(found.ranks, sampled)
        found = found if alone is None else replace(found, ranks=(alone,))
    recent = _recent(facts, found.since_s)
    if isinstance(found, Stuck):
        verdict = _stuck(found, layout, recent, at_s)
    elif isinstance(found, Absent):
        verdict = _absent(found, layout, recent, at_s, causes=causes)
    else:
        words = (_DIFFERING[found.cause],)
        verdict = JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, found.ranks, found.since_s, 0.9, words, found.cause)
    return replace(verdict, evidence=(*verdict.evidence, *waits.shown(sampled)))


def _recent(facts: Sequence[Fact], since_s: float) -> list[Fact]:
    return [fact for fact in facts if fact.since_s >= since_s - FACT_AGE_S]


def _stuck(found: Stuck, layout: Layout, facts: list[Fact], at_s: float) -> JobVerdict:
    ranks = sorted(set(layout.ranks_on(found.path).tolist()))
    shown: tuple[str, ...] = (f"all {len(ranks)} members entered it, none left it", f"{found.waiting} ranks wait")
    network = [fact for fact in facts if fact.kind in NETWORK and fact.rank in ranks]
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
    return JobVerdict(at_s, Syndrome.COMMUNICATION_HANG, part, named, found.since_s, confidence, shown, None, probe)


def _absent(found: Absent, layout: Layout, facts: list[Fact], at_s: float, *, causes: bool) -> JobVerdict:
    shown: tuple[str, ...] = (f"{found.waiting} ranks wait for it, it waits for none",)
    cause = None if found.silent else PHASE_CAUSES.get(found.phase)
    if cause is None and len(np.unique(layout.node[list(found.ranks)])) > 1:
        cause = Cause.STALL if len(found.ranks) >= MANY * layout.ranks else None
    if causes and cause is not None:
        return JobVerdict(at_s, Syndrome.NONE, Part.NOTHING, found.ranks, found.since_s, 0.9, shown, cause)
    gone = any(fact.kind is FactKind.PROCESS_GONE and fact.rank in found.ranks for fact in facts)
    on_node = np.flatnonzero(layout.node == layout.node[found.ranks[0]])
    whole = len(on_node) > 1 and set(on_node.tolist()) <= set(found.ranks) and len(found.ranks) == len(on_node)
    syndrome = Syndrome.DEAD_PROCESS if gone or (whole and found.silent) else Syndrome.OTHER_HANG
    shown += ("its heartbeats stopped as well" if found.silent else "its heartbeats go on",)
    if whole:
        return JobVerdict(at_s, syndrome, Part.NODE, found.ranks, found.since_s, 0.9, shown)
    if len(found.ranks) > 1:
        probe = "stacks of these ranks"
        return JobVerdict(at_s, syndrome, Part.NOTHING, found.ranks, found.since_s, 0.5, shown, None, probe)
    probe = "state of the process, from the node agent: stopped or gone" if found.silent and not gone else ""
    return JobVerdict(at_s, syndrome, Part.RANK, found.ranks, found.since_s, 0.95, shown, None, probe)


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
