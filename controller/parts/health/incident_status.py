"""FaultIncident objects: what they say to people, and the record that a new leader goes on from."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pydantic import ValidationError

from cluster.errors import UNREADABLE
from controller.api.conditions import set_condition
from controller.api.fault_incident import KIND, AlternativeStatus, FaultIncidentStatus
from controller.api.structs import OwnObject
from health.remediation.incidents import Incident, JobIntent

ACTIVE, WAITING = "Active", "Waiting"
_INFINITIES = ("acted_s", "closed_s")
"""Fields of an incident that may be infinite, which JSON cannot hold: absent then, and so at their defaults."""


def record_of(incident: Incident) -> str:
    """The incident as JSON."""
    plain = msgspec.to_builtins(incident)
    kept = {key: value for key, value in plain.items() if not (key in _INFINITIES and math.isinf(value))}
    return json.dumps(kept, separators=(",", ":"), allow_nan=False)


def incident_in(obj: OwnObject) -> Incident | None:
    """The incident in an object's status; None without a readable one, or under another's name."""
    try:
        status = msgspec.json.decode(obj.status)
        record = status.get("record") if isinstance(status, dict) else None
        found = msgspec.json.decode(record, type=Incident) if record else None
    except UNREADABLE:
        return None
    return found if found is not None and found.id == obj.metadata.name else None


def manifest_of(incident: Incident) -> dict[str, Any]:
    """The object as it is created."""
    nodes = [key.name for key in incident.nodes]
    spec = {"nodes": nodes} | ({"domain": incident.domain} if incident.domain else {})
    return {"apiVersion": KIND.api_version, "kind": KIND.name, "metadata": {"name": incident.id}, "spec": spec}


def status_after(
    before: Mapping[str, Any],
    incident: Incident,
    intents: Sequence[JobIntent],
    jobs: Sequence[str] = (),
    *,
    generation: int,
    at_s: float,
) -> dict[str, Any]:
    """Status as plain data; equal to `before` where nothing changed.

    intents: of remediation, for all incidents. jobs: that it has disturbed.
    generation: of the observed object. at_s: now, seconds since the epoch.
    """
    try:
        old = FaultIncidentStatus.model_validate(before)
    except ValidationError:
        old = FaultIncidentStatus()
    conditions = old.conditions
    for kind, holds, reason, words in _claims(incident):
        status = "True" if holds else "False"
        conditions = set_condition(conditions, kind, status, reason, words, generation=generation, at_s=at_s)  # type: ignore[arg-type]
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
        conditions=conditions,
        phase=str(incident.phase),  # type: ignore[arg-type]
        generation=incident.generation,
        syndrome=str(incident.syndrome),
        part=str(incident.part),
        jobs=tuple(jobs)[:64] or old.jobs,
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


def _claims(incident: Incident) -> tuple[tuple[str, bool, str, str], ...]:
    waits = incident.waits_for if incident.is_open else ""
    return (
        (ACTIVE, incident.is_open, str(incident.phase), incident.waits_for or "; ".join(incident.shown)[:1000]),
        (WAITING, bool(waits), waiting_reason(waits), waits or "nothing keeps it from acting"),
    )


def waiting_reason(waits: str) -> str:
    """Machine-readable cause of waiting: the first words, in CamelCase."""
    head = waits.partition(":")[0]
    words = "".join(part[:1].upper() + part[1:] for part in head.replace("-", " ").split()) if waits else "Nothing"
    return "".join(each for each in words if each.isascii() and each.isalnum())[:64] or "Waiting"


def _instant(at_s: float) -> float | None:
    return float(int(at_s)) if 0 < at_s < math.inf else None
