"""Folding: evidence into incidents, so that repetition and order leave no trace."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from health.remediation.facts import FaultEvidence, NodeFacts, Origin, OurTaint, Situation, subject_of
from health.remediation.incidents import STOPS, Incident, IncidentPhase, Remedy, Run
from health.verdicts.verdict import Cause, Part, Syndrome

PROGRAM_CAUSES = (Cause.CALL_ORDER, Cause.OPERATIONS, Cause.SIZES, Cause.TYPES, Cause.UNMATCHED_SEND)
"""Explanations that are no fault of hardware and yet stop the job: a restart is all that helps."""
OPEN = (Part.NOTHING, Part.GROUP)
"""What a probe would have to narrow down."""
LIMITED_SLACK = 0.05
"""Loss of speed beyond what our own limit explains, as a share, from which something else is suspected."""


def folded(
    incidents: Mapping[str, Incident], evidence: Iterable[FaultEvidence], situation: Situation
) -> dict[str, Incident]:
    """Incidents after relevant evidence. Instants decide, not the order of arrival."""
    after = dict(incidents)
    for each in sorted(evidence, key=lambda one: (one.at_s, one.over, repr(one))):
        own = after.get(subject_of(each))
        is_old = own is not None and each.at_s <= own.closed_s
        if not is_old and not _is_explained(each, situation):
            id_ = _incident_of(each, after)
            same = _same_disturbance(each, id_, after)
            if same is not None:
                # It replaces the one before where nothing was done yet, and it names a part, or is surer of it.
                was_open = same.part in OPEN and each.part not in OPEN
                waits = same.phase in (IncidentPhase.SUSPECTED, IncidentPhase.PAGED)
                if not (waits and (was_open or each.confidence > same.confidence)):
                    # It adds to what is known: never another part, and no more nodes.
                    after[same.id] = replace(
                        same,
                        since_s=min(same.since_s, each.since_s),
                        seen_s=max(same.seen_s, each.at_s),
                        slow_share=max(same.slow_share, each.slow_share),
                        shown=tuple(sorted({*same.shown, *each.shown})),
                    )
                    continue
                after[same.id] = closed(same, situation.now_s, f"told more closely: {id_}")
            known = after.get(id_)
            if known is None:
                if not each.over:
                    after[id_] = _opened(id_, each, situation, generation=1)
            elif each.at_s > known.closed_s:
                after[id_] = _with(known, each, situation)
    return after


def _incident_of(evidence: FaultEvidence, incidents: Mapping[str, Incident]) -> str:
    """Id of the incident that the evidence is about: its suspect's own while it is open, else its domain's."""
    own = subject_of(evidence)
    known = incidents.get(own)
    if (known is not None and known.is_open) or _is_programs(evidence):
        return own  # a program's error is no domain's
    for each in incidents.values():
        if each.domain and each.is_open and evidence.nodes and set(evidence.nodes) <= set(each.nodes):
            return each.id
    return own


DISTURBANCE_S = 300.0
"""Time after the last sign of an incident within which another verdict on some of its nodes is about the same."""


def _same_disturbance(evidence: FaultEvidence, id_: str, incidents: Mapping[str, Incident]) -> Incident | None:
    """The open incident of the same run and nodes that this verdict, on another part, is about as well.

    A slow link is told as a link and, half a second later, as a NIC at one of its ends; a hang, first as a group's.
    """
    known = incidents.get(id_)
    if evidence.source is not Origin.JOB or evidence.over or _is_programs(evidence) or not evidence.nodes:
        return None
    if known is not None and known.is_open:
        return None
    for each in incidents.values():
        if (
            each.phase in (IncidentPhase.SUSPECTED, IncidentPhase.ACTING, IncidentPhase.PAGED)
            and not (each.domain or each.program_error)
            and each.id != id_
            and Run(evidence.job, evidence.incarnation) in each.runs
            and each.stops == (evidence.syndrome in STOPS)
            and set(each.nodes) & set(evidence.nodes)
            and evidence.since_s <= each.seen_s + DISTURBANCE_S
        ):
            return each
    return None


def _is_explained(evidence: FaultEvidence, situation: Situation) -> bool:
    """Whether there is nothing to remedy: another cause, or no more than our own limits take."""
    if evidence.cause is not None and evidence.cause not in PROGRAM_CAUSES:
        return True
    if evidence.syndrome is not Syndrome.OTHER_SLOW:
        return False
    for node in (situation.nodes[key.name] for key in evidence.nodes):
        # Our own watts or CPU quota, in force by then, may cost the node as much speed as the job has lost.
        expected = 1 - node.own_speed_share
        in_force = node.limited_since_s <= evidence.at_s and expected > 0
        if in_force and evidence.slow_share <= expected + LIMITED_SLACK:
            return True
    return False


def _opened(id_: str, evidence: FaultEvidence, situation: Situation, *, generation: int) -> Incident:
    return Incident(
        id=id_,
        generation=generation,
        phase=IncidentPhase.SUSPECTED,
        runs=_runs(evidence, situation),
        nodes=tuple(sorted(evidence.nodes, key=lambda key: key.name)),
        syndrome=evidence.syndrome,
        part=evidence.part,
        sources=(evidence.source,),
        since_s=evidence.since_s,
        seen_s=evidence.at_s,
        confidence=evidence.confidence,
        slow_share=evidence.slow_share,
        program_error=_is_programs(evidence),
        after_job=evidence.after_job,
        phase_since_s=situation.now_s,
        probe=evidence.probe,
        shown=evidence.shown,
    )


def _is_programs(evidence: FaultEvidence) -> bool:
    return evidence.program_error or evidence.cause in PROGRAM_CAUSES


def _runs(evidence: FaultEvidence, situation: Situation) -> tuple[Run, ...]:
    job = situation.jobs.get(evidence.job)
    if job is None or (evidence.syndrome is Syndrome.NONE and evidence.cause is None):
        return ()
    seen_by_it = evidence.at_s >= job.started_s and evidence.incarnation in ("", job.incarnation)
    return (Run(job.name, job.incarnation),) if seen_by_it else ()


def _with(known: Incident, evidence: FaultEvidence, situation: Situation) -> Incident:
    if known.phase is IncidentPhase.CLOSED:
        return known if evidence.over else _reopened(known, evidence, situation)
    if evidence.over:
        # A disturbance that went away by itself, before the job was stopped for it.
        waits = (
            known.phase is IncidentPhase.SUSPECTED
            or (known.phase is IncidentPhase.ACTING and known.at_checkpoint and not known.stops)
            or (known.phase is IncidentPhase.PAGED and not known.stops and not known.domain)
        )
        if not waits or evidence.at_s < known.seen_s:
            return known
        return closed(known, situation.now_s, "; ".join(evidence.shown) or "it ended by itself")
    if known.phase in (IncidentPhase.QUARANTINED, IncidentPhase.PROBATION):
        # A relapse: a node that is out disturbs a job anew, or shows a fault after it passed its test.
        by_itself = known.phase is IncidentPhase.PROBATION and evidence.source is not Origin.JOB
        relapse = evidence.at_s > known.phase_since_s and (by_itself or _runs(evidence, situation) != ())
        return _reopened(known, evidence, situation) if relapse else known
    return united(known, _opened(known.id, evidence, situation, generation=known.generation))


def _reopened(known: Incident, evidence: FaultEvidence, situation: Situation) -> Incident:
    fresh = _opened(known.id, evidence, situation, generation=known.generation + 1)
    return replace(fresh, strikes=known.strikes, closed_s=known.closed_s, nodes=fresh.nodes or known.nodes)


def united(known: Incident, other: Incident) -> Incident:
    """What two records of one suspect say together; the state is the first one's."""
    return replace(
        known,
        runs=tuple(sorted({*known.runs, *other.runs})),
        nodes=tuple(sorted({*known.nodes, *other.nodes}, key=lambda key: (key.name, key.uid))),
        syndrome=max(known.syndrome, other.syndrome, key=_BY_SEVERITY.index),
        part=max(known.part, other.part, key=_BY_BREADTH.index),
        sources=tuple(sorted({*known.sources, *other.sources})),
        since_s=min(known.since_s, other.since_s),
        seen_s=max(known.seen_s, other.seen_s),
        confidence=max(known.confidence, other.confidence),
        slow_share=max(known.slow_share, other.slow_share),
        program_error=known.program_error or other.program_error,
        after_job=known.after_job and other.after_job,
        probe=max(known.probe, other.probe),
        shown=tuple(sorted({*known.shown, *other.shown})),
    )


_BY_SEVERITY = (
    Syndrome.NONE,
    Syndrome.OTHER_SLOW,
    Syndrome.COMMUNICATION_SLOW,
    Syndrome.COMMUNICATION_HANG,
    Syndrome.OTHER_HANG,
    Syndrome.DEAD_PROCESS,
)
_BY_BREADTH = (Part.NOTHING, Part.GROUP, Part.LINK, Part.RANK, Part.NIC, Part.NODE)


def closed(known: Incident, now_s: float, why: str) -> Incident:
    return replace(
        known,
        phase=IncidentPhase.CLOSED,
        phase_since_s=now_s,
        closed_s=max(now_s, known.seen_s),
        waits_for=why,
        runs=(),
    )


def with_taint(known: Incident | None, node: NodeFacts, taint: OurTaint) -> Incident:
    """The incident behind a taint of ours: a taint that is newer than its record, or without one, is believed.

    Its job may still run on the node: what evidence says of that joins it before it counts as quarantined.
    """
    if known is not None and known.generation >= taint.generation:
        lost = known.phase is IncidentPhase.SUSPECTED and known.generation == taint.generation
        if not lost or taint.on_probation:
            return known
        # The record of the decision that set the taint was lost.
        return replace(
            known,
            phase=IncidentPhase.ACTING,
            remedy=Remedy.QUARANTINE,
            acted_s=taint.at_s,
            phase_since_s=taint.at_s,
            strikes=known.strikes + 1,
        )
    return Incident(
        id=taint.incident,
        generation=taint.generation,
        phase=IncidentPhase.PROBATION if taint.on_probation else IncidentPhase.ACTING,
        runs=(),
        nodes=(node.key,),
        syndrome=Syndrome.NONE,
        part=Part.NODE,
        sources=(),
        since_s=taint.at_s,
        seen_s=taint.at_s,
        confidence=0.0,
        remedy=Remedy.QUARANTINE,
        acted_s=taint.at_s,
        phase_since_s=taint.at_s,
        strikes=known.strikes + 1 if known is not None else 1,
        shown=("rebuilt from the node's taint",),
    )
