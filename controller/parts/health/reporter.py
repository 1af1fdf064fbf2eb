"""Reporter of health: FaultIncident objects, statuses of HealthPolicies, and the condition of suspected nodes."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import structlog

from cluster.errors import ActionError
from controller.api.conditions import ACCEPTED, READY, set_condition
from controller.api.fault_incident import KIND as INCIDENT
from controller.api.health_policy import KIND as POLICY
from controller.api.health_policy import HealthPolicyStatus
from controller.api.labels import HEALTHY_CONDITION
from controller.api.notation import rfc3339
from controller.api.structs import Node, OwnObject
from controller.deciders.health_facts import HealthOutcome, Rules
from controller.kube.cache import Cache
from controller.kube.request import STRATEGIC_PATCH
from controller.kube.sender import Job, Sent, Write
from controller.parts.health.incident_status import manifest_of, status_after
from controller.report.service_status import each_alone, status_write
from health.remediation.facts import Situation
from health.remediation.incidents import Incident, Phase

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reported:
    """What one cycle decided, and what it decided from."""

    outcome: HealthOutcome
    situation: Situation
    rules: tuple[Rules, ...]
    jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Jobs that each incident has disturbed, also those that have been restarted since."""


class HealthReporter:
    """Writes what has changed. Belongs to the event loop of the Kubernetes connection."""

    def __init__(
        self,
        incidents: Cache[OwnObject],
        policies: Cache[OwnObject],
        nodes: Cache[Node],
        send: Callable[[Sequence[Job]], Awaitable[Sequence[Sent]]],
        wall: Callable[[], float],
    ) -> None:
        self._incidents, self._policies, self._nodes = incidents, policies, nodes
        self._send, self._wall = send, wall
        self._known: dict[str, tuple[str, dict[str, Any]]] = {}
        """resourceVersion that the last status of each object was based on, and that status."""
        self._conditions: dict[str, tuple[str, str]] = {}
        """Node's UID and status of the condition that was last written, by node."""

    async def report(self, reported: Reported) -> None:
        """Writes all that differs from what the caches show."""
        at_s = self._wall()
        jobs = [
            *self._objects(reported.outcome),
            *self._statuses(reported, at_s),
            *self._policy_statuses(reported, at_s),
            *self._node_conditions(reported, at_s),
        ]
        for job, answer in zip(jobs, await self._send(jobs), strict=True):
            if isinstance(answer, ActionError):
                log.warning("a report on health was not written", about=job.about, why=str(answer))
                self._known.pop(job.about, None)
                self._conditions.pop(job.about.removeprefix("Node/"), None)

    def _objects(self, outcome: HealthOutcome) -> Iterator[Job]:
        """Objects of new incidents, and the removal of forgotten ones."""
        present = self._incidents.all()
        wanted = {incident.id: incident for incident in outcome.incidents}
        for name, incident in wanted.items():
            if name not in present:
                yield Job(f"{INCIDENT.name}/{name}", Write("POST", INCIDENT.path, manifest_of(incident)))
        for name, obj in present.items():
            if name not in wanted and not obj.metadata.deletion_timestamp:
                body = {"preconditions": {"uid": obj.metadata.uid}}
                yield Job(f"{INCIDENT.name}/{name}", Write("DELETE", INCIDENT.path_of(name), body))

    def _statuses(self, reported: Reported, at_s: float) -> Iterator[Job]:
        present = self._incidents.all()
        for incident in reported.outcome.incidents:
            if (obj := present.get(incident.id)) is not None and not obj.metadata.deletion_timestamp:
                work = partial(self._incident_status, incident, obj, reported, at_s)
                yield from each_alone(INCIDENT.name, incident.id, work)

    def _incident_status(self, incident: Incident, obj: OwnObject, reported: Reported, at_s: float) -> Iterator[Job]:
        before = self._before(f"{INCIDENT.name}/{incident.id}", obj)
        after = status_after(
            before,
            incident,
            reported.outcome.jobs,
            reported.jobs.get(incident.id, ()),
            generation=obj.metadata.generation,
            at_s=at_s,
        )
        yield from self._status(INCIDENT, incident.id, obj, before, after)

    def _policy_statuses(self, reported: Reported, at_s: float) -> Iterator[Job]:
        rules = {each.name: each for each in reported.rules}
        for name, obj in self._policies.all().items():
            before = self._before(f"{POLICY.name}/{name}", obj)
            after = _policy_status(before, rules.get(name), reported, obj.metadata.generation, at_s)
            yield from self._status(POLICY, name, obj, before, after)

    def _status(
        self, kind: Any, name: str, obj: OwnObject, before: dict[str, Any], after: dict[str, Any]
    ) -> Iterator[Job]:
        if after != before:
            self._known[f"{kind.name}/{name}"] = (obj.metadata.resource_version, after)
            yield Job(f"{kind.name}/{name}", status_write(kind, name, obj.metadata.uid, after))

    def _before(self, about: str, obj: OwnObject) -> dict[str, Any]:
        version, status = self._known.get(about, ("", {}))
        if version == obj.metadata.resource_version:
            return status  # the watch does not show the last write yet
        made: dict[str, Any] = msgspec.json.decode(obj.status)
        return made

    def _node_conditions(self, reported: Reported, at_s: float) -> Iterator[Job]:
        """The condition of nodes that policies in mode Act govern: False while an incident suspects one."""
        governed = {node for rules in reported.rules if rules.acts for node in rules.nodes}
        suspected: dict[str, Incident] = {}
        for incident in reported.outcome.incidents:
            if incident.is_open and incident.phase is not Phase.PAGED:
                suspected.update((key.name, incident) for key in incident.nodes if key.name in governed)
        for name, node in self._nodes.all().items():
            suspect, uid = suspected.get(name), node.metadata.uid
            shown = next((each.status for each in node.status.conditions if each.type == HEALTHY_CONDITION), None)
            written = self._conditions.get(name)
            known = written[1] if written is not None and written[0] == uid else shown
            wanted = "False" if suspect is not None else "True"
            if known == wanted or (known is None and suspect is None):
                continue
            self._conditions[name] = (uid, wanted)
            yield Job(f"Node/{name}", node_condition_write(name, uid, suspect, at_s))


def node_condition_write(name: str, uid: str, incident: Incident | None, at_s: float) -> Write:
    """Condition CollectiveHealthy of the node object with this UID."""
    reason, words = ("NoIncident", "no incident suspects the node")
    if incident is not None:
        reason, words = str(incident.phase), f"FaultIncident {incident.id}: {'; '.join(incident.shown)}"[:1024]
    condition = {
        "type": HEALTHY_CONDITION,
        "status": "True" if incident is None else "False",
        "reason": reason,
        "message": words,
        "lastHeartbeatTime": rfc3339(at_s),
        "lastTransitionTime": rfc3339(at_s),
    }
    body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    return Write("PATCH", f"/api/v1/nodes/{name}/status", body, STRATEGIC_PATCH)


def _policy_status(
    before: Mapping[str, Any], rules: Rules | None, reported: Reported, generation: int, at_s: float
) -> dict[str, Any]:
    old = HealthPolicyStatus.model_validate(before)
    nodes = rules.nodes if rules is not None else frozenset[str]()
    heard = reported.situation.heard_share
    is_heard = rules is not None and heard >= rules.policy.heard_share
    ready, reason, words = "True", "Watching", "agents under jobs are heard"
    if rules is None:
        ready, reason, words = "False", "Off", "its mode is Off"
    elif not is_heard:
        ready, reason, words = "False", "Blind", "too few agents are heard: nothing new is begun"
    conditions = set_condition(
        old.conditions, ACCEPTED, "True", "Valid", "its fields are valid", generation=generation, at_s=at_s
    )
    conditions = set_condition(conditions, READY, ready, reason, words, generation=generation, at_s=at_s)  # type: ignore[arg-type]
    return HealthPolicyStatus(
        observed_generation=generation,
        conditions=conditions,
        nodes=len(nodes),
        quarantined=sum(name in nodes and node.taint is not None for name, node in reported.situation.nodes.items()),
        incidents=sum(
            incident.is_open and any(key.name in nodes for key in incident.nodes)
            for incident in reported.outcome.incidents
        ),
    ).plain()
