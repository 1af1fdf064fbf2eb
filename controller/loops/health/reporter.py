"""Reporter of health: FaultIncident objects, statuses of HealthPolicies, and the condition of suspected nodes."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from cluster.clock import Clock
from cluster.errors import UNREADABLE, ActionError
from cluster.plans import Reason
from controller.api import labels, notation, structs
from controller.api.conditions import READY, Claim, conditions_after
from controller.api.fault_incident import KIND as INCIDENT, AlternativeStatus, FaultIncidentStatus
from controller.api.health_policy import KIND as POLICY, CheckpointStatus, HealthPolicyStatus
from controller.api.kind import Kind
from controller.deciders.remediation import HealthOutcome, HealthRules
from controller.kube.cache import Cache
from controller.kube.request import STRATEGIC_PATCH
from controller.kube.sender import Applier, Write, WriteJob
from controller.metrics.registry import Sample
from controller.report.statuses import WrittenStatuses, accepted, each_alone, log_unwritten, status_job
from health.probing import AnswerKind
from health.remediation.advice import CheckpointAdvice, advice_on
from health.remediation.facts import Situation
from health.remediation.incidents import Incident, IncidentPhase, JobIntent
from health.verdicts.verdict import Syndrome

ACTIVE, WAITING = "Active", "Waiting"
_INFINITIES = ("acted_s", "closed_s")
"""Fields of an incident that may be infinite, which JSON cannot hold: absent then, and so at their defaults."""


def record_of(incident: Incident) -> str:
    """The incident as JSON."""
    plain = msgspec.to_builtins(incident)
    kept = {key: value for key, value in plain.items() if not (key in _INFINITIES and math.isinf(value))}
    return json.dumps(kept, separators=(",", ":"), allow_nan=False)


def incident_in(obj: structs.OwnObject) -> Incident | None:
    """The incident in an object's status; None without a readable one, or under another's name."""
    try:
        status = msgspec.json.decode(obj.status)
        record = status.get("record") if isinstance(status, dict) else None
        found = msgspec.json.decode(record, type=Incident) if record else None
    except UNREADABLE:
        return None
    return found if found is not None and found.id == obj.metadata.name else None


def status_after(
    before: Mapping[str, Any],
    incident: Incident,
    intents: Sequence[JobIntent],
    *,
    generation: int,
    at_s: float,
) -> dict[str, Any]:
    """Status as plain data; equal to `before` where nothing changed.

    intents: of remediation, for all incidents; without one about this, the last alternatives stay.
    generation: of the observed object. at_s: now, seconds since the epoch.
    """
    old = FaultIncidentStatus.read(before)
    waits = incident.waits_for if incident.is_open else ""
    stands = Reason(str(incident.phase), incident.waits_for or "; ".join(incident.shown)[:1000])
    awaited = Reason(waiting_reason(waits), waits or "nothing keeps it from acting")
    claims: tuple[Claim, ...] = (
        (ACTIVE, "True" if incident.is_open else "False", stands),
        (WAITING, "True" if waits else "False", awaited),
    )
    prices = next((each.alternatives for each in intents if each.incident == incident.id), ())
    alternatives = tuple(
        AlternativeStatus(
            do=str(each.do),
            gpu_hours=None if math.isinf(each.gpu_hours) else round(each.gpu_hours, 3),
            note=each.note[:1000],
        )
        for each in prices
    )
    return FaultIncidentStatus(
        observed_generation=generation,
        conditions=conditions_after(old.conditions, claims, generation=generation, at_s=at_s),
        phase=str(incident.phase),  # type: ignore[arg-type]
        generation=incident.generation,
        syndrome=str(incident.syndrome),
        part=str(incident.part),
        jobs=tuple(dict.fromkeys((*old.jobs, *(run.job for run in incident.runs))))[:64],
        confidence=round(incident.confidence, 3),
        evidence=tuple(each[:1000] for each in incident.shown[:32]),
        sources=tuple(map(str, incident.sources)),
        remedy=str(incident.remedy),
        waits_for=incident.waits_for[:1000],
        probe=incident.probe[:1000],
        since=_instant(incident.since_s),
        seen=_instant(incident.seen_s),
        alternatives=alternatives or old.alternatives,
        record=record_of(incident),
    ).plain()


def waiting_reason(waits: str) -> str:
    """Machine-readable cause of waiting: the first words, in CamelCase."""
    head = waits.partition(":")[0]
    words = "".join(part[:1].upper() + part[1:] for part in head.replace("-", " ").split()) if waits else "Nothing"
    return "".join(each for each in words if each.isascii() and each.isalnum())[:64] or "Waiting"


def _instant(at_s: float) -> float | None:
    return float(int(at_s)) if 0 < at_s < math.inf else None


@dataclass(frozen=True, slots=True)
class Reported:
    """What one cycle decided, and what it decided from."""

    outcome: HealthOutcome
    situation: Situation
    rules: tuple[HealthRules, ...]


class HealthReporter:
    """Writes what has changed. Belongs to the event loop of the Kubernetes connection."""

    def __init__(
        self,
        incidents: Cache[structs.OwnObject],
        policies: Cache[structs.OwnObject],
        nodes: Cache[structs.Node],
        applier: Applier,
        wall_clock: Clock,
    ) -> None:
        self._incidents, self._policies, self._nodes = incidents, policies, nodes
        self._applier, self._wall_clock = applier, wall_clock
        self._written = WrittenStatuses()
        self._conditions: dict[str, tuple[str, str]] = {}
        """Node's UID and status of the condition that was last written, by node."""

    async def report(self, reported: Reported) -> None:
        """Writes all that differs from what the caches show."""
        at_s = self._wall_clock()
        jobs = [
            *self._of_incidents(reported, at_s),
            *self._of_policies(reported, at_s),
            *self._of_nodes(reported, at_s),
        ]
        for job, answer in zip(jobs, await self._applier.send(jobs), strict=True):
            if isinstance(answer, ActionError):
                log_unwritten(job.about, answer)
                self._written.forget(job.about)
                self._conditions.pop(job.about.removeprefix("Node/"), None)

    def _of_incidents(self, reported: Reported, at_s: float) -> Iterator[WriteJob]:
        """Objects of new incidents, the removal of forgotten ones, and the statuses of the others."""
        present, incidents = self._incidents.all(), reported.outcome.incidents
        for incident in incidents:
            obj = present.get(incident.id)
            if obj is None:
                spec = {"nodes": [key.name for key in incident.nodes]}
                manifest = {
                    "apiVersion": INCIDENT.api_version,
                    "kind": INCIDENT.name,
                    "metadata": {"name": incident.id},
                    "spec": spec | ({"domain": incident.domain} if incident.domain else {}),
                }
                yield WriteJob(f"{INCIDENT.name}/{incident.id}", Write("POST", INCIDENT.path, manifest))
            elif not obj.metadata.deletion_timestamp:
                after = partial(status_after, incident=incident, intents=reported.outcome.jobs)
                jobs = self._status(INCIDENT, incident.id, obj, after, at_s)
                yield from each_alone(INCIDENT.name, incident.id, jobs)
        kept = {incident.id for incident in incidents}
        for name, obj in present.items():
            if name not in kept and not obj.metadata.deletion_timestamp:
                body = {"preconditions": {"uid": obj.metadata.uid}}
                yield WriteJob(f"{INCIDENT.name}/{name}", Write("DELETE", INCIDENT.path_of(name), body))

    def _of_policies(self, reported: Reported, at_s: float) -> Iterator[WriteJob]:
        rules = {each.name: each for each in reported.rules}
        for name, obj in self._policies.all().items():
            after = partial(_policy_status, rules=rules.get(name), reported=reported)
            yield from self._status(POLICY, name, obj, after, at_s)

    def _status(
        self, kind: Kind, name: str, obj: structs.OwnObject, after: Callable[..., dict[str, Any]], at_s: float
    ) -> Iterator[WriteJob]:
        before = self._written.before(f"{kind.name}/{name}", obj)
        status = after(before, generation=obj.metadata.generation, at_s=at_s)
        if status != before:
            self._written.put(f"{kind.name}/{name}", obj, status)
            yield status_job(kind, name, obj, status)

    def _of_nodes(self, reported: Reported, at_s: float) -> Iterator[WriteJob]:
        """The condition of nodes that policies in mode Act govern: False while an incident suspects one."""
        governed = {node for rules in reported.rules if rules.policy.remediate for node in rules.nodes}
        suspected: dict[str, Incident] = {}
        for incident in reported.outcome.incidents:
            if incident.is_open and incident.phase is not IncidentPhase.PAGED:
                suspected.update((key.name, incident) for key in incident.nodes if key.name in governed)
        for name, node in self._nodes.all().items():
            suspect, uid = suspected.get(name), node.metadata.uid
            shown = next(
                (each.status for each in node.status.conditions if each.type == labels.HEALTHY_CONDITION), None
            )
            written = self._conditions.get(name)
            known = written[1] if written is not None and written[0] == uid else shown
            wanted = "False" if suspect is not None else "True"
            if known == wanted or (known is None and suspect is None):
                continue
            self._conditions[name] = (uid, wanted)
            yield WriteJob(f"Node/{name}", node_condition_write(name, uid, suspect, at_s))


def node_condition_write(name: str, uid: str, incident: Incident | None, at_s: float) -> Write:
    """Condition CollectiveHealthy of the node object with this UID."""
    reason, words = ("NoIncident", "no incident suspects the node")
    if incident is not None:
        reason, words = str(incident.phase), f"FaultIncident {incident.id}: {'; '.join(incident.shown)}"[:1024]
    condition = {
        "type": labels.HEALTHY_CONDITION,
        "status": "True" if incident is None else "False",
        "reason": reason,
        "message": words,
        "lastHeartbeatTime": notation.rfc3339(at_s),
        "lastTransitionTime": notation.rfc3339(at_s),
    }
    body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    return Write("PATCH", f"/api/v1/nodes/{name}/status", body, STRATEGIC_PATCH)


def _policy_status(
    before: Mapping[str, Any], rules: HealthRules | None, reported: Reported, generation: int, at_s: float
) -> dict[str, Any]:
    nodes = rules.nodes if rules is not None else frozenset[str]()
    ready: Claim = (READY, "True", Reason("Watching", "agents under jobs are heard"))
    if rules is None:
        ready = (READY, "False", Reason("Off", "its mode is Off"))
    elif reported.situation.heard_share < rules.policy.heard_share:
        ready = (READY, "False", Reason("Blind", "too few agents are heard: nothing new is begun"))
    known = HealthPolicyStatus.read(before).conditions
    return HealthPolicyStatus(
        observed_generation=generation,
        conditions=conditions_after(known, (accepted(()), ready), generation=generation, at_s=at_s),
        nodes=len(nodes),
        quarantined=sum(name in nodes and node.taint is not None for name, node in reported.situation.nodes.items()),
        incidents=sum(
            incident.is_open and any(key.name in nodes for key in incident.nodes)
            for incident in reported.outcome.incidents
        ),
        checkpoints=tuple(_checkpoints(each) for each in _advice(reported, nodes))[:64],
    ).plain()


def _advice(reported: Reported, nodes: frozenset[str] | None = None) -> list[CheckpointAdvice]:
    """For jobs that begin on these nodes, or all; those that lose most by their interval first."""
    situation = reported.situation
    ours = (job for job in situation.jobs.values() if nodes is None or (job.pods and job.pods[0].node in nodes))
    found = [advice for job in ours if (advice := advice_on(job, situation.now_s)) is not None]
    return sorted(found, key=lambda each: (each.lost[1] - each.lost[0], each.job))


def _checkpoints(found: CheckpointAdvice) -> CheckpointStatus:
    """With two figures each: what changes less is no news."""
    figures = (found.save_s, found.interval_s, found.advised_s, *found.lost)
    save_s, interval_s, advised_s, lost, advised_lost = (float(f"{each:.2g}") for each in figures)
    return CheckpointStatus.model_validate(
        {
            "job": found.job,
            "save": notation.duration(save_s),
            "interval": notation.duration(interval_s),
            "advised": notation.duration(advised_s),
            "lostShare": lost,
            "advisedLostShare": advised_lost,
            "spares": found.spares,
        }
    )


FAULTS = tuple(str(syndrome) for syndrome in Syndrome if syndrome is not Syndrome.NONE)
"""Verdicts that stand at 0 before the first one, so that the first is visible."""


def samples_of(
    reported: Reported | None,
    verdicts: Mapping[str, int],
    refused: Mapping[str, int],
    probed: Mapping[str, int],
    unread: int,
) -> Iterator[Sample]:
    """Gauges of the last cycle and of the stream.

    probed: answers of pair probes by kind. unread: reports that were dropped before they were read.
    """
    for found in AnswerKind:
        yield Sample("tonnage_health_probes", (str(found),), float(probed.get(str(found), 0)))
    for verdict, count in {**dict.fromkeys(FAULTS, 0), **verdicts}.items():
        yield Sample("tonnage_health_verdicts", (verdict,), float(count))
    for cause, count in {**refused, "not read in time": unread}.items():
        yield Sample("tonnage_health_refused", (cause,), float(count))
    if reported is None:
        return
    incidents = [incident for incident in reported.outcome.incidents if incident.is_open]
    phases = Counter(str(incident.phase) for incident in incidents)
    for phase in IncidentPhase:
        if phase is not IncidentPhase.CLOSED:
            yield Sample("tonnage_health_incidents", (str(phase),), float(phases[str(phase)]))
    waiting = Counter(waiting_reason(incident.waits_for) for incident in incidents)
    for reason, count in {"Nothing": 0, "DrainBlocked": 0, **waiting}.items():
        yield Sample("tonnage_health_waiting", (reason,), float(count))
    taints = [node.taint for node in reported.situation.nodes.values() if node.taint is not None]
    on_probation = sum(taint.on_probation for taint in taints)
    yield Sample("tonnage_health_nodes_out", ("probation",), float(on_probation))
    yield Sample("tonnage_health_nodes_out", ("quarantine",), float(len(taints) - on_probation))
    yield Sample("tonnage_health_heard_share", (), reported.situation.heard_share)
    lost = [each.lost for each in _advice(reported)]
    for number, which in enumerate(("as it is", "as advised")):
        shares = [each[number] for each in lost]
        yield Sample("tonnage_health_checkpoint_lost_share", (which,), sum(shares) / max(len(shares), 1))
