"""Life of an incident: from suspicion over a remedy, quarantine and probation to its closing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from health.remediation import breakers, costs
from health.remediation.breakers import Places
from health.remediation.costs import SpareSeats
from health.remediation.facts import JobFacts, NodeFacts, NodeKey, Origin, RemedyPolicy, Situation
from health.remediation.folding import closed
from health.remediation.incidents import Alternative, Incident, IncidentPhase, JobDo, Remedy
from health.verdicts.verdict import Part

_ONE_NODE = (Part.RANK, Part.NODE, Part.NIC)


@dataclass(frozen=True, slots=True)
class Around:
    """What an incident's next step depends on besides itself."""

    situation: Situation
    policy: RemedyPolicy
    incidents: tuple[Incident, ...]
    """All of them, as they are decided so far."""
    places: Places


def advanced(incident: Incident, around: Around) -> Incident:
    """The incident after all steps that can be taken now."""
    for _ in range(len(IncidentPhase)):
        after = _step(incident, around)
        if after == incident:
            break
        incident = after
    return incident


def _step(incident: Incident, around: Around) -> Incident:
    situation, now_s = around.situation, around.situation.now_s
    if not incident.is_open:
        return incident
    if incident.nodes and not _present(incident.nodes, situation):
        return closed(incident, now_s, "its node is gone or was replaced")
    if any(node.released_s > incident.seen_s for node in _facts(incident, around)):
        return closed(incident, now_s, "released by a person")
    match incident.phase:
        case IncidentPhase.SUSPECTED:
            return _suspected(incident, around)
        case IncidentPhase.ACTING:
            return _in_action(incident, around)
        case IncidentPhase.QUARANTINED:
            tested = all(node.tested_s > incident.acted_s for node in _facts(incident, around))
            on_probation = replace(incident, phase=IncidentPhase.PROBATION, phase_since_s=now_s, waits_for="")
            return on_probation if tested else incident
        case IncidentPhase.PROBATION:
            over = now_s - incident.phase_since_s >= around.policy.probation_s
            return closed(incident, now_s, "passed its probation") if over else incident
        case _:
            return _paged(incident, around)


def _present(nodes: tuple[NodeKey, ...], situation: Situation) -> list[NodeKey]:
    return [key for key in nodes if key.name in situation.nodes and situation.nodes[key.name].key == key]


def _facts(incident: Incident, around: Around) -> list[NodeFacts]:
    return [around.situation.nodes[key.name] for key in _present(incident.nodes, around.situation)]


def live_jobs(incident: Incident, situation: Situation) -> list[JobFacts]:
    """Jobs whose disturbed run is still the current one."""
    found = (situation.jobs.get(run.job) for run in incident.runs)
    return [
        job
        for job, run in zip(found, incident.runs, strict=True)
        if job is not None and job.incarnation == run.incarnation
    ]


def _suspected(incident: Incident, around: Around) -> Incident:
    situation, policy, now_s = around.situation, around.policy, around.situation.now_s
    jobs = live_jobs(incident, situation)
    if incident.domain and not jobs:
        return replace(incident, phase=IncidentPhase.PAGED, phase_since_s=now_s, waits_for=f"look at {incident.domain}")
    if not jobs and (incident.runs or not (incident.part in _ONE_NODE and not _is_own_word(incident))):
        return closed(incident, now_s, "the job ended or was restarted before anything was done")
    if _is_over(incident, jobs, around):
        return closed(incident, now_s, "not seen any more")
    if not policy.remediate:
        return replace(incident, waits_for="the policy remediates nothing")
    if _is_hopeless(incident, jobs, around):
        return replace(
            incident, phase=IncidentPhase.PAGED, phase_since_s=now_s, waits_for="it stops after each restart"
        )
    ready = replace(incident, waits_for="")
    return _asked(ready, jobs, around) if is_open_question(ready) else _decided(ready, jobs, around)


def _is_hopeless(incident: Incident, jobs: list[JobFacts], around: Around) -> bool:
    """Whether a job stops after each restart, whatever is done, and nothing but its own records accuses nodes."""
    now_s, policy = around.situation.now_s, around.policy
    return _is_own_word(incident) and any(breakers.fruitless(job, now_s, policy) >= 2 * policy.restarts for job in jobs)


def _is_over(incident: Incident, jobs: list[JobFacts], around: Around) -> bool:
    """Whether the disturbance ended and nobody said so."""
    if incident.stops and jobs:
        return all(job.progressed_s > incident.seen_s for job in jobs)
    return around.situation.now_s - incident.seen_s > around.policy.stale_s


def _is_own_word(incident: Incident) -> bool:
    return set(incident.sources) == {Origin.JOB}


def _was_tried(incident: Incident, policy: RemedyPolicy) -> bool:
    """Whether the same suspect was restarted in place of late: a program at fault accuses now this node, now that."""
    return incident.strikes > 0 and incident.since_s - incident.closed_s < policy.restart_window_s


def is_open_question(incident: Incident) -> bool:
    """Whether a probe would have to decide which part is at fault."""
    return incident.part in (Part.NOTHING, Part.GROUP) and not incident.program_error and not incident.domain


def _asked(incident: Incident, jobs: list[JobFacts], around: Around) -> Incident:
    """Wait for the probe; then restart a job that has stopped, once, and leave the rest to people."""
    now_s = around.situation.now_s
    # From its opening: a slow job's disturbance began up to a minute before it could be seen.
    if now_s - max(incident.since_s, incident.phase_since_s) < around.policy.confirm_s:
        return replace(incident, waits_for=f"probe: {incident.probe}")
    if not incident.stops or _was_tried(incident, around.policy):
        return replace(incident, phase=IncidentPhase.PAGED, phase_since_s=now_s, waits_for=f"probe: {incident.probe}")
    return _acting(incident, Remedy.IN_PLACE, jobs, 0, now_s)


def _decided(incident: Incident, jobs: list[JobFacts], around: Around) -> Incident:
    """The cheapest that no limit forbids."""
    now_s = around.situation.now_s
    if not jobs:
        names = {key.name for key in incident.nodes}
        working = around.situation.jobs.values() if incident.after_job else ()
        if on_it := sorted(job.name for job in working if any(pod.node in names for pod in job.pods)):
            return replace(incident, waits_for=f"after the job: {', '.join(on_it)}")
        refused = _others_hold(incident, around) or _is_too_much(incident, around)
        return replace(incident, waits_for=refused) if refused else _acting(incident, Remedy.QUARANTINE, [], 0, now_s)
    job = max(jobs, key=lambda each: each.gpus)
    cheapest = priced(incident, job, around)[0]
    if cheapest.gpu_hours == inf:
        return replace(incident, waits_for=cheapest.note)
    if cheapest.do is JobDo.TOLERATE:
        return replace(incident, waits_for=f"cheaper to tolerate: {cheapest.note}")
    if cheapest.do is JobDo.RESTART_IN_PLACE:
        return _acting(incident, Remedy.IN_PLACE, jobs, 0, now_s)
    return _moved(incident, job, jobs, around, at_checkpoint=cheapest.do is JobDo.MOVE_AT_CHECKPOINT)


def _moved(incident: Incident, job: JobFacts, jobs: list[JobFacts], around: Around, *, at_checkpoint: bool) -> Incident:
    """The job leaves the nodes, and they leave the fleet, as far as limits allow."""
    now_s = around.situation.now_s
    too_many = breakers.job_breaker(job, around.incidents, now_s, around.policy, own_word=_is_own_word(incident))
    if too_many and not _was_tried(incident, around.policy):
        waiting = replace(incident, waits_for=too_many)
        return _acting(waiting, Remedy.IN_PLACE, jobs, 0, now_s) if incident.stops else waiting
    kept_by = _others_hold(incident, around) or _is_too_much(incident, around)
    if kept_by and not incident.stops:
        return replace(incident, waits_for=kept_by)
    refused = kept_by or _is_not_the_node(incident, around)
    remedy = Remedy.AVOID if refused else Remedy.QUARANTINE
    moving = replace(incident, waits_for=refused, at_checkpoint=at_checkpoint)
    return _acting(moving, remedy, jobs, seats(incident, job, around).pods, now_s)


def priced(incident: Incident, job: JobFacts, around: Around) -> tuple[Alternative, ...]:
    """All alternatives for a job, cheapest first."""
    found = seats(incident, job, around)
    return costs.alternatives(incident, job, found, around.situation.now_s, around.policy)


def seats(incident: Incident, job: JobFacts, around: Around) -> SpareSeats:
    """Pods that the job can restart with when it leaves the incident's nodes."""
    return around.places.seats(job, (key.name for key in incident.nodes))


def _others_hold(incident: Incident, around: Around) -> str:
    """Another remediation that owns one of the nodes: one owner per node."""
    owner = next((node.owner for node in _facts(incident, around) if node.owner), "")
    return f"another owner: {owner}" if owner else ""


def _is_not_the_node(incident: Incident, around: Around) -> str:
    """Why the nodes keep their place in the fleet, though a job may leave them."""
    if incident.domain:
        return f"domain incident: {incident.domain} is suspected, not its nodes"
    if incident.part not in _ONE_NODE:
        return "which end of it is at fault is open"
    shared = any(node.shared for node in _facts(incident, around))
    if shared and _is_own_word(incident):
        return "only the job's own records accuse a node that others use"
    return ""


def _is_too_much(incident: Incident, around: Around) -> str:
    if _is_not_the_node(incident, around):
        return ""
    nodes = _present(incident.nodes, around.situation)
    return breakers.open_breaker(nodes, around.incidents, around.situation, around.policy)


def _acting(incident: Incident, remedy: Remedy, jobs: list[JobFacts], pods: int, now_s: float) -> Incident:
    return replace(
        incident,
        phase=IncidentPhase.ACTING,
        remedy=remedy,
        pods=pods if jobs and pods < len(jobs[0].pods) else 0,
        acted_s=now_s,
        acted_for=max(jobs, key=lambda each: each.gpus).name if jobs else "",
        phase_since_s=now_s,
        strikes=incident.strikes + 1,
    )


def _in_action(incident: Incident, around: Around) -> Incident:
    """Done when no disturbed run is left and the taint, if any, is seen."""
    situation, now_s = around.situation, around.situation.now_s
    untainted = any(node.taint is None for node in _facts(incident, around))
    if untainted and incident.remedy is Remedy.QUARANTINE and (owner := _others_hold(incident, around)):
        return replace(incident, remedy=Remedy.AVOID, waits_for=owner)
    if live_jobs(incident, situation):
        return incident
    if incident.domain:
        return replace(incident, phase=IncidentPhase.PAGED, phase_since_s=now_s, waits_for=f"look at {incident.domain}")
    if incident.remedy in (Remedy.AVOID, Remedy.IN_PLACE):
        return closed(incident, now_s, "restarted")
    if untainted:
        return incident
    return replace(incident, phase=IncidentPhase.QUARANTINED, phase_since_s=now_s, runs=(), waits_for="its test")


def _paged(incident: Incident, around: Around) -> Incident:
    if incident.domain:
        # A domain stays open while suspects appear in it, and its jobs are still restarted.
        now_s, jobs = around.situation.now_s, live_jobs(incident, around.situation)
        if jobs and not _is_hopeless(incident, jobs, around):
            return replace(incident, phase=IncidentPhase.SUSPECTED, phase_since_s=now_s)
        quiet = now_s - incident.seen_s > around.policy.restart_window_s
        return closed(incident, now_s, "nothing more was seen in it") if quiet else incident
    if incident.runs and not live_jobs(incident, around.situation):
        return closed(incident, around.situation.now_s, "the job ended or was restarted")
    return incident


def avoided(incidents: Iterable[Incident], now_s: float, policy: RemedyPolicy) -> set[NodeKey]:
    """Nodes that jobs have left of late though they bear no taint: restarts choose others."""
    return {
        key
        for each in incidents
        if each.remedy is Remedy.AVOID and now_s - each.acted_s < policy.avoid_s
        for key in each.nodes
    }
