"""Health in print: policies, incidents, and the explanation of one incident."""

from collections.abc import Iterable, Iterator
from typing import Any

from cli.printing.ages import human_duration
from controller.api.conditions import READY, condition_of
from controller.api.fault_incident import FaultIncidentStatus
from controller.api.health_policy import HealthPolicyStatus

Object = dict[str, Any]
POLICY_HEADERS = ("POLICY", "MODE", "NODES", "OUT", "INCIDENTS", "READY", "REASON")
INCIDENT_HEADERS = ("INCIDENT", "PHASE", "SYNDROME", "PART", "SUSPECT", "JOBS", "CONF", "WAITS FOR", "AGE")
NONE = "-"


def policy_rows(policies: Iterable[Object]) -> Iterator[tuple[str, ...]]:
    for each in sorted(policies, key=lambda obj: str(obj["metadata"]["name"])):
        status = HealthPolicyStatus.model_validate(each.get("status") or {})
        ready = condition_of(status.conditions, READY)
        yield (
            each["metadata"]["name"],
            str((each.get("spec") or {}).get("mode", "Observe")),
            str(status.nodes),
            str(status.quarantined),
            str(status.incidents),
            ready.status if ready else "Unknown",
            ready.reason if ready else "NotReported",
        )


def incident_rows(incidents: Iterable[Object], now_s: float) -> Iterator[tuple[str, ...]]:
    """Open incidents first, the newest first among them."""
    read = [(each, status_of(each)) for each in incidents]
    read.sort(key=lambda pair: (pair[1].phase in (None, "Closed"), -(pair[1].since or 0.0)))
    for each, status in read:
        yield (
            each["metadata"]["name"],
            status.phase or NONE,
            status.syndrome or NONE,
            status.part or NONE,
            suspect_of(each),
            ", ".join(status.jobs) or NONE,
            f"{status.confidence:.2f}",
            status.waits_for or NONE,
            human_duration(now_s - status.since) if status.since else NONE,
        )


def status_of(incident: Object) -> FaultIncidentStatus:
    return FaultIncidentStatus.model_validate(incident.get("status") or {})


def is_open(incident: Object) -> bool:
    return status_of(incident).phase not in (None, "Closed")


def suspect_of(incident: Object) -> str:
    """What is suspected: a failure domain, nodes, or the jobs alone."""
    spec = incident.get("spec") or {}
    return str(spec.get("domain") or ", ".join(spec.get("nodes", [])) or NONE)


def explanation(incident: Object, now_s: float) -> Iterator[str]:
    """What is suspected and why, what was decided, what it waits for, and what else could be done at which price."""
    status = status_of(incident)
    since = f", since {human_duration(now_s - status.since)}" if status.since else ""
    yield f"{incident['metadata']['name']}: {status.phase or 'not reported yet'}{since}"
    yield f"suspect: {suspect_of(incident)} ({status.part or 'unknown'}), confidence {status.confidence:.2f}"
    yield f"disturbance: {status.syndrome}; jobs: {', '.join(status.jobs) or 'none'}"
    yield f"sources: {', '.join(status.sources) or 'none'}"
    for line in status.evidence:
        yield f"  {line}"
    if status.remedy:
        yield f"decided: {status.remedy}"
    if status.waits_for:
        yield f"waits for: {status.waits_for}"
    if status.probe:
        yield f"a probe would decide: {status.probe}"
    if status.alternatives:
        yield "alternatives, in expected GPU-hours:"
    for each in status.alternatives:
        price = "cannot be done" if each.gpu_hours is None else f"{each.gpu_hours:g}"
        yield f"  {each.do}: {price}{f' ({each.note})' if each.note else ''}"
