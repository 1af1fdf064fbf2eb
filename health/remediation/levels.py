"""Levels: the intents that the state of all incidents asks for, until the situation shows that they are done."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from health.remediation.evidence import NodeKey
from health.remediation.facts import JobFacts
from health.remediation.incidents import Incident, Phase, Remedy
from health.remediation.intents import Intent, JobDo, JobIntent, NodeDo, NodeIntent, Page
from health.remediation.lifecycle import Around, avoided, is_open_question, live_jobs, priced, seats

_STRENGTH = {
    JobDo.TOLERATE: 0,
    JobDo.MOVE_AT_CHECKPOINT: 1,
    JobDo.RESTART_IN_PLACE: 2,
    JobDo.EVICT_NOW: 3,
}


def intents(incidents: Sequence[Incident], around: Around) -> Iterator[Intent]:
    """Nodes first: a tainted node is not chosen again by the restart that follows."""
    for each in incidents:
        yield from _on_nodes(each, around)
    yield from _on_jobs(incidents, around)
    for each in incidents:
        yield from _pages(each)


def _on_nodes(incident: Incident, around: Around) -> Iterator[NodeIntent]:
    for key in incident.nodes:
        node = around.situation.nodes.get(key.name)
        if node is None or node.key != key:
            continue
        ours = node.taint is not None and node.taint.incident == incident.id
        if node.owner and not ours:
            continue
        current = ours and node.taint is not None and node.taint.generation == incident.generation
        do = _node_do(incident, tainted=node.taint is not None, ours=ours, current=current)
        if do is NodeDo.PROBATION and node.taint is not None and node.taint.on_probation:
            continue
        if do is not None:
            why = incident.waits_for or (incident.shown[0] if incident.shown else str(incident.phase))
            yield NodeIntent(do, key, incident.id, incident.generation, why)


def _node_do(incident: Incident, *, tainted: bool, ours: bool, current: bool) -> NodeDo | None:
    if incident.phase is Phase.CLOSED:
        return NodeDo.UNTAINT if ours else None
    if incident.remedy is not Remedy.QUARANTINE:
        return None
    if incident.phase in (Phase.ACTING, Phase.QUARANTINED) and (not tainted or (ours and not current)):
        return NodeDo.TAINT
    if incident.phase is Phase.QUARANTINED:
        return NodeDo.TEST
    return NodeDo.PROBATION if incident.phase is Phase.PROBATION else None


def _on_jobs(incidents: Sequence[Incident], around: Around) -> Iterator[JobIntent]:
    """One intent per run, the strongest, which avoids the nodes of all."""
    wanted: dict[str, list[JobIntent]] = {}
    for incident in incidents:
        if incident.phase in (Phase.SUSPECTED, Phase.ACTING):
            for job in live_jobs(incident, around.situation):
                found = _on_job(incident, job, around)
                if found is not None:
                    wanted.setdefault(job.name, []).append(found)
    left = avoided(incidents, around.situation.now_s, around.policy)
    for name in sorted(wanted):
        strongest = max(wanted[name], key=lambda each: (_STRENGTH[each.do], each.incident))
        avoid = {key for each in wanted[name] for key in each.avoid}
        unused = left - {around.situation.nodes[pod.node].key for pod in around.situation.jobs[name].pods if pod.node}
        yield replace(strongest, avoid=_sorted(avoid | unused) if strongest.avoid else ())


def _on_job(incident: Incident, job: JobFacts, around: Around) -> JobIntent | None:
    prices = priced(incident, job, around)
    made = JobIntent(
        JobDo.TOLERATE,
        job.name,
        job.incarnation,
        incident.id,
        incident.generation,
        incident.waits_for,
        alternatives=prices,
    )
    if incident.phase is Phase.SUSPECTED:
        return None if incident.stops else made
    why = incident.shown[0] if incident.shown else str(incident.syndrome)
    if incident.remedy is Remedy.IN_PLACE:
        return replace(made, do=JobDo.RESTART_IN_PLACE, reason=why)
    found = seats(incident, job, around)
    if not found.pods or found.blocked:
        return None
    pods = found.pods if found.pods < len(job.pods) else 0
    moved = replace(made, reason=why, avoid=incident.nodes, pods=pods)
    if incident.at_checkpoint and not incident.stops:
        return replace(moved, do=JobDo.MOVE_AT_CHECKPOINT, until_s=_patience_s(incident, job))
    return replace(moved, do=JobDo.EVICT_NOW)


def _patience_s(incident: Incident, job: JobFacts) -> float:
    """Until when a checkpoint that does not come is waited for: the wait then costs what restarting would have."""
    return incident.acted_s + job.at_risk_s(incident.acted_s) / max(incident.slow_share, 1e-3)


def _pages(incident: Incident) -> Iterator[Page]:
    waits = incident.waits_for != "" and not is_open_question(incident)
    stuck = incident.phase is Phase.SUSPECTED and incident.stops and waits
    limited = incident.phase is Phase.ACTING and incident.waits_for != ""
    domain = incident.domain != "" and incident.is_open
    if incident.phase is Phase.PAGED or stuck or limited or domain:
        yield Page(incident.id, incident.generation, incident.waits_for or f"{incident.domain}", incident.probe)


def _sorted(keys: set[NodeKey]) -> tuple[NodeKey, ...]:
    return tuple(sorted(keys, key=lambda key: (key.name, key.uid)))
