"""Remediation: from incidents, new evidence and the situation to intents and the next state of the incidents."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from health.remediation import breakers, folding, lifecycle
from health.remediation.breakers import places
from health.remediation.facts import FaultEvidence, JobFacts, RemedyPolicy, Situation, is_relevant
from health.remediation.incidents import Act, Incident, IncidentPhase, JobDo, JobIntent, NodeDo, NodeIntent, Remedy, Run
from health.remediation.lifecycle import Around

_STRENGTH = (JobDo.TOLERATE, JobDo.MOVE_AT_CHECKPOINT, JobDo.RESTART_IN_PLACE, JobDo.EVICT_NOW)


def node_intents(incidents: Sequence[Incident], situation: Situation) -> Iterator[NodeIntent]:
    """What is to be done to the nodes of incidents, until the situation shows its effect."""
    for each in incidents:
        for key in each.nodes:
            node = situation.nodes.get(key.name)
            if node is None or node.key != key:
                continue
            ours = node.taint is not None and node.taint.incident == each.id
            if node.owner and not ours:
                continue
            current = ours and node.taint is not None and node.taint.generation == each.generation
            do = _node_do(each, tainted=node.taint is not None, ours=ours, current=current)
            if do is NodeDo.PROBATION and node.taint is not None and node.taint.on_probation:
                continue
            if do is not None:
                why = each.waits_for or (each.shown[0] if each.shown else str(each.phase))
                yield NodeIntent(do, key, each.id, each.generation, why)


def _node_do(incident: Incident, *, tainted: bool, ours: bool, current: bool) -> NodeDo | None:
    if incident.phase is IncidentPhase.CLOSED:
        return NodeDo.UNTAINT if ours else None
    if incident.remedy is not Remedy.QUARANTINE:
        return None
    is_out = incident.phase in (IncidentPhase.ACTING, IncidentPhase.QUARANTINED)
    if is_out and (not tainted or (ours and not current)):
        return NodeDo.TAINT
    return NodeDo.PROBATION if incident.phase is IncidentPhase.PROBATION else None


def job_intents(incidents: Sequence[Incident], around: Around) -> Iterator[JobIntent]:
    """One intent per run, the strongest, which avoids the nodes of all."""
    wanted: dict[str, list[JobIntent]] = {}
    for incident in incidents:
        if incident.phase in (IncidentPhase.SUSPECTED, IncidentPhase.ACTING):
            for job in lifecycle.live_jobs(incident, around.situation):
                found = _on_job(incident, job, around)
                if found is not None:
                    wanted.setdefault(job.name, []).append(found)
    left = lifecycle.avoided(incidents, around.situation.now_s, around.policy)
    for name in sorted(wanted):
        strongest = max(wanted[name], key=lambda each: (_STRENGTH.index(each.do), each.incident))
        avoid = {key for each in wanted[name] for key in each.avoid}
        unused = left - {around.situation.nodes[pod.node].key for pod in around.situation.jobs[name].pods if pod.node}
        others = sorted(avoid | unused, key=lambda key: (key.name, key.uid))
        yield replace(strongest, avoid=tuple(others) if strongest.avoid else ())


def _on_job(incident: Incident, job: JobFacts, around: Around) -> JobIntent | None:
    prices = lifecycle.priced(incident, job, around)
    made = JobIntent(
        JobDo.TOLERATE,
        job.name,
        job.incarnation,
        incident.id,
        incident.generation,
        incident.waits_for,
        alternatives=prices,
    )
    if incident.phase is IncidentPhase.SUSPECTED:
        return None if incident.stops else made
    why = incident.shown[0] if incident.shown else str(incident.syndrome)
    if incident.remedy is Remedy.IN_PLACE:
        return replace(made, do=JobDo.RESTART_IN_PLACE, reason=why)
    found = lifecycle.seats(incident, job, around)
    if not found.pods or found.blocked:
        return None
    pods = found.pods if found.pods < len(job.pods) else 0
    moved = replace(made, reason=why, avoid=incident.nodes, pods=pods)
    if incident.at_checkpoint and not incident.stops:
        # From then on, waiting for a checkpoint that does not come has cost what restarting would have.
        until_s = incident.acted_s + job.at_risk_s(incident.acted_s) / max(incident.slow_share, 1e-3)
        if job.checkpoint_at_s > incident.acted_s:
            until_s = job.checkpoint_at_s + SAVED_S
        if around.situation.now_s < until_s:
            return replace(moved, do=JobDo.MOVE_AT_CHECKPOINT, until_s=until_s)
    return replace(moved, do=JobDo.EVICT_NOW)


SAVED_S = 5.0
"""Time without a sign of a checkpoint after which it is over, and the job may be stopped."""
ROUNDS = 8
"""Most passes over all incidents: what a later one decides can change an earlier one's answer, and a decision stands
only when a further pass changes nothing. Two passes are the rule."""


@dataclass(frozen=True, slots=True)
class HealthDecision:
    """What to do, and what to remember."""

    incidents: tuple[Incident, ...]
    """All of them, sorted by id; those not listed may be deleted."""
    nodes: tuple[NodeIntent, ...]
    """What is still to be done, by level: an intent is repeated until the situation shows its effect. Nodes come first:
    a tainted one is not chosen again by the restart that follows."""
    jobs: tuple[JobIntent, ...]

    def due(self, recorded: Collection[Act]) -> tuple[JobIntent, ...]:
        """What may be done to jobs now: a restart waits until every decision behind it is on record.

        recorded: what a successor would read. A restart leaves no trace of its own that says why and which nodes the
        job left, so that it is written down ahead; a taint is a record itself, and waits for nothing.
        """
        return tuple(each for each in self.jobs if self._is_due(each, recorded))

    def _is_due(self, intent: JobIntent, recorded: Collection[Act]) -> bool:
        run = Run(intent.job, intent.incarnation)
        behind = (each.act for each in self.incidents if run in each.runs)
        return intent.do is JobDo.TOLERATE or all(act is None or act in recorded for act in behind)


def decide(
    situation: Situation,
    incidents: Sequence[Incident],
    evidence: Sequence[FaultEvidence],
    policy: RemedyPolicy,
) -> HealthDecision:
    """Next state of all incidents, and what is to be done now.

    incidents: as last written, or older: a lost write is rebuilt from evidence and from taints.
    evidence: any of the last while, in any order, repeated or not; what is stale, of another run of the job, of pods
    or nodes that are gone, or of nodes that the job does not run on, is ignored.
    """
    heard = [each for each in evidence if is_relevant(each, situation, policy)]
    by_age = sorted(incidents, key=lambda one: (one.id, one.generation, one.phase_since_s))
    after = {each.id: each for each in by_age}  # the newest record of each
    for _ in range(ROUNDS):
        before, known = after, dict(after)
        for node in situation.nodes.values():  # what a lost write has left in taints alone
            if (taint := node.taint) is not None:
                known[taint.incident] = folding.with_taint(known.get(taint.incident), node, taint)
        after = breakers.merged(folding.folded(known, heard, situation), situation, policy)
        # Oldest suspicion first, each seeing what those before it have decided.
        for each in sorted((one for one in after.values() if one.is_open), key=lambda one: (one.since_s, one.id)):
            after[each.id] = lifecycle.advanced(each, _around(tuple(after.values()), situation, policy))
        if after == before:
            break
    tainted = {node.taint.incident for node in situation.nodes.values() if node.taint is not None}
    kept = tuple(
        _without_ended_runs(each, situation) if each.domain else each
        for _, each in sorted(after.items())
        if each.is_open or each.id in tainted or situation.now_s - each.closed_s <= policy.forget_s
    )
    jobs = job_intents(kept, _around(kept, situation, policy))
    return HealthDecision(kept, tuple(node_intents(kept, situation)), tuple(jobs))


def _without_ended_runs(incident: Incident, situation: Situation) -> Incident:
    """A domain's incident outlives its runs: with hundreds of restarts its record would grow without bound."""
    live = {job.name: job.incarnation for job in lifecycle.live_jobs(incident, situation)}
    return replace(incident, runs=tuple(each for each in incident.runs if live.get(each.job) == each.incarnation))


def _around(incidents: tuple[Incident, ...], situation: Situation, policy: RemedyPolicy) -> Around:
    # Spare nodes that no incident speaks against.
    left = {key.name for key in lifecycle.avoided(incidents, situation.now_s, policy)}
    suspected = left | {key.name for each in incidents if each.is_open for key in each.nodes}
    spares = sum(
        name not in suspected and name in situation.nodes and situation.nodes[name].taint is None
        for name in situation.spares
    )
    return Around(situation, policy, incidents, places(incidents, situation, spares))
