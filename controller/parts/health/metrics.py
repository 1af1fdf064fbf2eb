"""Gauges of health."""

from collections import Counter
from collections.abc import Iterator, Mapping

from controller.metrics.registry import Sample
from controller.parts.health.incident_status import waiting_reason
from controller.parts.health.reporter import Reported
from health.probing import Found
from health.remediation.incidents import Phase
from health.verdicts.verdict import Syndrome

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
    for found in Found:
        yield Sample("tonnage_health_probes", (str(found),), float(probed.get(str(found), 0)))
    for verdict, count in {**dict.fromkeys(FAULTS, 0), **verdicts}.items():
        yield Sample("tonnage_health_verdicts", (verdict,), float(count))
    for cause, count in {**refused, "not read in time": unread}.items():
        yield Sample("tonnage_health_refused", (cause,), float(count))
    if reported is None:
        return
    incidents = [incident for incident in reported.outcome.incidents if incident.is_open]
    phases = Counter(str(incident.phase) for incident in incidents)
    for phase in Phase:
        if phase is not Phase.CLOSED:
            yield Sample("tonnage_health_incidents", (str(phase),), float(phases[str(phase)]))
    waiting = Counter(waiting_reason(incident.waits_for) for incident in incidents)
    for reason, count in {"Nothing": 0, "DrainBlocked": 0, **waiting}.items():
        yield Sample("tonnage_health_waiting", (reason,), float(count))
    taints = [node.taint for node in reported.situation.nodes.values() if node.taint is not None]
    on_probation = sum(taint.on_probation for taint in taints)
    yield Sample("tonnage_health_nodes_out", ("probation",), float(on_probation))
    yield Sample("tonnage_health_nodes_out", ("quarantine",), float(len(taints) - on_probation))
    yield Sample("tonnage_health_heard_share", (), reported.situation.heard_share)
